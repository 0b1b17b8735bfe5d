"""What comes before the first request to a server that is being started: its port, its command, its health."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from typing import Any, Protocol

import httpx

from arl_tangram.errors import RestoreError
from arl_tangram.uninterrupted import settled

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_ANSWER_LIMIT_S = 10.0
_CONNECT_LIMIT_S = 2.0
_SHOWN = 200


class Started(Protocol):
    """A server that was started."""

    @property
    def ended(self) -> asyncio.Future[int | None]:
        """Done when it has ended."""
        ...

    def tail(self) -> str:
        """Return the last lines that it printed."""
        ...


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port on which nothing listens now; what is started there later may still find it taken."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def filled(argv: Sequence[str], *, port: int, dop: int = 1) -> tuple[str, ...]:
    """Return a command with `{port}` and `{dop}` in its words replaced; other braces stay."""
    return tuple(word.replace("{port}", str(port)).replace("{dop}", str(dop)) for word in argv)


async def listens(url: str) -> bool:
    """Whether anything accepts connections where a URL leads."""
    place = httpx.URL(url)
    port = place.port or (443 if place.scheme == "https" else 80)
    try:
        async with asyncio.timeout(_CONNECT_LIMIT_S):
            _, writer = await asyncio.open_connection(place.host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def healthy(url: str, server: Started, *, name: str, limit_s: float) -> None:
    """Wait until a server that was just started answers a GET of this URL with success.

    A foreign server tells nobody when it is ready: it is asked again and again, and its end is heard of at once.

    Raises:
        RestoreError: it has ended, or the time is up; the message has the last lines that it printed.
    """
    seen = ["it was not asked"]
    # A task of its own: whoever waits may be one that cannot be cancelled, and in which no time limit would work.
    asking = asyncio.get_running_loop().create_task(_ask(url, seen))
    both: list[asyncio.Future[Any]] = [asking, server.ended]
    try:
        await asyncio.wait(both, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_healthy = asking.done() and not asking.cancelled()
        asking.cancel()
        await settled(asking)
    if server.ended.done():
        raise RestoreError(
            f"{name}: its server {_ended(server.ended.result())} before it was healthy{_printed(server)}"
        )
    if not is_healthy:
        raise RestoreError(f"{name}: {url} was not healthy after {limit_s:g} s ({seen[0]}){_printed(server)}")
    asking.result()


async def _ask(url: str, seen: list[str]) -> None:
    """Ask until the answer is good; keep in `seen` what came of it last."""
    pause_s = _FIRST_PAUSE_S
    async with httpx.AsyncClient(trust_env=False, timeout=_ANSWER_LIMIT_S) as client:
        while True:
            try:
                answer = await client.get(url)
            except httpx.HTTPError as error:
                seen[0] = f"{type(error).__name__} {error}".strip()
            else:
                if answer.is_success:
                    return
                seen[0] = f"it answered {answer.status_code}: {answer.text[:_SHOWN]}"
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)


def _ended(code: int | None) -> str:
    return "did not start, or was killed," if code is None else f"ended with exit code {code}"


def _printed(server: Started) -> str:
    return f"; the last that it printed: {text}" if (text := server.tail()) else ""
