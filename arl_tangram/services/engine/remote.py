"""What is asked of an engine's server, over HTTP, and what may come of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, Protocol, cast

import httpx

_CONNECT_LIMIT_S = 5.0
_LOOK_LIMIT_S = 10.0
# Servers close connections that were idle for 5 s (uvicorn's default, which vLLM and SGLang keep); one that is closed
# just as it is used again looks like a server that died.
_KEPT_IDLE_S = 2.0
_SHOWN = 400


class RemoteFault(Exception):
    """A server did not do what it was asked; base of the kinds below."""


class RefusedFault(RemoteFault):
    """It answered that it did not, or something that is no answer to the question.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class GoneFault(RemoteFault):
    """Nothing listens there any more, or the connection ended without an answer: the server is probably dead."""


class SilentFault(RemoteFault):
    """It could not be reached, or did not answer in time: the server may be busy, or the network may be down."""


class Seen(Enum):
    """What can be seen of a server from outside."""

    AWAKE = "awake"
    ASLEEP = "asleep"
    ALIVE = "alive"  # and whether it sleeps cannot be seen
    GONE = "gone"


class Remote(Protocol):
    """One kind of server, as its driver speaks to it. No call has a limit of its own unless it says so."""

    async def sleep(self) -> None:
        """Make it give up its memory; nobody uses it now, as far as we know.

        Raises:
            RemoteFault: it did not, or may not have.
        """
        ...

    async def wake(self) -> None:
        """Make it usable again; raises as `sleep` does."""
        ...

    async def look(self) -> Seen:
        """Find out what state it is in, without changing it, in bounded time; never raises."""
        ...


class Door:
    """The connections to one server, and how its answers are read.

    Args:
        url: of the server: scheme, host and port, and a path if it is not at the root.
        api_key: sent as a bearer token; None for none.
    """

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        self._client = httpx.AsyncClient(
            base_url=url,
            headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
            timeout=httpx.Timeout(None, connect=_CONNECT_LIMIT_S),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=_KEPT_IDLE_S),
            trust_env=False,  # a proxy of the environment is not for engines
            verify=url.startswith("https:"),
        )

    @property
    def url(self) -> str:
        """Where the server listens."""
        return str(self._client.base_url).rstrip("/")

    def lead_to(self, url: str) -> None:
        """Lead to where the server listens from now on."""
        self._client.base_url = url

    async def post(
        self, path: str, body: object = None, *, query: Mapping[str, str] | None = None, key: str | None = None
    ) -> Any:
        """Send a request and return its answer, read as JSON; None for an empty one.

        Args:
            path: on the server.
            body: sent as JSON, if it is not None.
            query: parameters in the URL.
            key: a bearer token for this request.

        Raises:
            RefusedFault: an answer that is no success, or no JSON.
            GoneFault: it has ended, as it seems.
            SilentFault: it cannot be reached.
        """
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return await self._ask("POST", path, json=body, params=query, headers=headers)

    async def get(self, path: str, *, limit_s: float = _LOOK_LIMIT_S) -> Any:
        """Ask for something in bounded time, once more if the connection breaks; raises as `post` does."""
        timeout = httpx.Timeout(limit_s, connect=_CONNECT_LIMIT_S)
        try:
            return await self._ask("GET", path, timeout=timeout)
        except GoneFault:
            return await self._ask("GET", path, timeout=timeout)

    async def _ask(self, method: str, path: str, **kwargs: Any) -> Any:
        try:
            response = await self._client.request(method, path, **kwargs)
        except httpx.HTTPError as error:
            broken = isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError)
            kind = GoneFault if broken or _was_refused(error) else SilentFault
            raise kind(f"{method} {path}: {_said(error)}") from error
        text = response.text
        if not response.is_success:
            status = response.status_code
            raise RefusedFault(f"{method} {path} was answered with {status}: {_short(text)}", status)
        if not text.strip():
            return None
        try:
            return json.loads(text)
        except ValueError:
            return text

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _was_refused(error: BaseException | None) -> bool:
    """Whether a machine answered that nothing listens there."""
    if isinstance(error, BaseExceptionGroup):  # one for each address of a name
        return all(_was_refused(each) for each in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    if error is None or isinstance(error, ConnectionRefusedError):
        return error is not None
    return _was_refused(error.__cause__ or error.__context__)


def _said(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
