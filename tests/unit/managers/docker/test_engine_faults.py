"""What becomes of calls when the daemon hangs, breaks off, talks nonsense or is gone; the daemon is a fake engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.docker.engine import DaemonError, Engine
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.uninterrupted import unstoppable
from fake_engine import DROP, HANG, FakeEngine, Fault, response

SOON_S = 0.1  # the deadline of calls that are to meet it
LATE_S = 60.0  # of those that are answered


async def _chunks() -> AsyncIterator[bytes]:
    yield b"x"


async def _drained(engine: Engine, timeout_s: float) -> list[bytes]:
    async with aclosing(engine.get_archive("c1", "/x", timeout_s=timeout_s)) as chunks:
        return [chunk async for chunk in chunks]


CALLS: dict[str, tuple[str, Callable[[Engine, float], Awaitable[object]]]] = {
    "info": ("GET info", lambda engine, timeout_s: engine.info(timeout_s=timeout_s)),
    "ping": ("GET version", lambda engine, timeout_s: engine.ping(timeout_s=timeout_s)),
    "create": ("POST containers/create", lambda engine, timeout_s: engine.create({}, "c2", timeout_s=timeout_s)),
    "start": ("POST containers/c1/start", lambda engine, timeout_s: engine.start("c1", timeout_s=timeout_s)),
    "inspect": ("GET containers/c1/json", lambda engine, timeout_s: engine.inspect("c1", timeout_s=timeout_s)),
    "remove": ("DELETE containers/c1", lambda engine, timeout_s: engine.remove("c1", timeout_s=timeout_s)),
    "update": (
        "POST containers/c1/update",
        lambda engine, timeout_s: engine.update("c1", quota_us=1, period_us=1, timeout_s=timeout_s),
    ),
    "list": ("GET containers/json", lambda engine, timeout_s: engine.list({}, timeout_s=timeout_s)),
    "open_exec": (
        "POST containers/c1/exec",
        lambda engine, timeout_s: engine.open_exec("c1", ["x"], timeout_s=timeout_s),
    ),
    "open_exec, at its start": (
        "POST exec/e1/start",
        lambda engine, timeout_s: engine.open_exec("c1", ["x"], timeout_s=timeout_s),
    ),
    "exec_state": ("GET exec/e1/json", lambda engine, timeout_s: engine.exec_state("e1", timeout_s=timeout_s)),
    "has_image": ("GET images/img:1/json", lambda engine, timeout_s: engine.has_image("img:1", timeout_s=timeout_s)),
    "image_config": (
        "GET images/img:1/json",
        lambda engine, timeout_s: engine.image_config("img:1", timeout_s=timeout_s),
    ),
    "pull": ("POST images/create", lambda engine, timeout_s: engine.pull("img:1", timeout_s=timeout_s)),
    "put_archive": (
        "PUT containers/c1/archive",
        lambda engine, timeout_s: engine.put_archive("c1", "/", _chunks(), timeout_s=timeout_s),
    ),
    "get_archive": ("GET containers/c1/archive", _drained),
}
each_call = pytest.mark.parametrize("name", CALLS)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[FakeEngine, Engine, LatencyMeter]]:
    async with FakeEngine() as daemon:
        daemon.run("c1")
        before, meter = open_files(), LatencyMeter()
        engine = Engine(daemon.url, meter)
        await engine.open()
        try:
            yield daemon, engine, meter
        finally:
            await engine.aclose()
        await daemon.wait_until(lambda: not daemon.connected)
        assert open_files() == before


@each_call
async def test_a_daemon_that_hangs(name: str) -> None:
    route, call = CALLS[name]
    async with opened() as (daemon, engine, meter):
        daemon.fault(route, Fault(HANG, does=False))
        with pytest.raises(DaemonError) as caught:
            await call(engine, SOON_S)
        assert caught.value.kind == "late"
        assert sum(latency.failures for latency in meter.read().values()) == 1


@each_call
async def test_a_daemon_that_hangs_while_the_caller_cannot_be_cancelled(name: str) -> None:
    route, call = CALLS[name]
    async with opened() as (daemon, engine, _):
        daemon.fault(route, Fault(HANG, does=False))

        async def clean_up() -> None:
            await call(engine, SOON_S)

        with pytest.raises(DaemonError) as caught:
            await unstoppable(clean_up())
        assert caught.value.kind == "late"


@each_call
async def test_a_daemon_that_breaks_off(name: str) -> None:
    route, call = CALLS[name]
    async with opened() as (daemon, engine, _):
        daemon.fault(route, Fault(DROP, does=False), times=2)  # aiohttp repeats some requests once
        with pytest.raises(DaemonError) as caught:
            await call(engine, LATE_S)
        assert caught.value.kind == "gone"


@each_call
async def test_a_daemon_that_breaks_off_in_the_middle_of_its_answer(name: str) -> None:
    route, call = CALLS[name]
    async with opened() as (daemon, engine, _):
        daemon.fault(route, Fault(response(200, b"{" + b" " * 100)[:-50], does=False))
        with pytest.raises(DaemonError) as caught:
            await call(engine, LATE_S)
        assert caught.value.kind in ("gone", "failed")


@each_call
@pytest.mark.parametrize(
    "answer",
    [b"\x00\xffwhat is this", response(500, b'{"message": 5}'), response(503, b"\xff\xfe"), response(404, b"[]")],
    ids=["no http", "a message that is a number", "no text", "no message"],
)
async def test_a_daemon_that_talks_nonsense(name: str, answer: bytes) -> None:
    route, call = CALLS[name]
    async with opened() as (daemon, engine, _):
        daemon.fault(route, Fault(answer, does=False), times=2)
        with pytest.raises(DaemonError):
            await call(engine, LATE_S)


SHAPES = [b"[1", b"[1]", b'"x"', b"7", b"{}", b'{"Id": 3, "State": [], "Config": 1, "Pid": "x"}']
READERS = ["info", "create", "inspect", "list", "open_exec", "exec_state", "image_config", "pull"]
# An image may lack a configuration, and a report of progress may say anything but an error.
POSSIBLE = [("image_config", SHAPES[4]), ("pull", SHAPES[4]), ("pull", SHAPES[5])]


@pytest.mark.parametrize(
    ("name", "body"), [(name, body) for name in READERS for body in SHAPES if (name, body) not in POSSIBLE]
)
async def test_a_daemon_whose_answer_has_the_wrong_shape(name: str, body: bytes) -> None:
    route, call = CALLS[name]
    async with opened() as (daemon, engine, _):
        daemon.fault(route, Fault(response(200, body), does=False))
        with pytest.raises(DaemonError) as caught:
            await call(engine, LATE_S)
        assert caught.value.kind == "failed"


async def test_a_process_without_a_stream() -> None:
    async with opened() as (daemon, engine, _):
        daemon.fault("POST exec/e1/start", Fault(response(200, b"")))
        with pytest.raises(DaemonError, match="no stream for a process, but status 200"):
            await engine.open_exec("c1", ["x"])


@each_call
async def test_a_daemon_that_is_gone_and_comes_back(name: str) -> None:
    _, call = CALLS[name]
    async with opened() as (daemon, engine, _):
        await daemon.down()
        with pytest.raises(DaemonError) as caught:
            await call(engine, LATE_S)
        assert caught.value.kind == "gone"
        await daemon.up()
        assert await engine.has_image("img:1")


@each_call
async def test_a_cancelled_call_leaves_nothing(name: str) -> None:
    route, call = CALLS[name]
    async with opened() as (daemon, engine, _):
        held = asyncio.Event()
        daemon.fault(route, Fault(after=held))

        async def run() -> object:
            return await call(engine, LATE_S)

        task = asyncio.create_task(run())
        await daemon.wait_for(route)
        task.cancel()
        held.set()
        with pytest.raises(asyncio.CancelledError):
            await task


@each_call
async def test_closing_ends_what_is_under_way(name: str) -> None:
    route, call = CALLS[name]
    async with opened() as (daemon, engine, _):
        daemon.fault(route, Fault(HANG, does=False))

        async def run() -> object:
            return await call(engine, LATE_S)

        task = asyncio.create_task(run())
        await daemon.wait_for(route)
        await engine.aclose()
        with pytest.raises(DaemonError) as caught:
            await task
        assert caught.value.kind == "gone"


async def test_what_a_cancelled_call_has_not_sent_is_dropped() -> None:
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            begun.set()
            yield bytes(1 << 20)

    async with FakeEngine() as daemon:
        engine = Engine(daemon.url, LatencyMeter())
        await engine.open()
        before = open_files()
        daemon.reads.clear()
        call = asyncio.create_task(engine.import_image(endless(), "img:2"))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        await engine.aclose()
        assert open_files() == before - 1  # the daemon's end, which is in this process too, does not read it yet
        daemon.reads.set()


async def test_a_removal_does_not_stand_behind_creations() -> None:
    async with opened() as (daemon, engine, _):
        held = asyncio.Event()
        daemon.fault("POST containers/create", Fault(after=held), times=4)
        creating = [asyncio.create_task(engine.create({}, f"n{n}")) for n in range(50)]
        await daemon.wait_for("POST containers/create", 4)
        removing = asyncio.create_task(engine.remove("c1"))
        await asyncio.sleep(0)
        held.set()
        await removing
        assert daemon.count("POST containers/create") < 12  # of 2 cores, 4 at once
        await asyncio.gather(*creating)


async def test_inspecting_does_not_stand_behind_processes_that_are_being_started() -> None:
    async with opened() as (daemon, engine, _):
        silent = asyncio.Event()

        async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await silent.wait()

        daemon.on_exec = say_nothing
        streams = await asyncio.gather(*(engine.open_exec("c1", ["x"]) for _ in range(8)))
        waiting = asyncio.create_task(engine.open_exec("c1", ["x"]))
        await engine.inspect("c1")
        await engine.remove("other")
        assert daemon.count("POST exec/e1/start") == 8  # of 2 cores
        assert not waiting.done()
        streams[0].close()  # which ends one of the eight starts
        silent.set()
        (await waiting).close()
        for stream in streams:
            stream.close()


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: None, "there is no socket at"),
        (lambda path: path.write_text(""), "nothing listens at"),
    ],
)
async def test_a_daemon_that_cannot_be_reached(tmp_path: Path, prepare: Callable[[Path], object], message: str) -> None:
    path = tmp_path / "s"
    prepare(path)
    with pytest.raises(ConfigurationError, match=f"{message}.*{path}: start the Docker daemon there"):
        await Engine(f"unix://{path}", LatencyMeter()).open()


async def test_a_daemon_that_is_none() -> None:
    async with FakeEngine() as daemon:
        daemon.fault("GET version", Fault(response(200, b"<html>", "text/html")))
        with pytest.raises(ConfigurationError, match=r"the Docker daemon at unix://.* cannot be used"):
            await Engine(daemon.url, LatencyMeter()).open()


async def test_an_answer_that_says_nothing_is_told_by_its_status() -> None:
    async with FakeEngine() as daemon:
        daemon.fault("GET version", Fault(response(404, b"", "text/html")))
        with pytest.raises(ConfigurationError, match=r"unix://.* cannot be used: status 404 and no reason"):
            await Engine(daemon.url, LatencyMeter()).open()


async def test_a_daemon_that_does_not_answer() -> None:
    async with FakeEngine() as daemon:
        daemon.fault("GET version", Fault(HANG))
        with pytest.raises(ConfigurationError, match=r"unix://.* has not answered within 0.1 s"):
            await Engine(daemon.url, LatencyMeter()).open(timeout_s=SOON_S)


async def test_a_path_that_is_too_long_for_a_socket() -> None:
    with pytest.raises(ConfigurationError, match="too long"):
        await Engine(f"unix:///{'x' * 200}", LatencyMeter()).open()
