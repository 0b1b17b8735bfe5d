"""Requests to one daemon and their answers, as bytes; the one module that knows aiodocker and aiohttp."""

# aiodocker has no public way to set limits of a container, to end only one direction of a stream or to time a request.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import aiohttp
from aiodocker import Docker, DockerError
from aiodocker.exceptions import DockerContextError
from aiodocker.ssh import SSHConnector
from aiohttp.client_proto import ResponseHandler

from arl_tangram.errors import ConfigurationError, MissingExtraError
from arl_tangram.managers.docker.answers import DaemonError, EngineVersion, Kind, read_version
from arl_tangram.managers.docker.calls import Calls
from arl_tangram.managers.docker.failures import check_progress, explain, one_line
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.managers.docker.location import Location, explain_context, find_socket, parse, sockets
from arl_tangram.managers.docker.stream import ExecStream, Frames

NEWEST_API = (1, 44)  # later ones are not used, so that a newer daemon changes nothing; those that need one get it
_NEVER = aiohttp.ClientTimeout()  # aiohttp's own deadlines cancel the task, which what must not be cancelled ignores


def locate(url: str | None) -> Location:
    """Return where the daemon is: at the URL, or where Docker's own tools look for it; blocks.

    Raises:
        ConfigurationError: nowhere, or the URL, the context or the certificates cannot be used.
    """
    tls: ssl.SSLContext | None = None
    try:
        found = url or os.environ.get("DOCKER_HOST")
        if not found and (endpoint := Docker._get_docker_context_endpoint()) is not None:
            found = endpoint.host
            tls = Docker._create_context_ssl_context(endpoint, context_name=endpoint.context_name)
    except DockerContextError as error:
        raise ConfigurationError(explain_context(error)) from error
    return parse(found or find_socket(sockets(os.environ)), tls, os.environ)


class Connection:
    """A client of one daemon, for one event loop."""

    def __init__(self, location: Location, meter: LatencyMeter) -> None:
        """Prepare the client, inside the running loop; nothing is sent.

        Raises:
            ConfigurationError: the kind of the URL cannot be used.
            MissingExtraError: it is ssh, and what that needs is not installed.
        """
        self.location = location
        self._calls = Calls(meter)
        connector = _connector(location)
        protocol: type[ResponseHandler] = _Protocol
        connector._factory = partial[ResponseHandler](protocol, asyncio.get_running_loop())
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=_NEVER, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=1 << 18
        )
        # A session of ours: aiodocker would allow 100 connections in all, and every open stream holds one.
        self._docker = Docker(url=location.base, connector=self._session.connector, session=self._session)

    async def aclose(self) -> None:
        """Close all connections; what is under way fails."""
        await self._session.close()
        await asyncio.sleep(0)  # sockets are closed in the next turn of the loop

    async def check(self, timeout_s: float) -> EngineVersion:
        """Ask which daemon it is, and settle on a version of its API.

        Raises:
            ConfigurationError: it does not answer, or is none.
        """
        try:
            version = read_version(await self.json("version", "GET", "version", timeout_s=timeout_s, versioned=False))
        except (DaemonError, ValueError) as error:
            raise ConfigurationError(explain(self.location, error, timeout_s)) from error
        api = max(version.least_api, min(version.api, NEWEST_API))
        self._docker.api_version = f"v{api[0]}.{api[1]}"
        return version

    @property
    def api_version(self) -> str:
        """The version of the API that is spoken."""
        return self._docker.api_version

    async def json(
        self,
        operation: str,
        method: str,
        path: str,
        *,
        timeout_s: float,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content: AsyncIterable[bytes] | None = None,
        accept: tuple[int, ...] = (),
        versioned: bool = True,
    ) -> object:
        """Send a request and return the answer, or None for one without a body or with a status of `accept`.

        Raises:
            DaemonError: it failed.
        """

        async def work() -> object:
            try:
                response = await self._ask(method, path, params=params, body=body, content=content, versioned=versioned)
            except DaemonError as error:
                if error.status in accept:
                    return None
                raise
            with _converted():
                async with response:
                    answer = await response.read()
                return json.loads(answer) if answer.strip() else None

        return await self._calls.timed(operation, work(), timeout_s)

    async def progress(
        self,
        operation: str,
        path: str,
        *,
        timeout_s: float,
        params: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        content: AsyncIterable[bytes] | None = None,
    ) -> None:
        """Post a request that is answered by a report of its progress, and wait for its end.

        Raises:
            DaemonError: it failed; the report may say so after a status of 200.
        """

        async def work() -> None:
            response = await self._ask("POST", path, params=params, headers=headers, content=content)
            with _converted():
                async with response:
                    while line := await response.content.readline():
                        if line.strip():
                            check_progress(json.loads(line))

        await self._calls.timed(operation, work(), timeout_s)

    @asynccontextmanager
    async def lines(
        self, operation: str, path: str, *, timeout_s: float, params: Mapping[str, str]
    ) -> AsyncGenerator[AsyncIterator[object]]:
        """Get an endless answer, one JSON value after the other; entering waits for its begin, until the deadline.

        Raises:
            DaemonError: it failed, or (iterating) it ended.
        """
        response = await self._calls.timed(
            operation, self._ask("GET", path, params=params), timeout_s, discard=aiohttp.ClientResponse.close
        )
        try:
            yield _Lines(response)
        finally:
            response.close()

    async def chunks(
        self, operation: str, path: str, *, timeout_s: float, params: Mapping[str, str]
    ) -> AsyncGenerator[bytes]:
        """Get an answer of any size, piece by piece; the deadline is one for each piece.

        Raises:
            DaemonError: it failed.
        """
        idle = aiohttp.ClientTimeout(sock_read=timeout_s)  # of all kinds, this one cancels no task
        response = await self._calls.timed(
            operation, self._ask("GET", path, params=params, timeout=idle), timeout_s,
            discard=aiohttp.ClientResponse.close,
        )  # fmt: skip
        try:
            while True:
                with _converted():
                    chunk = await response.content.readany()
                if not chunk:
                    return
                yield chunk
        finally:
            response.close()

    async def hijack(
        self, operation: str, path: str, *, timeout_s: float, body: object, exec_id: str, on_first: Callable[[], None]
    ) -> ExecStream:
        """Post a request after which the connection is the streams of a process.

        Raises:
            DaemonError: it failed.
        """

        async def work() -> ExecStream:
            headers = {"Connection": "Upgrade", "Upgrade": "tcp"}
            response = await self._ask("POST", path, body=body, headers=headers, read_until_eof=False)
            stream = _hijacked(response, exec_id, on_first)
            if stream is None:
                status = response.status
                response.close()
                raise DaemonError("failed", status, f"the daemon gave no stream for a process, but status {status}")
            return stream

        return await self._calls.timed(operation, work(), timeout_s, discard=ExecStream.close)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content: AsyncIterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: aiohttp.ClientTimeout = _NEVER,
        read_until_eof: bool = True,
        versioned: bool = True,
    ) -> aiohttp.ClientResponse:
        """Send a request; return the response when its head is there."""
        if self._session.closed:
            raise DaemonError("gone", 0, "the connection to the daemon was closed here")
        kind = "application/json" if content is None else "application/x-tar"
        with _converted():
            return await self._docker._do_query(
                path,
                method,
                params=params,
                data=content if content is not None else None if body is None else json.dumps(body).encode(),
                headers={"Content-Type": kind, **(headers or {})},
                timeout=timeout,
                read_until_eof=read_until_eof,
                versioned_api=versioned,
            )


