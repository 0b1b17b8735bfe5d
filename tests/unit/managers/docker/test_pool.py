from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from arl_tangram.errors import ConfigurationError, UsageError
from arl_tangram.managers.docker import DockerHost, DockerPool
from arl_tangram.model.quantities import GIB
from fake_engine import FakeEngine


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cores": 0}, r"cores=\) takes a whole number from 1"),
        ({"cores": 1.5}, r"cores=.*1\.5"),
        ({"cores": True}, "cores="),
        ({"memory_gib": 0}, r"memory_gib=0\): GiB above 0"),
        ({"memory_gib": -1}, "memory_gib="),
        ({"memory_gib": float("nan")}, "memory_gib="),
        ({"memory_gib": "1"}, "memory_gib="),
        ({"image": ""}, r"image=''\): the name of an image is needed"),
        ({"image": "two words"}, "name of an image"),
        ({"image": 3}, "name of an image"),
        ({"url": "/var/run/docker.sock"}, "did you mean 'unix:///var/run/docker.sock'"),
        ({"url": "docker.sock"}, "unix://, tcp://"),
        ({"url": "unix://docker.sock"}, "must be absolute"),
        ({"url": "tcp://"}, "is needed"),
        ({"url": "ftp://host"}, "is needed"),
        ({"url": 5}, "is needed"),
        ({"max_sandboxes": 0}, "max_sandboxes="),
        ({"network": ""}, "network=''"),
        ({"network": "container:abc"}, "network='container:abc'"),
        ({"network": None}, "network=None"),
        ({"user": ""}, "user=''"),
        ({"user": "a:b:c"}, "user='a:b:c'"),
        ({"user": 1000}, "user=1000"),
        ({"share": "resizing"}, r"DockerPool\(share=\) takes 'resize', a policy .* not 'resizing'"),
        ({"share": True}, "share="),
        ({"capabilities": "NET_RAW"}, r"a list is needed: capabilities=\['NET_RAW'\], or \(\) for none"),
        ({"capabilities": None}, r"a list is needed: capabilities=\['NET_RAW'\], or \(\) for none$"),
        ({"capabilities": ["NET_RAWW"]}, "'NET_RAWW' is none of"),
        ({"capabilities": [1]}, "names such as 'NET_RAW' are needed, and 1 is none of"),
        ({"pids_limit": 3}, r"pids_limit=\) takes a whole number from 32"),
        ({"workdir": "work"}, "absolute path below"),
        ({"workdir": "/"}, "absolute path below"),
        ({"workdir": "/a/../b"}, "absolute path below"),
        ({"grants": "cgroups"}, "there are 'auto', 'direct' and 'api'"),
        ({"channel": "ssh"}, "there are 'session' and 'exec'"),
        ({"pull": "always"}, "there are 'missing' and 'never'"),
        ({"warm": -1}, "warm="),
        ({"warm": 1}, "which image"),
        ({"warm": 3, "image": "a", "max_sandboxes": 2}, "max_sandboxes=2"),
        ({"start_timeout_s": 0}, "start_timeout_s="),
        ({"start_timeout_s": float("inf")}, "start_timeout_s="),
        ({"pull_timeout_s": "1"}, "pull_timeout_s="),
        ({"core_ids": []}, "numbers of cores from 0"),
        ({"core_ids": "0-1"}, "numbers of cores from 0"),
        ({"core_ids": [0, -1]}, "numbers of cores from 0"),
        ({"core_ids": [0, True]}, "numbers of cores from 0"),
        ({"core_ids": [1, 1]}, "named twice"),
        ({"core_ids": [1], "cores": 2}, r"these are 1 core$"),
        ({"hosts": []}, "one or more DockerHost"),
        ({"hosts": ["unix:///a"]}, "one or more DockerHost"),
        ({"hosts": [DockerHost(url="unix:///a")], "url": "unix:///b"}, "each has its own url"),
        ({"hosts": [DockerHost(url="unix:///a")], "cores": 1}, "each has its own cores"),
        ({"hosts": [DockerHost(url="unix:///a")], "memory_gib": 1}, "each has its own memory_gib"),
        ({"hosts": [DockerHost(url="unix:///a")], "core_ids": [0]}, "each has its own core_ids"),
        ({"hosts": [DockerHost(url="unix:///a"), DockerHost(url="unix:///a")]}, "same url: 'unix:///a'"),
        ({"hosts": [DockerHost(), DockerHost()]}, "no url, so the same daemon"),
        ({"hosts": [DockerHost(url="unix:///a", name="2"), DockerHost(url="unix:///b")]}, "same name: '2'"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        DockerPool(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "a b"}, "make a name"),
        ({"name": ""}, "make a name"),
        ({"name": "a@b"}, "make a name"),
        ({"name": 1}, "make a name"),
        ({"cores": 0}, r"DockerHost\(cores="),
        ({"memory_gib": 0}, r"DockerHost\(memory_gib="),
        ({"url": "/a"}, r"DockerHost\(url="),
        ({"core_ids": 3}, r"DockerHost\(core_ids="),
    ],
    ids=str,
)
def test_what_cannot_be_a_host_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        DockerHost(**options)


