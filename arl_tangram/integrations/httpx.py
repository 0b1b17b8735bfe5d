"""A transport for httpx that takes a quota for every request, and tells the scheduler when the server wants a pause.

Outside of actions, a request waits for its quota as an action of its own on the current runtime, and holds it until its
response is closed. In an action, which must hold the quota already, the request is part of it and takes nothing.
Nothing is sent twice: what to do with an answer of 429 is up to the caller; others wait meanwhile.

The quota's breaker is told of every request: an answer of 500 or more and a fault of the connection are failures; every
other answer is a success once its content has been read; 429, and what the client has done wrong itself, is neither.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from typing import cast

import httpx

from arl_tangram.action import AsyncAction, action
from arl_tangram.context import ActiveAction, Quota, active_var, current_quota
from arl_tangram.errors import ConfigurationError, NoActionError
from arl_tangram.managers.quota import QuotaHandle
from arl_tangram.managers.retry_after import asked_to_wait_s
from arl_tangram.model.cost import QuotaUse
from arl_tangram.model.quantities import quota_name, seconds

_logger = logging.getLogger(__name__)
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_OWN_FAULTS = (httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.LocalProtocolError)
_REMEMBERED_ACTIONS = 256


class QuotaTransport(httpx.AsyncBaseTransport):
    """Takes a quota of the current runtime around each request that another transport carries out.

    Waiting for the quota does not count towards the client's timeouts. An answer of 429, or of 503 with a
    `Retry-After`, pauses the quota, or the key of it that the request took.

    Args:
        quota: the name of the quota.
        transport: what carries out requests; `httpx.AsyncHTTPTransport()` by default. It is closed with this one.
        tokens: tokens that a request reserves, from 0, or a function of the request that returns them.
        used: a function that returns how many tokens a request used, or None if it does not say, given its response
            with its whole content. Without one, or if the content was not read to its end, what it reserved counts.
        authorize: a function that puts the key which a request took into the request, where the quota has keys.
        pause_s: seconds of pause after a 429 that does not say for how long, above 0.
        priority: lower first.
        queue_timeout: seconds that a request may wait for the quota, above 0; then `QueueTimeout`.

    Raises:
        ConfigurationError: a value that is not possible.
        DefinitionError: a value that no action could have.
    """

    def __init__(
        self,
        quota: str,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        tokens: float | Callable[[httpx.Request], float] = 0,
        used: Callable[[httpx.Response], float | None] | None = None,
        authorize: Callable[[httpx.Request, str], None] | None = None,
        pause_s: float = 1.0,
        priority: int = 0,
        queue_timeout: float | None = None,
    ) -> None:
        self._quota = quota_name(quota, "QuotaTransport", ConfigurationError)
        self._tokens = tokens
        self._used = used
        self._authorize = authorize
        self._pause_s = seconds(pause_s, "QuotaTransport(pause_s=)", ConfigurationError)
        self._priority = priority
        self._sent = _Sent()
        self._warned: set[str] = set()
        self._queue_timeout = queue_timeout
        self._action = lru_cache(maxsize=_REMEMBERED_ACTIONS)(self._declared)
        if not callable(tokens):
            self._action(tokens)  # so that what is wrong is said now
        self._transport = httpx.AsyncHTTPTransport() if transport is None else transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request when the quota allows.

        Cancelling takes back a request that waits. Of one that is on its way, the quota is free once that has ended.

        Raises:
            NoRuntimeError: there is no current runtime.
            InfeasibleError: the runtime has no such quota, or never enough of it; or this is in an action that does not
                declare the quota.
            QueueTimeout: it waited for longer than `queue_timeout`.
            BackendDownError: the quota's breaker lets nothing through, because what is behind it is down.
        """
        active = active_var.get()
        if active is not None and not active.ended:
            held = current_quota(
                self._quota
            )  # to wait for it here would be to hold all that the action holds meanwhile
            self._count(active, held)
            response = await self._send(request, held)
            self._report(response, held)
            return await _watched(response, _WatchedStream(response, held))
        hold = _Hold()
        await hold.begin(self._action(self._tokens(request) if callable(self._tokens) else self._tokens))
        try:
            response = await self._send(request, hold.quota)
            self._report(response, hold.quota)
        except BaseException as error:
            if isinstance(error, _NEVER_SENT):
                hold.settle(tokens=0, calls=0)
            hold.release()
            raise
        return await _watched(response, _HeldStream(response, hold, self._used))

    async def aclose(self) -> None:
        """Close the transport that carries out the requests."""
        await self._transport.aclose()

    async def _send(self, request: httpx.Request, quota: Quota) -> httpx.Response:
        if self._authorize is not None and quota.key is not None:
            self._authorize(request, quota.key)
        try:
            return await self._transport.handle_async_request(request)
        except httpx.TransportError as error:
            _blame(error, quota)
            raise

    def _count(self, active: ActiveAction, quota: Quota) -> None:
        """Charge an action for requests that it did not declare."""
        sent = self._sent.count(active)
        declared = active.allocation.quota[self._quota]
        if sent > declared:
            quota.settle(calls=sent)
            if active.name not in self._warned and len(self._warned) < _REMEMBERED_ACTIONS:
                self._warned.add(active.name)
                _logger.warning(
                    "%s sends more requests than the %g calls of the quota %r that it declares; they are charged, "
                    "but did not wait for it",
                    active.name,
                    declared,
                    self._quota,
                )

    def _report(self, response: httpx.Response, quota: Quota) -> None:
        """Pause the quota if the server says so, and tell its breaker of an error of the server."""
        if response.status_code in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
            wait_s = asked_to_wait_s(response.headers)
            if wait_s is None and response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
                wait_s = self._pause_s
            if wait_s is not None:
                quota.retry_after(wait_s)
        if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _tell(quota.failed)

    def _declared(self, tokens: float) -> AsyncAction[[_Hold], None]:
        """Return the action that a request of so many tokens waits as."""

        async def request(hold: _Hold) -> None:
            await hold.until_released(current_quota(self._quota))

        request.__qualname__ = f"request({self._quota})"
        return action(
            quota={self._quota: QuotaUse(calls=1, tokens=tokens)},
            priority=self._priority,
            queue_timeout=self._queue_timeout,
        )(request)