class _Protocol(ResponseHandler):
    """One connection; what it has not sent when it is closed is dropped, or a daemon that hangs would keep it open."""

    def close(self) -> None:
        """Close it at once."""
        self.abort()


class _Lines:
    """The JSON values of an endless answer."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> object:
        while True:
            with _converted():
                line = await self._response.content.readline()
                if line.strip():
                    return json.loads(line)
            if not line:
                raise DaemonError("gone", 0, "the daemon ended the stream")


def _connector(location: Location) -> aiohttp.BaseConnector:
    if location.socket is not None:
        return aiohttp.UnixConnector(location.socket, limit=0)
    if not location.is_ssh:
        return aiohttp.TCPConnector(ssl=location.tls or True, limit=0)
    if importlib.util.find_spec("asyncssh") is None:
        raise MissingExtraError(f"{location.url} needs asyncssh: pip install 'aiodocker[ssh]'")
    try:
        connector = SSHConnector(location.url)
    except DockerError as error:
        raise ConfigurationError(f"{location.url}: {error.message}") from error
    connector._limit = 0
    return connector


def _hijacked(response: aiohttp.ClientResponse, exec_id: str, on_first: Callable[[], None]) -> ExecStream | None:
    protocol = None if response.connection is None else response.connection.protocol
    if response.status != 101 or protocol is None or protocol.transport is None:
        return None
    transport = protocol.transport
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    frames = Frames(transport, on_first)
    protocol.force_close()
    protocol.set_parser(frames, frames)
    return ExecStream(exec_id, transport, frames, drain=protocol._drain_helper, release=response.close)


@contextmanager
def _converted() -> Generator[None]:
    """Turn whatever the client libraries raise into a DaemonError."""
    try:
        yield
    except DaemonError:
        raise
    except DockerError as error:
        if error.status == 900:  # aiodocker's own
            raise DaemonError("gone", 0, f"the daemon cannot be reached: {_why(error)}") from error
        kind: Kind = "refused" if error.status // 100 == 4 else "failed"
        said = str(error.message or "").strip() or f"status {error.status} and no reason, unlike a Docker daemon"
        raise DaemonError(kind, error.status, one_line(said)) from error
    except TimeoutError as error:
        raise DaemonError("late", 0, f"the daemon has stopped answering: {one_line(error)}") from error
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError) as error:
        raise DaemonError("gone", 0, f"the connection to the daemon broke: {one_line(error)}") from error
    except (aiohttp.ClientError, ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        raise DaemonError("failed", 0, f"the daemon's answer makes no sense: {one_line(error)}") from error


def _why(error: BaseException) -> str:
    """Say what the operating system said, of an error that the client libraries have wrapped."""
    found = error.__context__
    return one_line(found.os_error if isinstance(found, aiohttp.ClientConnectorError) else found or error)
