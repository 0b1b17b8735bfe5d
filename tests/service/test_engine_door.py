"""Connections to a server: what counts as its end, and what as silence."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from arl_tangram.services.engine.remote import Door, GoneFault, RefusedFault, Seen, SilentFault
from arl_tangram.services.engine.sglang import SglangRemote
from arl_tangram.services.engine.vllm import VllmRemote

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def listening(*answers: bytes | None) -> AsyncGenerator[tuple[Door, list[int]]]:
    """Serve connections with one answer each, in turn; None ends one without an answer, nothing left says nothing."""
    left = list(answers)
    count: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        count.append(1)
        if not left:
            await reader.read()  # until the other end gives up
        elif (answer := left.pop(0)) is not None:
            writer.write(answer)
            await writer.drain()
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    door = Door(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield door, count
    finally:
        await door.aclose()
        server.close()
        await asyncio.sleep(0.05)


def unused_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_where_nothing_listens_the_server_is_gone(host: str) -> None:
    door = Door(f"http://{host}:{unused_port()}")
    with pytest.raises(GoneFault, match="ConnectError"):
        await door.post("/x")
    await door.aclose()


async def test_a_connection_that_ends_without_an_answer_means_gone_and_is_not_tried_again() -> None:
    async with listening(None, OK) as (door, count):
        with pytest.raises(GoneFault, match="RemoteProtocolError"):
            await door.post("/sleep")
        assert len(count) == 1


async def test_a_look_is_tried_again_once() -> None:
    async with listening(None, OK) as (door, count):
        assert await door.get("/x") == {}
        assert len(count) == 2
    async with listening(None, None, OK) as (door, _):
        with pytest.raises(GoneFault):
            await door.get("/x")


async def test_silence_is_not_death() -> None:
    async with listening() as (door, _):
        with pytest.raises(SilentFault, match="ReadTimeout"):
            await door.get("/x", limit_s=0.05)


@pytest.mark.parametrize("error", [httpx.ConnectTimeout("busy"), httpx.ConnectError("no route to host")])
@pytest.mark.parametrize("remote", [VllmRemote, SglangRemote])
async def test_who_cannot_be_reached_is_not_said_to_be_dead(
    monkeypatch: pytest.MonkeyPatch, remote: Callable[[Door], Any], error: Exception
) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise error

    door = Door("http://127.0.0.1:1")
    monkeypatch.setattr(door._client, "request", fails)
    with pytest.raises(SilentFault):
        await door.post("/x")
    assert await remote(door).look() is Seen.ALIVE
    await door.aclose()


async def test_an_answer_that_is_no_success_has_its_status_and_its_text_cut_short() -> None:
    text = b"x" * 5000
    async with listening(b"HTTP/1.1 503 X\r\nContent-Length: 5000\r\n\r\n" + text) as (door, _):
        with pytest.raises(RefusedFault, match=r"^POST /x was answered with 503: x{400}…$") as caught:
            await door.post("/x")
        assert caught.value.status == 503


@pytest.mark.parametrize(("body", "read"), [(b"", None), (b"null", None), (b'"a"', "a"), (b"plain", "plain")])
async def test_an_answer_is_read_as_json_if_it_is_that(body: bytes, read: object) -> None:
    async with listening(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)) as (door, _):
        assert await door.post("/x") == read