class _Sent:
    """How many requests each running action has sent."""

    def __init__(self) -> None:
        self._by_action: dict[int, tuple[ActiveAction, int]] = {}
        self._most = 64

    def count(self, active: ActiveAction) -> int:
        """Count one more; return how many there were."""
        if len(self._by_action) >= self._most:
            self._by_action = {i: entry for i, entry in self._by_action.items() if not entry[0].ended}
            self._most = 2 * len(self._by_action) + 64
        _, before = self._by_action.get(id(active), (active, 0))
        self._by_action[id(active)] = active, before + 1  # it keeps the action, so that its id stays its own
        return before + 1


class _Hold:
    """The quota that one request holds: an action that ends when it is released."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._granted: asyncio.Future[Quota] = loop.create_future()
        self._released: asyncio.Future[None] = loop.create_future()
        self._task: asyncio.Task[None] | None = None

    async def begin(self, request: AsyncAction[[_Hold], None]) -> None:
        """Wait until the quota is granted."""
        task = self._task = asyncio.get_running_loop().create_task(request(self))
        try:
            await asyncio.wait((task, self._granted), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not self._granted.done():
            await task  # raises why not
        # From now on it can only fail because the runtime closes, which the request itself does not mind.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def until_released(self, quota: Quota) -> None:
        """Hold the quota: the body of the action."""
        cast(QuotaHandle, quota).say(None)  # how the request goes is said by its response, not by this body's end
        self._granted.set_result(quota)
        await self._released

    @property
    def quota(self) -> Quota:
        """What the action holds."""
        return self._granted.result()

    def settle(self, *, tokens: float, calls: float | None = None) -> None:
        """Say what was used, if the action has not ended with the runtime."""
        if self._task is not None and not self._task.done() and not self._released.done():
            self.quota.settle(tokens=tokens, calls=calls)

    def release(self) -> None:
        """Let the action end."""
        if not self._released.done():
            self._released.set_result(None)

    async def end(self) -> None:
        """Let the action end, and wait until the quota is free."""
        self.release()
        if self._task is not None:
            await asyncio.wait((self._task,))


def _blame(error: httpx.TransportError, quota: Quota) -> None:
    """Tell the breaker of a fault of the connection; one of the client's own is neither a failure nor a success."""
    if isinstance(error, _OWN_FAULTS):
        cast(QuotaHandle, quota).say(None)
    else:
        _tell(quota.failed)


def _tell(say: Callable[[], None]) -> None:
    """Say something about a quota, if the action that holds it, or the runtime, has not ended meanwhile."""
    with suppress(NoActionError):
        say()


async def _watched(response: httpx.Response, stream: _WatchedStream) -> httpx.Response:
    """Return a response with another stream."""
    response.stream = stream
    if response.is_closed:  # such as from a cache: its content is here, and nobody will read or close the stream
        await stream.aclose()
    return response


class _WatchedStream(httpx.AsyncByteStream):
    """The content of a response; tells the breaker how its delivery went."""

    def __init__(self, response: httpx.Response, quota: Quota) -> None:
        self._stream = cast(httpx.AsyncByteStream, response.stream)
        self._status_code = response.status_code
        self._quota = quota
        self._told = response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                yield chunk
        except httpx.TransportError as error:
            if not self._told:
                self._told = True
                _blame(error, self._quota)
            raise
        except asyncio.CancelledError:
            self._told = True  # nobody waited for the end
            raise

    async def aclose(self) -> None:
        """Close the response."""
        if not self._told and self._status_code != HTTPStatus.TOO_MANY_REQUESTS:
            self._told = True
            _tell(self._quota.succeeded)
        await self._stream.aclose()


class _HeldStream(_WatchedStream):
    """The content of a response, which holds the quota until it is closed."""

    def __init__(
        self, response: httpx.Response, hold: _Hold, used: Callable[[httpx.Response], float | None] | None
    ) -> None:
        super().__init__(response, hold.quota)
        self._headers = response.headers
        self._hold = hold
        self._used = used
        self._complete = response.is_closed and response.is_stream_consumed
        self._content = [response.content] if self._complete else []

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in super().__aiter__():
            if self._used is not None:
                self._content.append(chunk)
            yield chunk
        self._complete = True

    async def aclose(self) -> None:
        """Close the response, settle what it used, and give the quota back."""
        try:
            await super().aclose()
            self._settle()
        finally:
            await self._hold.end()

    def _settle(self) -> None:
        used, self._used = self._used, None
        if used is None or not self._complete:
            return
        tokens = used(httpx.Response(self._status_code, headers=self._headers, content=b"".join(self._content)))
        if tokens is not None:
            self._hold.settle(tokens=tokens)
