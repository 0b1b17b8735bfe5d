"""What an action gets that uses a server which was started for it: requests, for as long as the action runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import httpx

from arl_tangram.errors import EvictedServiceError, ServiceLostError, UsageError
from arl_tangram.services.own_loop import OwnLoop
from arl_tangram.services.servers.answers import aborted
from arl_tangram.services.servers.launching import Server

_SHOWN = 400
_BUSY = frozenset({408, 425, 429})  # refused for now, and not for what was asked


class RunningServer:
    """A server in the hands of one action: the `Service` protocol over HTTP.

    Args:
        server: its processes.
        client: the connections to it; its base is where it answers.
        call_s: how long a call may take.
        until_told: waits until the pool knows that the server has died, if it has.

    Attributes:
        name: the name that it was declared with.
        dop: on how many devices it is.
        devices: its devices, as torch calls them here; the server itself counts them from 0.
        url: where it answers.
    """

    def __init__(
        self,
        name: str,
        dop: int,
        devices: tuple[str, ...],
        server: Server,
        client: httpx.AsyncClient,
        *,
        call_s: float,
        until_told: Callable[[], Awaitable[None]],
    ) -> None:
        self.name = name
        self.dop = dop
        self.devices = devices
        self.url = str(client.base_url).rstrip("/")
        self._server = server
        self._client = client
        self._call_s = call_s
        self._until_told = until_told
        self._is_over = False
        self._loop = OwnLoop(name)

    async def call(self, path: str, body: Any = None, *, method: str | None = None) -> Any:
        """Send one request and return its answer, read as JSON where it is JSON, else its text.

        Cancelling gives up the answer; the server may go on computing.

        Args:
            path: on the server; it begins with `/`.
            body: sent as JSON, if it is not None.
            method: POST if there is a body, else GET, by default.

        Raises:
            ServiceLostError: the server has died, does not answer in time, is too busy, or answers that it has failed.
            UsageError: it refuses the request (400 to 499), or that is no path.
            EvictedServiceError: the action has ended.
            WrongLoopError: another event loop runs here than that of the action.
        """
        what = f"{self.name}/{self.dop}"
        self._loop.check()
        if self._is_over:
            raise EvictedServiceError(f"{what}: the action that had this service has ended")
        # What follows "//" would be taken for a host, and only the rest be asked for.
        if not isinstance(cast(object, path), str) or not path.startswith("/") or path.startswith("//"):
            raise UsageError(
                f"{what}: call() takes a path of the server, which begins with one '/', and what is sent to it as "
                f"JSON; not {path!r:.100}"
            )
        method = method or ("GET" if body is None else "POST")
        try:
            async with asyncio.timeout(self._call_s):
                response = await self._client.request(method, path, json=body)
        except TimeoutError:
            raise ServiceLostError(f"{what}: {method} {path} was not answered within {self._call_s:g} s") from None
        except httpx.InvalidURL as error:
            raise UsageError(f"{what}: {path!r:.100} is no path: {error}") from error
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: the client was closed meanwhile
            await self._until_told()  # this action keeps its seat until then, so that nobody is sent to what is dead
            ended = "" if self._server.is_alive else f"; {ended_words(what, self._server)}"
            raise ServiceLostError(
                f"{what}: {method} {path} got no answer: {type(error).__name__} {error}{ended}"
            ) from error
        if response.is_success:
            return _content(response, what)
        answered = f"{what}: {method} {path} was answered with {response.status_code}: {response.text[:_SHOWN]}"
        is_refused = response.is_client_error and response.status_code not in _BUSY
        raise (UsageError if is_refused else ServiceLostError)(answered)

    def close(self) -> None:
        """The action has ended."""
        self._is_over = True


def _content(response: httpx.Response, what: str) -> Any:
    if "json" not in response.headers.get("content-type", ""):
        return response.text
    try:
        answer = response.json() if response.content else None
    except ValueError as error:
        raise ServiceLostError(f"{what}: its answer is no JSON: {response.text[:_SHOWN]}") from error
    if aborted(answer):
        raise ServiceLostError(f"{what}: its server cut the answer off (finish_reason 'abort')")
    return answer


def ended_words(name: str, server: Server) -> str:
    """Say how a server ended, with the last that it printed."""
    code = server.ended.result() if server.ended.done() else None
    printed = f"; the last that it printed: {text}" if (text := server.tail()) else ""
    return f"{name}: its server ended {'by itself' if code is None else f'with exit code {code}'}{printed}"