def test_it_is_a_frozen_value() -> None:
    assert DockerPool(cores=1, core_ids=[1, 0], capabilities=["cap_net_raw"]) == DockerPool(
        cores=1, core_ids=(0, 1), capabilities=("NET_RAW",)
    )
    assert hash(DockerPool(hosts=[DockerHost(url="unix:///a")])) == hash(
        DockerPool(hosts=(DockerHost(url="unix:///a"),))
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        DockerPool().cores = 2  # type: ignore[misc]
    assert DockerPool(workdir="//some//dir/").workdir == "//some//dir/"


def test_a_manager_is_made_each_time_and_touches_nothing() -> None:
    pool = DockerPool(url="unix:///nowhere/docker.sock")
    manager = pool.manager()
    assert manager is not pool.manager()
    assert "not prepared" in manager.describe()
    with pytest.raises(UsageError, match=r"before prepare\(\)"):
        manager.dimensions()


def test_images_are_needed_and_checked() -> None:
    manager = DockerPool(url="unix:///nowhere").manager()
    manager.check_image("python:3.12-slim")
    manager.check_image("registry.example:5000/team/image@sha256:" + "0" * 64)
    with pytest.raises(ConfigurationError, match="needs an image"):
        manager.check_image(None)
    with pytest.raises(ConfigurationError, match="name of an image"):
        manager.check_image("no image")
    DockerPool(url="unix:///nowhere", image="busybox").manager().check_image(None)


async def test_no_daemon_is_told_when_it_is_prepared() -> None:
    manager = DockerPool(url="unix:///nowhere/docker.sock", image="busybox").manager()
    with pytest.raises(ConfigurationError, match=r"/nowhere/docker\.sock"):
        await manager.prepare()
    await manager.aclose()


async def test_which_of_several_hosts_cannot_be_used_is_told() -> None:
    hosts = [DockerHost(url="unix:///nowhere/a.sock", name="a"), DockerHost(url="unix:///nowhere/b.sock", name="b")]
    manager = DockerPool(hosts=hosts, image="busybox").manager()
    with pytest.raises(ConfigurationError, match=r"^host 'a': there is no socket at /nowhere/a\.sock"):
        await manager.prepare()
    await manager.aclose()


async def offered(*hosts: DockerHost) -> dict[str, int]:
    manager = DockerPool(hosts=hosts, image="busybox").manager()
    try:
        await manager.prepare()
        return {dimension.name: dimension.capacity for dimension in manager.dimensions()}
    finally:
        await manager.aclose()


async def test_two_daemons_of_one_machine_do_not_count_its_memory_twice() -> None:
    async with FakeEngine(tcp=True) as one, FakeEngine(tcp=True) as two:  # both tell 8 GiB and two cores
        found = await offered(DockerHost(url=one.url, cores=1), DockerHost(url=two.url, cores=1))
        assert (found["memory@1"], found["memory@2"], found["cpu@1"], found["cpu@2"]) == (4 * GIB, 4 * GIB, 1000, 1000)
        found = await offered(DockerHost(url=one.url, cores=1, memory_gib=6), DockerHost(url=two.url, cores=1))
        assert (found["memory@1"], found["memory@2"]) == (6 * GIB, 2 * GIB)
        with pytest.raises(
            ConfigurationError, match=r"shall give 10\.0 GiB of memory together, and there are 8\.0 GiB"
        ):
            await offered(
                DockerHost(url=one.url, cores=1, memory_gib=5), DockerHost(url=two.url, cores=1, memory_gib=5)
            )
    async with FakeEngine() as one, FakeEngine() as two:  # sockets that lead to other machines
        found = await offered(DockerHost(url=one.url), DockerHost(url=two.url))
        assert (found["memory@1"], found["memory@2"], found["cpu@2"]) == (8 * GIB, 8 * GIB, 2000)


def test_too_little_memory_for_a_sandbox_is_refused() -> None:
    manager = DockerPool(url="unix:///nowhere").manager()
    manager.check_memory(0)
    manager.check_memory(16 << 20)
    with pytest.raises(ConfigurationError, match=r"memory_gib=0\.001\).* a DockerPool needs 0\.015625 GiB \(16 MiB\)"):
        manager.check_memory(GIB // 1000)
