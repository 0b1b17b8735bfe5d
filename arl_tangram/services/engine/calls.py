"""What an action gets that uses an engine: requests to its server, for as long as the action runs."""

from __future__ import annotations

import asyncio
import posixpath
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast
from urllib.parse import unquote

import httpx

from arl_tangram.errors import EvictedServiceError, ServiceLostError, UsageError
from arl_tangram.services.engine.driver import Engine
from arl_tangram.services.engine.remote import Door, RefusedFault, RemoteFault
from arl_tangram.services.own_loop import OwnLoop
from arl_tangram.services.servers.answers import aborted

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
_BUSY = frozenset({408, 425, 429})
_ABORTS, _ABORT_PAUSE_S = 30, 1.0


class Requests(Protocol):
    """How one kind of server takes requests."""

    def refuses(self, path: str) -> bool:
        """Whether a route is for us alone, as it changes the state of the engine."""
        ...

    def labelled(self, body: dict[str, Any], label: str) -> dict[str, Any]:
        """Return the body with a label by which `abort` finds the request, unless it has one."""
        ...

    async def abort(self, body: Mapping[str, Any]) -> bool:
        """Ask the server to end a request soon, which it then answers; False if closing its connection does that."""
        ...


class EngineService:
    """An engine in the hands of one action: the `Service` protocol over HTTP.

    Args:
        name: of the service.
        dop: on how many devices it is.
        devices: their names, as torch has them.
        model: what the server calls its model; filled in where a request does not say.
        engine: counts the calls.
        door: the connections to the server.
        requests: how the server takes them.
        limit_s: how long a call may take.
    """

    def __init__(
        self,
        name: str,
        *,
        dop: int,
        devices: tuple[str, ...],
        model: str | None,
        engine: Engine,
        door: Door,
        requests: Requests,
        limit_s: float,
    ) -> None:
        self._name = name
        self._dop = dop
        self._devices = devices
        self._model = model
        self._engine = engine
        self._door = door
        self._requests = requests
        self._limit_s = limit_s
        self._has_ended = False
        self._loop = OwnLoop(name)

    @property
    def name(self) -> str:
        """The name that it was declared with."""
        return self._name

    @property
    def dop(self) -> int:
        """On how many devices it is."""
        return self._dop

    @property
    def devices(self) -> tuple[str, ...]:
        """Its devices, as torch calls them."""
        return self._devices

    @property
    def url(self) -> str:
        """Where its server listens, for clients of your own; none of their requests may outlive the action."""
        return self._door.url

    @property
    def model(self) -> str | None:
        """What the server calls its model."""
        return self._model

    async def call(self, *args: Any, **options: Any) -> Any:
        """Send a request and return its answer, read as JSON.

        One of:

        - `call("Once upon a time", max_tokens=20)`: a completion of the text;
        - `call([{"role": "user", "content": "…"}], temperature=0)`: a chat completion;
        - `call("/v1/embeddings", {"input": "…"})`: any route of the server; the options are added to the body.

        Cancelling gives up the answer, and has the server end the request.

        Raises:
            ServiceLostError: the server died, answered that it failed or is too busy, did not answer in time, or cut
                the answer off (its reason to finish is `abort`).
            EvictedServiceError: the action that had it has ended.
            WrongLoopError: another event loop runs here than that of the action.
            UsageError: a request that makes no sense, here or, by status 4xx, to the server.
        """
        self._loop.check()
        if self._has_ended:
            raise EvictedServiceError(f"{self._name}: the action that had this service has ended")
        path, body = self._request(args, options)
        body = self._requests.labelled(body, f"arl_tangram-{secrets.token_hex(8)}")
        self._engine.enter()
        sending = self._engine.spawn(self._door.post(path, body))
        sending.add_done_callback(lambda _: self._engine.leave())
        try:
            done, _ = await asyncio.wait([sending], timeout=self._limit_s)
        except asyncio.CancelledError:
            self._abandon(sending, body)
            raise
        if not done:
            self._abandon(sending, body)
            raise ServiceLostError(f"{self._name}: its engine did not answer {path} within {self._limit_s:g} s")
        return await self._answer(path, sending)

    def end(self) -> None:
        """The action has ended: this is of no use any more."""
        self._has_ended = True

    def _request(self, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        match args:
            case [str(path)] if path.startswith("/"):
                body: dict[str, Any] = options
            case [str(path), Mapping()] if path.startswith("/"):
                body = {**cast("Mapping[str, Any]", args[1]), **options}
            case [str(prompt)]:
                path, body = COMPLETIONS, {"prompt": prompt, **options}
            case [[*messages]]:
                path, body = CHAT, {"messages": messages, **options}
            case _:
                raise UsageError(
                    f"{self._name}: call() takes a prompt, a list of messages, or a path that begins with '/' and a "
                    f"mapping, not {_kinds(args)}"
                )
        if self._requests.refuses(_as_served(path)):
            raise UsageError(f"{self._name}: {path} is for the scheduler alone")
        if path.startswith("//"):  # what follows would be taken for a host, and only the rest be asked for
            raise UsageError(f"{self._name}: {path!r:.100} is no path: it begins with more than one '/'")
        if body.get("stream"):
            raise UsageError(
                f"{self._name}: call() returns whole answers; for streams use a client of your own on `url`"
            )
        if self._model is not None:
            body = {"model": self._model, **body}
        return path, body

    def _abandon(self, sending: asyncio.Task[Any], body: Mapping[str, Any]) -> None:
        self._engine.begin(self._end_request(sending, body))

    async def _end_request(self, sending: asyncio.Task[Any], body: Mapping[str, Any]) -> None:
        # More than once: it may be on its way there, and be older than the first abort.
        for _ in range(_ABORTS):
            if not await self._requests.abort(body):
                break
            await asyncio.wait([sending], timeout=_ABORT_PAUSE_S)
            if sending.done():
                break
        sending.cancel()
        await asyncio.wait([sending])
        if not sending.cancelled():
            sending.exception()  # nobody is interested any more

    async def _answer(self, path: str, sending: asyncio.Task[Any]) -> Any:
        if sending.cancelled():
            raise ServiceLostError(f"{self._name}: its pool was closed")
        try:
            answer: object = sending.result()
        except httpx.InvalidURL as error:
            raise UsageError(f"{self._name}: {path!r:.100} is no path: {error}") from error
        except RefusedFault as fault:
            if 400 <= fault.status < 500 and fault.status not in _BUSY:
                raise UsageError(f"{self._name}: {fault}") from fault
            await asyncio.wait([self._engine.suspect()])  # so that nobody follows who could not be served, either
            raise ServiceLostError(f"{self._name}: {fault}") from fault
        except RemoteFault as fault:
            await asyncio.wait([self._engine.suspect()])
            raise ServiceLostError(f"{self._name}: its engine gave no answer: {fault}") from fault
        if aborted(answer):
            raise ServiceLostError(f"{self._name}: its engine cut the answer of {path} off (finish_reason 'abort')")
        return answer


def _as_served(path: str) -> str:
    """Return which route of the server a path leads to, however it is written."""
    return posixpath.normpath("/" + unquote(path.partition("?")[0].partition("#")[0]).lstrip("/"))


def _kinds(args: Sequence[object]) -> str:
    return ", ".join(type(each).__name__ for each in args) or "nothing"
