"""A fake Docker Engine, for injecting faults only: it stands before a real one and does wrong what it is told to.

All requests and streams pass through it. Until it is given a fault it changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

HEAD_LIMIT = 1 << 20

# What becomes of a request: true if the connection may go on. It is given the request and how to pass it on.
Fault = Callable[["Request"], Awaitable[bool]]


@dataclass
class Request:
    """One request on its way.

    Attributes:
        line: method and path, without the version of the API and the query.
        content: all of it, as bytes.
        client: where the answer goes.
        pass_on: sends it to the real engine.
        keep_answers: lets nothing of what the real engine says on this connection reach the client any more.
    """

    line: str
    content: bytes
    client: asyncio.StreamWriter
    pass_on: Callable[[], Awaitable[None]]
    keep_answers: Callable[[], object]


@dataclass
class FaultyEngine:
    """The fake engine.

    Attributes:
        url: where it listens.
        seen: how often there was a request, by method and path; ids are replaced by `ID`.
    """

    url: str
    seen: Counter[str] = field(default_factory=Counter[str])
    _faults: dict[re.Pattern[str], Fault] = field(default_factory=dict)
    _connections: set[asyncio.StreamWriter] = field(default_factory=set)
    _is_away: bool = False

    # faults

    def answer(self, pattern: str, status: int, body: str = "{}") -> None:
        """Answer requests itself, without asking the real engine.

        Args:
            pattern: what begins like the line of a request, such as `POST /containers/.*/update`.
            status: of HTTP.
            body: JSON.
        """

        async def answered(request: Request) -> bool:
            head = f"HTTP/1.1 {status} As Told\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            request.client.write((head + body).encode())
            return True

        self._faults[re.compile(pattern)] = answered

    def hang(self, pattern: str) -> None:
        """Do not answer requests, and do not pass them on."""

        async def hung(request: Request) -> bool:
            return True

        self._faults[re.compile(pattern)] = hung

    def lose_answer(self, pattern: str) -> None:
        """Pass requests on, and close the connection instead of bringing the answer."""

        async def lost(request: Request) -> bool:
            request.keep_answers()
            await request.pass_on()
            await asyncio.sleep(0.2)  # the engine has it by then
            return False

        self._faults[re.compile(pattern)] = lost

    def heal(self) -> None:
        """Do everything right again."""
        self._faults.clear()
        self._is_away = False

    def cut_all(self) -> None:
        """Close every connection and stream, in the middle of whatever there is."""
        for writer in self._connections:
            writer.transport.abort()

    def go_away(self) -> None:
        """Be gone, as a daemon that has died: streams end, and new connections are closed at once."""
        self._is_away = True
        self.cut_all()

    # passing on

    async def _serve(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_away:
            writer.transport.abort()
            return
        self._connections.add(writer)
        engine: asyncio.StreamWriter | None = None
        backward: asyncio.Task[None] | None = None
        try:
            answers, engine = await asyncio.open_unix_connection(target)
            backward = asyncio.create_task(_copy(answers, writer))
            if await self._forward(reader, writer, engine, backward):
                await backward
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._connections.discard(writer)
            if backward is not None:
                backward.cancel()
                await asyncio.gather(backward, return_exceptions=True)
            for each in (writer, engine):
                if each is not None:
                    each.transport.abort()
                    with contextlib.suppress(OSError):
                        await each.wait_closed()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        client: asyncio.StreamWriter,
        engine: asyncio.StreamWriter,
        backward: asyncio.Task[None],
    ) -> bool:
        """Pass requests on until the client says no more; return whether it may still be told something."""
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return False
            line = _line(head)
            self.seen[re.sub(r"/[0-9a-f]{64}\b", "/ID", line)] += 1
            if not _has_length(head):  # a stream: what follows is no request
                engine.write(head)
                await _copy(reader, engine)
                return True
            length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
            content = head + (await reader.readexactly(int(length[1])) if length else b"")

            async def pass_on(content: bytes = content) -> None:
                engine.write(content)
                await engine.drain()

            fault = next((fault for pattern, fault in self._faults.items() if pattern.match(line)), None)
            if fault is None:
                await pass_on()
            elif not await fault(Request(line, content, client, pass_on, keep_answers=backward.cancel)):
                client.transport.abort()
                return False
            if b"upgrade: tcp" in head.lower():
                await _copy(reader, engine)
                return True


def _line(head: bytes) -> str:
    method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    return f"{method} {re.sub(r'^/v[0-9.]+', '', path.partition('?')[0])}"


def _has_length(head: bytes) -> bool:
    return b"transfer-encoding: chunked" not in head.lower()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


@asynccontextmanager
async def faulty_engine(url: str, folder: Path) -> AsyncIterator[FaultyEngine]:
    """Stand before the engine at a `unix://` URL, at a socket in a folder."""
    assert url.startswith("unix://"), "the fake engine stands before a real one of this machine"
    socket = folder / "faulty.sock"
    made = FaultyEngine(f"unix://{socket}")
    served: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(made._serve(url.removeprefix("unix://"), reader, writer))
        served.add(task)
        task.add_done_callback(served.discard)

    server = await asyncio.start_unix_server(serve, socket, limit=HEAD_LIMIT)
    try:
        yield made
    finally:
        server.close()
        made.cut_all()
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)
        await server.wait_closed()
