from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.docker.answers import EngineInfo
from arl_tangram.managers.docker.declared import HostSettings
from arl_tangram.managers.docker.neighbours import machine_of
from arl_tangram.managers.docker.offer import Offer, offer
from arl_tangram.managers.host.machine import Machine, parse_cpulist

GIB = 1 << 30
HERE = Machine(cores=(0, 1, 2, 3, 4, 5), quota_cores=float("inf"), memory_bytes=4 * GIB, nodes=((0, 1, 2), (3, 4, 5)))


def info(ncpu: int = 8, memory_bytes: int = 16 * GIB) -> EngineInfo:
    known: dict[str, Any] = {
        "name": "box", "ncpu": ncpu, "memory_bytes": memory_bytes, "cgroup_version": 2, "cgroup_driver": "cgroupfs",
        "live_restore": False, "root_dir": "/d", "version": "27", "is_podman": False, "api_version": "v1.44",
        "rootless": False, "warnings": (), "clock_s": 0.0,
    }  # fmt: skip
    return EngineInfo(**{name: known.get(name) for name in EngineInfo.__dataclass_fields__})


def host(**told: Any) -> HostSettings:
    return HostSettings(**({"name": "", "url": None, "cores": None, "memory_bytes": None, "core_ids": None} | told))


def offered(told: HostSettings, machine: Machine | None = None, **options: Any) -> Offer:
    return offer(told, info(), machine, said="the host", **options)


def test_of_another_machine_it_has_what_the_daemon_tells() -> None:
    found = offered(host())
    assert (found.nodes, found.cores) == ((tuple(range(8)),), 8)
    assert (found.memory_bytes, found.most_memory_bytes, found.most_cores) == (16 * GIB, 16 * GIB, 8)


def test_case_89_of_this_machine_it_has_what_this_process_may_use() -> None:
    found = offered(host(), HERE)
    assert (found.nodes, found.cores, found.memory_bytes) == (HERE.nodes, 6, 4 * GIB)
    limited = Machine(cores=HERE.cores, quota_cores=4.0, memory_bytes=4 * GIB, nodes=HERE.nodes)
    assert offered(host(), limited).cores == 4
    assert offered(host(memory_bytes=10 * GIB), HERE).memory_bytes == 10 * GIB, "who names a number knows better"


def test_it_has_what_was_asked_and_can_grow() -> None:
    found = offered(host(cores=2, memory_bytes=GIB))
    assert (found.cores, found.most_cores, found.memory_bytes) == (2, 8, GIB)
    assert offered(host(core_ids=(5, 7))).nodes == ((5, 7),)


def test_named_cores_of_this_machine_are_told_apart_by_node() -> None:
    online = parse_cpulist(Path("/sys/devices/system/cpu/online").read_text())
    assert {0, 1} <= set(online)
    here = Machine(cores=(0, 1), quota_cores=1.0, memory_bytes=GIB, nodes=((0,), (1,)))
    assert offered(host(core_ids=(0, 1)), here).nodes == ((0,), (1,))
    only = Machine(cores=(0,), quota_cores=1.0, memory_bytes=GIB, nodes=((0,),))
    assert offered(host(core_ids=(0, 1)), only).nodes == ((0,), (1,)), "also those that this process may not use"


def test_daemons_of_one_machine_share_its_cores() -> None:
    first = offered(host(cores=2), HERE, shares=True)
    assert (first.nodes, first.most_cores) == (((0, 1),), 2)
    second = offered(host(), HERE, taken=[0, 1], shares=True)
    assert (second.nodes, second.cores) == (((2,), (3, 4, 5)), 4)
    with pytest.raises(ConfigurationError, match="0 of this machine are left: other hosts of the pool have 0,1,2,3"):
        offered(host(), HERE, taken=range(6), shares=True)
    with pytest.raises(ConfigurationError, match="shall give 5 cores, and 4 of this machine are left"):
        offered(host(cores=5), HERE, taken=[0, 1], shares=True)
    with pytest.raises(ConfigurationError, match="shall give 1 core, and 0 of that machine are left"):
        offered(host(cores=1), taken=range(8), shares=True)


def test_hosts_of_one_machine_share_its_memory() -> None:
    assert offered(host(beside=(None,)), HERE).memory_bytes == 2 * GIB, "evenly, of what this process may use"
    assert offered(host(beside=(GIB, None)), HERE).memory_bytes == 3 * GIB // 2, "of what is left"
    assert offered(host(beside=(None,))).memory_bytes == 8 * GIB
    named = offered(host(memory_bytes=GIB, beside=(15 * GIB,)))
    assert (named.memory_bytes, named.most_memory_bytes) == (GIB, GIB), "it does not grow into another's"
    with pytest.raises(
        ConfigurationError,
        match=r"other hosts of the pool on its machine shall give 17\.0 GiB .*together, .* 16\.0 GiB",
    ):
        offered(host(memory_bytes=2 * GIB, beside=(15 * GIB,)))
    with pytest.raises(ConfigurationError, match=r"no memory is left: other hosts .* have 4\.0 of 4\.0 GiB"):
        offered(host(beside=(4 * GIB,)), HERE)


@pytest.mark.parametrize(
    ("url", "is_here", "machine"),
    [
        ("unix:///a", True, ""), (None, True, ""), ("tcp://127.0.0.1:1", False, ""), ("tcp://[::1]", False, ""),
        ("tcp://far:1", False, "far"), ("ssh://me@FAR", False, "far"), ("unix:///to/far", False, "unix:///to/far"),
        (None, False, "elsewhere"),
    ],
)  # fmt: skip
def test_which_machine_it_is(url: str | None, is_here: bool, machine: str) -> None:
    assert machine_of(url, is_here=is_here) == machine


@pytest.mark.parametrize(
    ("told", "machine", "words"),
    [
        ({"cores": 9}, None, "the host shall give 9 cores, and 8 can be used"),
        ({"cores": 7}, HERE, "shall give 7 cores, and 6 can be used .of this machine, this process may use no more"),
        ({"memory_bytes": 17 * GIB}, None, "shall give 17.0 GiB of memory, and there are 16.0 GiB"),
        ({"core_ids": (1, 8)}, None, "shall give the cores 1,8, and there is no core 8 among 0,1,2,3,4,5,6,7"),
        ({"core_ids": (10**4,)}, HERE, f"no core {10**4} among"),
    ],
    ids=str,
)
def test_more_than_there_is_is_refused(told: dict[str, Any], machine: Machine | None, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        offered(host(**told), machine)
