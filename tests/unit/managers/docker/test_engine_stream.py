"""The streams of a process: frames, back pressure and the end; the daemon is a fake engine."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.managers.docker.engine import DaemonError, Engine, ExecStream
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.managers.docker.stream import HIGH_BYTES, Frames
from fake_engine import FakeEngine, frame

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def talking(talk: Talk) -> AsyncIterator[tuple[FakeEngine, ExecStream]]:
    async with FakeEngine() as daemon:
        daemon.run("c1")
        daemon.on_exec = talk
        engine = Engine(daemon.url, LatencyMeter())
        await engine.open()
        stream = await engine.open_exec("c1", ["x"], env={"A": "1"}, user="u", workdir="/w")
        try:
            yield daemon, stream
        finally:
            stream.close()
            await engine.aclose()


async def all_of(stream: ExecStream) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while (piece := await stream.read()) is not None:
        found.append(piece)
    return found


def saying(*parts: bytes, abort: bool = False) -> Talk:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if abort:
            writer.transport.abort()

    return talk


async def test_what_is_asked_for() -> None:
    async with talking(saying()) as (daemon, stream):
        assert stream.exec_id == "e1"
        asked = next(request for request in daemon.requests if request.path.endswith("/c1/exec"))
        assert asked.json == {
            "Cmd": ["x"], "Env": ["A=1"], "User": "u", "WorkingDir": "/w", "AttachStdin": True, "AttachStdout": True,
            "AttachStderr": True, "Tty": False,
        }  # fmt: skip


async def test_both_streams_and_the_end() -> None:
    async with talking(saying(frame(1, b"out"), frame(2, b"err"), frame(1, b""))) as (_, stream):
        assert await all_of(stream) == [(1, b"out"), (2, b"err")]
        assert await stream.read() is None


@pytest.mark.parametrize("abort", [False, True])
async def test_half_a_frame_is_handed_on_and_ends(abort: bool) -> None:
    async with talking(saying(frame(1, b"whole"), frame(2, b"half")[:-2], abort=abort)) as (_, stream):
        found = await all_of(stream)
        assert found in ([(1, b"whole"), (2, b"ha")], []) if abort else found == [(1, b"whole"), (2, b"ha")]


async def test_half_a_header_is_the_end() -> None:
    async with talking(saying(frame(1, b"whole"), frame(2, b"half")[:5])) as (_, stream):
        assert await all_of(stream) == [(1, b"whole")]


@pytest.mark.parametrize(
    "nonsense", [b"OCI runtime exec failed", b"\x01\x00\x00\x01\x00\x00\x00\x01x", b"\x03" + bytes(9)]
)
async def test_what_is_no_frame_ends_the_stream(nonsense: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(1, b"ok") + nonsense)
        await writer.drain()
        await reader.read()  # it does not hang up itself

    async with talking(talk) as (_, stream):
        assert await all_of(stream) == [(1, b"ok")]
        with pytest.raises(DaemonError, match="ended"):
            await stream.write(b"x")


async def test_a_frame_of_4_gib_takes_no_memory() -> None:
    frames = Frames(Mock(spec=asyncio.Transport, **{"is_closing.return_value": False}), lambda: None)
    frames.feed_data(b"\x01\x00\x00\x00\xff\xff\xff\xff" + b"x" * 10)
    assert await frames.read() == (1, b"x" * 10)


async def test_standard_input() -> None:
    sent = bytes(range(256)) * 4000

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = len(sent)
        while left:
            data = await reader.read(1 << 16)
            writer.write(frame(1, data))
            await writer.drain()
            left -= len(data)
        writer.write(frame(2, b"bye"))
        await writer.drain()

    async with talking(echo) as (_, stream):
        reading = asyncio.create_task(all_of(stream))
        await stream.write(sent)
        found = await reading
        assert b"".join(data for number, data in found if number == 1) == sent
        assert found[-1] == (2, b"bye")


async def test_a_process_that_does_not_read_holds_up_who_writes_until_the_stream_is_closed() -> None:
    over = asyncio.Event()

    async def deaf(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()  # a reader that is not read from holds up who writes, soon

    async with talking(deaf) as (_, stream):
        writing = asyncio.create_task(stream.write(bytes(1 << 24)))
        await asyncio.sleep(0.05)
        assert not writing.done()
        stream.close()
        over.set()
        with pytest.raises(DaemonError, match="the stream of the process"):
            await writing


async def test_who_does_not_read_holds_up_the_process() -> None:
    sent = 0

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        for _unused in range(4000):
            writer.write(frame(1, bytes(1 << 15)))
            await writer.drain()
            sent += 1 << 15

    async with talking(flood) as (_, stream):
        while True:
            before = sent
            await asyncio.sleep(0.05)
            if sent == before > 0:
                break
        assert sent < 4 * HIGH_BYTES + (1 << 20)  # and what the sockets hold
        assert sum(len(data) for _, data in await all_of(stream)) == 4000 << 15


async def test_reading_can_be_cancelled_and_goes_on() -> None:
    said = asyncio.Event()

    async def later(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await said.wait()
        writer.write(frame(1, b"x"))
        await writer.drain()

    async with talking(later) as (_, stream):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await stream.read()
        said.set()
        assert await all_of(stream) == [(1, b"x")]


async def test_closing_wakes_who_reads_and_can_be_repeated() -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with talking(silent) as (_, stream):
        reading = asyncio.create_task(stream.read())
        await asyncio.sleep(0)
        stream.close()
        stream.close()
        assert await reading is None
        with pytest.raises(DaemonError, match="ended"):
            await stream.write(b"x")


async def test_a_daemon_that_is_killed_ends_the_stream() -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with talking(silent) as (daemon, stream):
        reading = asyncio.create_task(stream.read())
        await asyncio.sleep(0)
        await daemon.down()
        assert await reading is None
        await daemon.up()


@given(
    frames=st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=20)), max_size=8),
    cuts=st.lists(st.integers(0, 250), max_size=20),
)
def test_frames_are_the_same_however_they_arrive(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    sent = b"".join(frame(number, data) for number, data in frames)
    places = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})

    async def main() -> list[tuple[int, bytes]]:
        parser = Frames(Mock(spec=asyncio.Transport, **{"is_closing.return_value": False}), lambda: None)
        for start, stop in itertools.pairwise(places):
            assert parser.feed_data(sent[start:stop]) == (False, b"")
        parser.feed_eof()
        found: list[tuple[int, bytes]] = []
        while (piece := await parser.read()) is not None:
            found.append(piece)
        return found

    found = asyncio.run(main())
    for number in (1, 2):
        whole = b"".join(data for stream, data in frames if stream == number)
        assert b"".join(data for stream, data in found if stream == number) == whole
