"""What the engine asks a daemon for, and how it takes the answers; the daemon is a fake engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.docker.engine import (
    ContainerEvent,
    ContainerState,
    DaemonError,
    Engine,
    ExecState,
    ImageConfig,
    Listed,
)  # fmt: skip
from arl_tangram.managers.docker.latency import LatencyMeter
from fake_engine import FakeEngine, Fault, response


@asynccontextmanager
async def opened(*, podman: str = "", tcp: bool = False) -> AsyncIterator[tuple[FakeEngine, Engine]]:
    async with FakeEngine(podman=podman, tcp=tcp) as daemon:
        engine = Engine(daemon.url, LatencyMeter())
        await engine.open()
        try:
            yield daemon, engine
        finally:
            await engine.aclose()


async def test_info() -> None:
    async with opened() as (_, engine):
        info = await engine.info()
    assert (info.name, info.ncpu, info.memory_bytes) == ("fake", 2, 1 << 33)
    assert (info.cgroup_version, info.cgroup_driver, info.rootless) == (2, "systemd", False)
    assert (info.version, info.api_version, info.is_podman) == ("20.10.24", "v1.41", False)
    assert info.clock_s == pytest.approx(1796007600.123456)


async def test_many_calls_at_once_ask_for_the_version_once() -> None:
    async with opened() as (daemon, engine):
        await asyncio.gather(*(engine.has_image("img:1") for _ in range(50)))
        assert daemon.count("GET version") == 1
        assert {request.path for request in daemon.requests[2:]} == {"/v1.41/images/img:1/json"}


async def test_a_newer_api_than_what_is_known_is_not_used() -> None:
    async with FakeEngine() as daemon:
        daemon.answers["GET version"] = {"Version": "31", "ApiVersion": "1.60", "MinAPIVersion": "1.40"}
        engine = Engine(daemon.url, LatencyMeter())
        assert (await engine.open()).api_version == "v1.44"
        await engine.aclose()


async def test_a_daemon_that_has_dropped_all_known_versions_is_spoken_to_in_its_oldest() -> None:
    async with FakeEngine() as daemon:
        daemon.answers["GET version"] = {"Version": "31", "ApiVersion": "1.60", "MinAPIVersion": "1.50"}
        engine = Engine(daemon.url, LatencyMeter())
        assert (await engine.open()).api_version == "v1.50"
        await engine.aclose()


async def test_a_container_from_creation_to_removal() -> None:
    async with opened() as (daemon, engine):
        container = await engine.create({"Image": "img:1", "Labels": {"a": "1", "b": "2"}}, "c1")
        assert await engine.list({"a": "1"}) == [Listed(container, {"a": "1", "b": "2"}, "created", 0)]
        assert await engine.list({"a": ""}, all=False) == []
        assert await engine.list({"a": "2"}) == []
        await engine.start(container)
        assert await engine.inspect(container) == ContainerState(True, 4711, 0, False, "")
        await engine.update(container, quota_us=50_000, period_us=100_000, cpus="0-1", memory_bytes=7)
        assert daemon.containers[container].updates == [
            {"CpuQuota": 50_000, "CpuPeriod": 100_000, "CpusetCpus": "0-1", "Memory": 7, "MemorySwap": 7}
        ]
        await engine.remove(container)
        await engine.remove(container)  # gone already
        assert daemon.containers == {}


async def test_a_removal_that_is_under_way_elsewhere_is_none_of_ours() -> None:
    async with opened() as (daemon, engine):
        told = b'{"message": "removal of container c1 is already in progress"}'
        daemon.fault("DELETE containers/c1", Fault(response(409, told)))
        await engine.remove("c1")


async def test_a_refusal_is_told_as_the_daemon_told_it() -> None:
    async with opened() as (_, engine):
        with pytest.raises(DaemonError, match="No such container: nope") as caught:
            await engine.inspect("nope")
        assert (caught.value.kind, caught.value.status) == ("refused", 404)


async def test_podman_is_known_and_its_own_route_sets_limits() -> None:
    async with opened(podman="4.3.1") as (daemon, engine):
        assert (await engine.info()).is_podman
        container = daemon.run("c1")
        await engine.update(container.id, quota_us=-1, period_us=100_000, cpus="0", memory_bytes=9)
        assert container.updates == [
            {"cpu": {"quota": -1, "period": 100_000, "cpus": "0"}, "memory": {"limit": 9, "swap": 9}}
        ]
        assert daemon.requests[-1].path.startswith("/v4.3.1/libpod/")


async def test_a_podman_that_cannot_change_limits_says_so() -> None:
    async with opened(podman="3.4.4") as (daemon, engine):
        container = daemon.run("c1")
        with pytest.raises(
            DaemonError, match=r"Podman 3.4.4 cannot change the limits of a container: 4.3 can"
        ) as caught:
            await engine.update(container.id, quota_us=-1, period_us=100_000)
        assert caught.value.kind == "refused"


async def test_a_daemon_that_is_reached_by_tcp() -> None:
    async with opened(tcp=True) as (daemon, engine):
        daemon.run("c1")
        assert engine.socket is None
        assert engine.url == daemon.url
        stream = await engine.open_exec("c1", ["true"])
        assert await stream.read() == (1, b"hi")
        assert await stream.read() is None
        stream.close()


async def test_an_image() -> None:
    async with opened() as (_, engine):
        assert await engine.has_image("img:1")
        assert not await engine.has_image("127.0.0.1:5000/other/img:1")
        assert await engine.image_config("img:1") == ImageConfig({"A": "1", "B": "x=y"}, "/w", "u")


@pytest.mark.parametrize(
    ("ref", "query"),
    [
        ("a/b", {"fromImage": "a/b", "tag": "latest"}),
        ("a/b:2", {"fromImage": "a/b", "tag": "2"}),
        ("host:5000/b", {"fromImage": "host:5000/b", "tag": "latest"}),
        ("a@sha256:12", {"fromImage": "a@sha256:12"}),
    ],
)
async def test_a_pull_is_of_one_tag(ref: str, query: dict[str, str]) -> None:
    async with opened() as (daemon, engine):
        await engine.pull(ref, auth="secret")
        assert daemon.requests[-1].query == query
        assert daemon.requests[-1].headers["x-registry-auth"] == "secret"


@pytest.mark.parametrize(
    "line", [{"error": "denied: no"}, {"errorDetail": {"message": "denied: no"}}, {"error": "denied: no", "x": 1}]
)
async def test_a_pull_that_fails_after_a_good_status_has_failed(line: dict[str, object]) -> None:
    async with opened() as (daemon, engine):
        daemon.pull_report = [{"status": "Pulling"}, line]
        with pytest.raises(DaemonError, match="denied: no"):
            await engine.pull("a/b:2")


async def test_the_state_of_a_process() -> None:
    async with opened() as (daemon, engine):
        assert await engine.exec_state("e1") == ExecState(False, 0, 4711)
        daemon.answers["GET exec/e1/json"] = {"Running": False, "ExitCode": None, "Pid": 0}
        assert await engine.exec_state("e1") == ExecState(True, None, 0)  # not begun
        daemon.answers["GET exec/e1/json"] = {"Running": True, "ExitCode": 0, "Pid": 3}
        assert await engine.exec_state("e1") == ExecState(True, None, 3)  # Podman's 0 while it runs


async def test_events() -> None:
    async with opened() as (daemon, engine), engine.events({"a": "1", "b": ""}, ["die"], since_s=5) as events:
        await daemon.wait_subscribed()
        await daemon.emit("die", "c1", exitCode="137")
        await daemon.emit("exec_died", "c1", exitCode="3")
        await daemon.emit("oom", "c1")
        await daemon.emit_raw(b'{"Type": "image", "Action": "pull"}\n')
        await daemon.emit("exec_start: sh -c true", "c1")
        assert [await anext(events) for _ in range(4)] == [
            ContainerEvent("c1", "die", 137, 1001),
            ContainerEvent("c1", "exec_die", 3, 1002),
            ContainerEvent("c1", "oom", None, 1003),
            ContainerEvent("c1", "exec_start", None, 1004),
        ]
        query = daemon.requests[-1].query
        assert query == {
            "filters": '{"type": ["container"], "label": ["a=1", "b"], "event": ["die"]}', "since": "5",
        }  # fmt: skip


async def test_files_are_sent_as_they_come() -> None:
    async with opened() as (daemon, engine):
        container = daemon.run("c1")

        async def chunks() -> AsyncIterator[bytes]:
            yield b"abc"
            yield b"def"

        await engine.put_archive(container.id, "/w", chunks())
        assert (daemon.requests[-1].body, daemon.requests[-1].query["path"]) == (b"abcdef", "/w")


async def test_what_the_source_of_files_raises_is_raised() -> None:
    async with opened() as (daemon, engine):
        container = daemon.run("c1")

        async def chunks() -> AsyncIterator[bytes]:
            yield b"abc"
            raise FileNotFoundError("source is gone")

        with pytest.raises(FileNotFoundError, match="source is gone"):
            await engine.put_archive(container.id, "/w", chunks())
        assert await engine.has_image("img:1")


async def test_a_call_before_the_daemon_is_open_fails() -> None:
    engine = Engine("unix:///nowhere", LatencyMeter())
    with pytest.raises(DaemonError, match="not been opened"):
        await engine.info()
    await engine.aclose()


async def test_a_daemon_that_says_too_little_of_itself_cannot_be_used() -> None:
    async with FakeEngine() as daemon:
        daemon.answers["GET info"] = {"Name": "x", "SystemTime": daemon.clock}
        engine = Engine(daemon.url, LatencyMeter())
        with pytest.raises(ConfigurationError, match=r"unix://.*cannot be used.*NCPU"):
            await engine.open()
