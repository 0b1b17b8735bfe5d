"""The engine against a real daemon: what it does, floods, cancellation, and daemons that are killed."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import tarfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from arl_tangram.managers.docker.engine import DaemonError, Engine, ExecStream
from arl_tangram.managers.docker.labels import OWNER, read_mark, sweep
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.managers.docker.watch import Death, Watch
from arl_tangram.managers.host.owner import new_name
from docker_engine import PrivateEngine
from docker_images import Images

FLOOD_BYTES = 1 << 28
MARK = f"arl_tangram.test-{uuid.uuid4().hex}"  # of the containers of this run


@pytest.fixture
async def engine(docker_url: str) -> AsyncIterator[Engine]:
    async with opened(docker_url) as engine:
        yield engine


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Engine]:
    engine = Engine(url, LatencyMeter())
    await engine.open()
    try:
        yield engine
        assert await engine.list({MARK: ""}) == []
    finally:
        with contextlib.suppress(DaemonError):
            for container in await engine.list({MARK: ""}):
                await engine.remove(container.id)
        await engine.aclose()


def config(image: str, *command: str, **host: object) -> dict[str, object]:
    return {
        "Image": image, "Entrypoint": [], "Cmd": [*(command or ("sleep", "600"))], "Labels": {MARK: "1"},
        "HostConfig": {"NetworkMode": "none", **host},
    }  # fmt: skip


def name() -> str:
    return f"arl_tangram-test-{uuid.uuid4().hex[:12]}"


@asynccontextmanager
async def running(engine: Engine, image: str, *command: str, **host: object) -> AsyncIterator[str]:
    container = await engine.create(config(image, *command, **host), name())
    try:
        await engine.start(container)
        yield container
    finally:
        await engine.remove(container)


async def output(stream: ExecStream) -> tuple[bytes, bytes]:
    parts: dict[int, bytes] = {1: b"", 2: b""}
    while (piece := await stream.read()) is not None:
        parts[piece[0]] += piece[1]
    return parts[1], parts[2]


def archive(**files: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for path, data in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return target.getvalue()


async def chunked(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 1 << 16):
        yield data[at : at + (1 << 16)]


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - what a daemon does has no event here
            await asyncio.sleep(0.05)


async def test_a_daemon_tells_what_it_is(engine: Engine) -> None:
    info = await engine.info()
    assert info.ncpu >= 1
    assert info.memory_bytes > 1 << 28
    assert info.cgroup_version in (1, 2)
    assert not info.is_podman
    assert abs(info.clock_s - time.time()) < 60


async def test_a_container_and_a_process_in_it(engine: Engine, images: Images) -> None:
    async with running(engine, images.busybox) as container:
        state = await engine.inspect(container)
        assert state.running
        assert state.pid > 0
        stream = await engine.open_exec(
            container,
            ["sh", "-c", "echo $A; echo bad >&2; pwd; head -c 200000; exit 3"],
            env={"A": "b c"},
            workdir="/tmp",
        )
        await stream.write(b"\x00\xff" * 100_000)
        out, err = await output(stream)
        stream.close()
        assert out == b"b c\n/tmp\n" + b"\x00\xff" * 100_000
        assert err == b"bad\n"
        ended = await engine.exec_state(stream.exec_id)
        assert (ended.running, ended.exit_code) == (False, 3)


async def test_limits_are_changed_and_refused(engine: Engine, images: Images) -> None:
    async with running(engine, images.busybox) as container:
        await engine.update(container, quota_us=50_000, period_us=100_000, cpus="0")
        await engine.update(container, quota_us=-1, period_us=100_000)
        with pytest.raises(DaemonError, match="not available") as caught:
            await engine.update(container, quota_us=-1, period_us=100_000, cpus="4095")
        assert caught.value.kind == "refused"


async def test_files_go_in_and_out(engine: Engine, images: Images) -> None:
    data = os.urandom(20 << 20)
    async with running(engine, images.busybox) as container:
        await engine.put_archive(container, "/tmp", chunked(archive(big=data)))
        async with aclosing(engine.get_archive(container, "/tmp/big")) as chunks:
            got = b"".join([chunk async for chunk in chunks])
        with tarfile.open(fileobj=io.BytesIO(got)) as tar:
            assert tar.extractfile("big").read() == data  # type: ignore[union-attr]
        async with aclosing(engine.get_archive(container, "/tmp/big")) as chunks:
            await anext(chunks)  # and enough of it
        with pytest.raises(DaemonError, match="nowhere") as caught:
            async with aclosing(engine.get_archive(container, "/nowhere")) as chunks:
                await anext(chunks)
        assert caught.value.status == 404
        with pytest.raises(DaemonError):
            await engine.put_archive(container, "/nowhere", chunked(archive(x=b"")))


async def test_an_image_is_made_looked_at_and_removed(engine: Engine) -> None:
    ref = f"arl_tangram-test/{uuid.uuid4().hex[:12]}:1"
    assert not await engine.has_image(ref)
    await engine.import_image(chunked(archive(file=b"x")), ref)
    assert await engine.has_image(ref)
    assert (await engine.image_config(ref)).user == ""
    await engine.remove_image(ref)
    await engine.remove_image(ref)
    assert not await engine.has_image(ref)


async def test_an_image_that_no_registry_has(engine: Engine) -> None:
    with pytest.raises(DaemonError, match=r"127\.0\.0\.1:1|connect") as caught:
        await engine.pull("127.0.0.1:1/nothing/here:1", timeout_s=30)
    assert caught.value.kind == "failed"


async def test_what_is_not_there_is_refused(engine: Engine) -> None:
    with pytest.raises(DaemonError) as caught:
        await engine.create(config("arl_tangram-test/nowhere:1"), name())
    assert (caught.value.kind, caught.value.status) == ("refused", 404)
    for call in (engine.inspect("nowhere"), engine.start("nowhere"), engine.open_exec("nowhere", ["true"])):
        with pytest.raises(DaemonError) as caught:
            await call
        assert caught.value.status == 404
    await engine.remove("nowhere")


async def test_a_death_is_heard_and_seen(engine: Engine, images: Images) -> None:
    since_s = int((await engine.info()).clock_s)
    async with (
        engine.events({MARK: ""}, ["die"], since_s=since_s) as events,
        running(engine, images.busybox, "sh", "-c", "exit 7") as container,
    ):
        while (event := await anext(events)).id != container:
            pass  # one of an earlier test, which died within the same second
        assert (event.action, event.exit_code) == ("die", 7)
        state = await engine.inspect(container)
        assert (state.running, state.exit_code) == (False, 7)

        async def is_listed() -> bool:  # the list is a moment behind
            return [each.state for each in await engine.list({MARK: ""})] == ["exited"]

        await eventually(is_listed)


async def test_a_flood_of_output_costs_the_client_nothing(engine: Engine, images: Images) -> None:
    async with running(engine, images.busybox) as container:
        stream = await engine.open_exec(container, ["head", "-c", str(FLOOD_BYTES), "/dev/zero"])
        got, before, most, lag = 0, _resident(), 0, 0.0

        async def watch_the_loop() -> None:
            nonlocal lag, most
            while True:  # the time that the loop itself has used: this machine may be busy otherwise
                used_s = time.thread_time()
                await asyncio.sleep(0.005)
                lag = max(lag, time.thread_time() - used_s)
                most = max(most, _resident())

        watching = asyncio.create_task(watch_the_loop())
        while (piece := await stream.read()) is not None:
            got += len(piece[1])
        watching.cancel()
        stream.close()
        assert got == FLOOD_BYTES
        assert most - before < 50 << 20
        assert lag < 0.05


async def test_other_calls_go_on_while_nobody_reads_a_flood(engine: Engine, images: Images) -> None:
    async with running(engine, images.busybox) as container:
        floods = [await engine.open_exec(container, ["cat", "/dev/zero"]) for _ in range(4)]
        before = _resident()
        for _ in range(10):
            other = await engine.open_exec(container, ["echo", "hi"])
            assert await output(other) == (b"hi\n", b"")
            other.close()
        assert _resident() - before < 50 << 20
        for stream in floods:
            stream.close()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_more_streams_than_a_client_usually_has_connections(engine: Engine, images: Images) -> None:
    async with running(engine, images.busybox) as container:
        hello = ["sh", "-c", "printf x; exec cat"]
        streams = await asyncio.gather(*(engine.open_exec(container, hello) for _ in range(120)))
        assert await asyncio.gather(*(stream.read() for stream in streams)) == [(1, b"x")] * 120
        assert (await engine.inspect(container)).running
        for stream in streams:
            await stream.write(b"y")
        assert await asyncio.gather(*(stream.read() for stream in streams)) == [(1, b"y")] * 120
        for stream in streams:
            stream.close()


@pytest.mark.parametrize("attempt", range(8))
async def test_a_cancelled_creation_and_start_leave_no_container(engine: Engine, images: Images, attempt: int) -> None:
    async def begin() -> None:
        container = await engine.create(config(images.busybox), name())
        await engine.start(container)

    _ = images.busybox  # made outside of what is cancelled
    task = asyncio.create_task(begin())
    await asyncio.sleep(attempt * 0.04)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
        for container in await engine.list({MARK: ""}):  # it was quick
            await engine.remove(container.id)
    assert await engine.list({MARK: ""}) == []


async def test_a_late_creation_leaves_no_container(engine: Engine, images: Images) -> None:
    with pytest.raises(DaemonError) as caught:
        await engine.create(config(images.busybox), name(), timeout_s=0.002)
    assert caught.value.kind == "late"

    await asyncio.wait_for(engine._undo.settled(), 30)
    assert await engine.list({MARK: ""}) == []


async def test_a_container_may_be_removed_by_several_at_once(engine: Engine, images: Images) -> None:
    container = await engine.create(config(images.busybox), name())
    await engine.start(container)
    await asyncio.gather(*(engine.remove(container) for _ in range(5)))
    assert await engine.list({MARK: ""}) == []


async def test_a_sweep_removes_what_dead_owners_left(engine: Engine, images: Images) -> None:
    mark = await read_mark()
    alive = new_name()
    dead = f"{mark.namespace}-{os.getpid()}-1-abcdef"
    ids: dict[str, str] = {}
    for owner in (alive, dead):
        body = config(images.busybox)
        body["Labels"] = {MARK: "1", **mark.labels(owner, "s", 60)}
        ids[owner] = await engine.create(body, name())
        await engine.start(ids[owner])
    assert await sweep(engine) >= 1
    assert [container.id for container in await engine.list({OWNER: dead})] == []
    assert [container.id for container in await engine.list({OWNER: alive})] == [ids[alive]]
    await engine.remove(ids[alive])


async def test_a_container_that_runs_out_of_memory_is_told(engine: Engine, images: Images) -> None:
    hog = ("sh", "-c", "sleep 1; x=$(head -c 100000000 /dev/zero | tr '\\0' x); echo ${#x}")
    async with (
        running(engine, images.busybox, *hog, Memory=16 << 20, MemorySwap=16 << 20) as container,
        watched(engine, [container]) as (deaths, _),
    ):
        died, death = await asyncio.wait_for(deaths.get(), 30)
        assert died == container
        assert death.oom_killed


@asynccontextmanager
async def watched(
    engine: Engine, containers: list[str]
) -> AsyncIterator[tuple[asyncio.Queue[tuple[str, Death]], asyncio.Queue[str]]]:
    deaths: asyncio.Queue[tuple[str, Death]] = asyncio.Queue()
    daemon: asyncio.Queue[str] = asyncio.Queue()

    def die(container: str, death: Death) -> None:
        containers.remove(container)
        deaths.put_nowait((container, death))

    watch = Watch(
        engine, {MARK: ""}, running=lambda: containers, on_death=die, on_oom=lambda _: None,
        on_gone=lambda _: daemon.put_nowait("gone"), on_back=lambda: daemon.put_nowait("back"),
    )  # fmt: skip
    task = asyncio.create_task(watch.run())
    try:
        await watch.wait_ready()
        yield deaths, daemon
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_killed_container_is_told_within_two_seconds(engine: Engine, images: Images) -> None:
    async with running(engine, images.busybox) as container, watched(engine, [container]) as (deaths, _):
        os.kill((await engine.inspect(container)).pid, 9)
        assert await asyncio.wait_for(deaths.get(), 2) == (container, Death(137, False, "was killed (exit code 137)"))


@pytest.mark.parametrize("live_restore", [False, True])
async def test_a_daemon_that_is_killed_and_started_again(
    private_engine: Callable[..., PrivateEngine], live_restore: bool
) -> None:
    daemon = private_engine(live_restore=live_restore)
    images = Images(daemon.api, "killed")
    image = images.busybox
    async with opened(daemon.url) as engine:
        container = await engine.create(config(image), name())
        await engine.start(container)
        stream = await engine.open_exec(container, ["sleep", "600"])
        async with watched(engine, [container]) as (deaths, told):
            await asyncio.to_thread(daemon.kill)
            assert await asyncio.wait_for(stream.read(), 5) is None
            stream.close()
            assert await asyncio.wait_for(told.get(), 5) == "gone"
            with pytest.raises(DaemonError) as caught:
                await engine.inspect(container)
            assert caught.value.kind == "gone"
            await asyncio.to_thread(daemon.start)
            assert await asyncio.wait_for(told.get(), 15) == "back"
            if live_restore:
                assert (await engine.inspect(container)).running
                assert deaths.empty()
            else:
                assert (await asyncio.wait_for(deaths.get(), 15))[0] == container
        await engine.remove(container)
