"""A fake engine: it answers like a Docker daemon, runs nothing, and goes wrong in the ways that it is told to.

It is for injecting faults only; that the client fits a real daemon is shown with a real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

HANG = object()  # as an answer: none, ever
DROP = object()  # as an answer: the connection is closed without one
USUAL = object()

Handler = Callable[["Request"], tuple[int, Any]]


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one request instead of the usual.

    Attributes:
        answer: USUAL, HANG, DROP, or the bytes that are sent before the connection is closed.
        does: whether the daemon does what it was asked for all the same.
        after: waited for before anything else.
    """

    answer: object = USUAL
    does: bool = True
    after: asyncio.Event | None = None


@dataclass(slots=True)
class FakeContainer:
    id: str
    name: str
    labels: dict[str, str]
    state: str = "created"
    exit_code: int = 0
    oom_killed: bool = False
    created: int = 0
    finished_at: str = "0001-01-01T00:00:00Z"
    updates: list[Any] = field(default_factory=list)


def frame(stream: int, data: bytes) -> bytes:
    """Return a frame of an exec stream."""
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4) + data


def response(status: int, body: bytes, kind: str = "application/json") -> bytes:
    """Return the bytes of an answer."""
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class FakeEngine:
    """A daemon's stand-in on a unix socket; an async context manager."""

    def __init__(self, *, podman: str = "", tcp: bool = False) -> None:
        self.podman = podman  # its version, if it is to answer as Podman does
        self.tcp = tcp
        self.containers: dict[str, FakeContainer] = {}
        self.images: dict[str, Any] = {"img:1": {"Config": {"Env": ["A=1", "B=x=y"], "WorkingDir": "/w", "User": "u"}}}
        self.requests: list[Request] = []
        self.connections = 0
        self.port = 0
        self.stdin = bytearray()
        self.pull_report: list[Any] = [{"status": "Pulling"}, {"status": "done"}]
        self.on_exec: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = self._say_hi
        self.clock = "2026-11-30T03:00:00.123456789Z"
        self.reads = asyncio.Event()  # while it is not set, no request is read beyond its head
        self.reads.set()
        self.answers: dict[str, Any] = {}  # by route: what is answered in place of the usual
        self._faults: dict[str, deque[Fault]] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._subscribers: set[asyncio.StreamWriter] = set()
        self._news = asyncio.Event()
        self._numbers = 0
        self._at_ns = 1_000

    async def __aenter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="fake-engine-")
        self.socket = str(Path(self._folder.name) / "docker.sock")
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()
        self._folder.cleanup()

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}" if self.tcp else f"unix://{self.socket}"

    async def up(self) -> None:
        """Begin to listen."""
        if self.tcp:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]
        else:
            self._server = await asyncio.start_unix_server(self._serve, self.socket)

    async def down(self) -> None:
        """Stop to listen, and drop all connections: as if it had been killed."""
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self.wait_until(lambda: not self._writers)
        await self._server.wait_closed()
        self._unlink()

    def _unlink(self) -> None:
        Path(self.socket).unlink(missing_ok=True)

    @property
    def connected(self) -> int:
        """How many connections there are."""
        return len(self._writers)

    def fault(self, route: str, fault: Fault, *, times: int = 1) -> None:
        """Let something happen to the next requests of a route, such as `POST containers/create`."""
        self._faults.setdefault(route, deque()).extend([fault] * times)

    def count(self, route: str) -> int:
        """Return how many requests of a route there were."""
        return Counter(f"{request.method} {_route(request.path)}" for request in self.requests)[route]

    async def wait_for(self, route: str, count: int = 1) -> None:
        """Wait until so many requests of a route have arrived."""
        await self.wait_until(lambda: self.count(route) >= count)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds of the requests, the containers or the connections."""
        async with asyncio.timeout(10):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def wait_subscribed(self) -> None:
        """Wait until somebody listens to events."""
        await self.wait_until(lambda: bool(self._subscribers))

    async def emit(self, action: str, container: str, **attributes: str) -> None:
        """Send an event to all who listen."""
        self._at_ns += 1
        event = {
            "Type": "container", "Action": action, "timeNano": self._at_ns, "time": 0,
            "Actor": {"ID": container, "Attributes": attributes},
        }  # fmt: skip
        await self.emit_raw(json.dumps(event).encode() + b"\n")

    async def emit_raw(self, data: bytes) -> None:
        for writer in self._subscribers:
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()

    def end_events(self, *, cleanly: bool = True) -> None:
        """End the streams of events."""
        for writer in list(self._subscribers):
            if cleanly:
                writer.write(b"0\r\n\r\n")
                writer.close()
            else:
                writer.transport.abort()
        self._subscribers.clear()

    def run(self, name: str, **labels: str) -> FakeContainer:
        """Add a container that runs, as if it had been created by somebody else."""
        container = self._add(name, {key.replace("__", "."): value for key, value in labels.items()})
        container.state = "running"
        return container

    def find(self, ref: str) -> FakeContainer | None:
        return next((each for each in self.containers.values() if ref in (each.id, each.name)), None)

    # inside

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            self._writers.discard(writer)
            self._subscribers.discard(writer)
            self._news.set()
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _receive(reader, self.reads)
        self.requests.append(request)
        self._news.set()
        faults = self._faults.get(f"{request.method} {_route(request.path)}")
        fault = faults.popleft() if faults else Fault()
        if fault.after is not None:
            await fault.after.wait()
        if fault.answer is USUAL and request.path.endswith("/start") and "/exec/" in request.path:
            return await self._hijack(reader, writer)
        if fault.answer is USUAL and request.path.endswith("/events"):
            return await self._stream_events(reader, writer)
        usual = self._answer(request) if fault.does else (500, {"message": "the fake engine did nothing"})
        self._news.set()
        if fault.answer is HANG:
            await reader.read()  # until the client gives up
            return False
        if fault.answer is DROP:
            return False
        if fault.answer is USUAL:
            status, body = usual
            data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
            writer.write(response(status, data))
            await writer.drain()
            return True
        assert isinstance(fault.answer, bytes)
        writer.write(fault.answer)
        await writer.drain()
        return False

    async def _hijack(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(
            b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
            b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        )
        await self.on_exec(reader, writer)
        return False

    async def _say_hi(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(1, b"hi"))
        await writer.drain()

    async def _stream_events(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        await writer.drain()
        self._subscribers.add(writer)
        self._news.set()
        await reader.read()
        return False

    def _add(self, name: str, labels: dict[str, str]) -> FakeContainer:
        self._numbers += 1
        container = FakeContainer(f"{self._numbers:064x}", name, labels)
        self.containers[container.id] = container
        return container

    def _answer(self, request: Request) -> tuple[int, Any]:
        route = _route(request.path)
        parts = route.split("/")
        key = f"{request.method} {route}"
        if key in self.answers:
            return 200, self.answers[key]
        match request.method, parts:
            case "GET", ["version"]:
                return 200, self._version()
            case "GET", ["info"]:
                return 200, self._info()
            case "POST", ["containers", "create"]:
                name = request.query["name"]
                if self.find(name) is not None:
                    return 409, {"message": f'Conflict. The container name "/{name}" is already in use'}
                return 201, {"Id": self._add(name, request.json.get("Labels", {})).id, "Warnings": []}
            case "GET", ["containers", "json"]:
                return 200, self._list(request)
            case "POST", ["images", "create"]:
                return 200, self._pull(request)
            case "GET", ["images", *name, "json"]:
                image = self.images.get(unquote("/".join(name)))
                return (404, {"message": "No such image"}) if image is None else (200, image)
            case "GET", ["exec", _, "json"]:
                return 200, {"Running": False, "ExitCode": 0, "Pid": 4711}
            case _:
                return self._answer_of_container(request, parts)

    def _pull(self, request: Request) -> bytes:
        if not any("error" in line or "errorDetail" in line for line in self.pull_report):
            self.images[f"{request.query['fromImage']}:{request.query.get('tag', '')}"] = {"Config": {}}
        return b"".join(json.dumps(line).encode() + b"\r\n" for line in self.pull_report)

    def _answer_of_container(self, request: Request, parts: list[str]) -> tuple[int, Any]:
        match request.method, parts:
            case "POST", ["libpod", "containers", ref, "update"] if self.podman:
                return self._of(ref, lambda container: (201, container.updates.append(request.json)))
            case "POST", ["containers", ref, "update"] if not self.podman:
                return self._of(ref, lambda container: (200, container.updates.append(request.json)))
            case "POST", ["containers", ref, "start"]:
                return self._of(ref, self._start)
            case "GET", ["containers", ref, "json"]:
                return self._of(ref, self._inspect)
            case "DELETE", ["containers", ref]:
                return self._of(ref, lambda container: (204, self.containers.pop(container.id) and None))
            case "POST", ["containers", ref, "exec"]:
                return self._of(ref, lambda _: (201, {"Id": "e1"}))
            case "PUT", ["containers", ref, "archive"]:
                return self._of(ref, lambda _: (200, None))
            case _:
                return 404, {"message": "page not found"}

    def _of(self, ref: str, handle: Callable[[FakeContainer], tuple[int, Any]]) -> tuple[int, Any]:
        container = self.find(ref)
        return (404, {"message": f"No such container: {ref}"}) if container is None else handle(container)

    def _start(self, container: FakeContainer) -> tuple[int, Any]:
        container.state = "running"
        return 204, None

    def _inspect(self, container: FakeContainer) -> tuple[int, Any]:
        state = {
            "Running": container.state == "running", "Pid": 4711, "ExitCode": container.exit_code,
            "OOMKilled": container.oom_killed, "Error": "",
            "FinishedAt": container.finished_at,
        }  # fmt: skip
        return 200, {"Id": container.id, "State": state}

    def _list(self, request: Request) -> list[Any]:
        wanted = json.loads(request.query["filters"])["label"]
        found: list[Any] = []
        for each in self.containers.values():
            has = [*each.labels, *(f"{name}={value}" for name, value in each.labels.items())]
            if all(label in has for label in wanted) and (request.query["all"] == "1" or each.state == "running"):
                found.append({"Id": each.id, "Labels": each.labels, "State": each.state, "Created": each.created})
        return found

    def _version(self) -> Any:
        if self.podman:
            details = {"APIVersion": self.podman, "MinAPIVersion": "4.0.0"}
            components = [{"Name": "Podman Engine", "Version": self.podman, "Details": details}, {"Name": "Conmon"}]
            return {"Version": self.podman, "ApiVersion": "1.41", "MinAPIVersion": "1.24", "Components": components}
        return {
            "Version": "20.10.24",
            "ApiVersion": "1.41",
            "MinAPIVersion": "1.12",
            "Components": [{"Name": "Engine"}],
        }

    def _info(self) -> Any:
        return {
            "Name": "fake", "NCPU": 2, "MemTotal": 1 << 33, "CgroupVersion": "2", "CgroupDriver": "systemd",
            "LiveRestoreEnabled": False, "DockerRootDir": "/var/lib/docker", "ServerVersion": "20.10.24",
            "SystemTime": self.clock, "SecurityOptions": ["name=seccomp"], "Warnings": None,
        }  # fmt: skip


def _route(path: str) -> str:
    """Return a path without the version of the API."""
    parts = path.strip("/").split("/")
    return "/".join(parts[1:] if parts[0].startswith("v") and parts[0] != "version" else parts)


async def _receive(reader: asyncio.StreamReader, reads: asyncio.Event) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    await reads.wait()
    line, *rest = head.rstrip().split("\r\n")
    method, target, _ = line.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in rest)}
    body = b""
    if headers.get("transfer-encoding") == "chunked":
        while size := int((await reader.readline()).strip(), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    elif length := int(headers.get("content-length", "0")):
        body = await reader.readexactly(length)
    split = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(split.query, keep_blank_values=True).items()}
    return Request(method, split.path, query, headers, body)
