"""The search API as the demo's runs see it: started, called, counted and stopped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import httpx

CALLS = 6
"""Calls that the API answers per `PERIOD_S`."""
PERIOD_S = 1.0
"""Seconds of the API's window."""
CONCURRENCY = 4
"""Calls that a run keeps in flight at most."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The API's 429.

    Attributes:
        retry_after_s: seconds after which it may be asked again.
    """

    retry_after_s: float


@dataclass(frozen=True, slots=True)
class SearchApi:
    """A client of the running server."""

    client: httpx.AsyncClient

    async def search(self, query: str) -> list[str] | Refused:
        """Ask once."""
        answer = await self.client.get("/search", params={"q": query})
        if answer.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            return Refused(float(answer.headers["Retry-After"]))
        hits: list[str] = answer.raise_for_status().json()["hits"]
        return hits

    async def refused(self) -> int:
        """Return how many calls the server has answered with 429 since it started."""
        counts: dict[str, int] = (await self.client.get("/counts")).raise_for_status().json()
        return counts["refused"]


@contextmanager
def search_server(docs: Path, *, calls: int = CALLS, period_s: float = PERIOD_S) -> Generator[str, None, None]:
    """Run the server as a process of its own and yield its address.

    It has its own session, so that a Ctrl-C in the terminal reaches it only through us, and it ends
    when its standard input does, even if this process is killed.

    Raises:
        ChildProcessError: it did not start.
    """
    program = Path(__file__).with_name("search_server.py")
    options = ["--calls", str(calls), "--period-s", str(period_s), "--docs", str(docs)]
    with subprocess.Popen(
        [sys.executable, "-P", str(program), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise ChildProcessError(f"the search server did not start (exit code {process.wait()})")
            yield f"http://127.0.0.1:{port.decode()}"
        finally:
            process.stdin.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()


@asynccontextmanager
async def search_api(address: str) -> AsyncGenerator[SearchApi, None]:
    """Open a client; loopback needs no proxy, whatever the environment says."""
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=30) as client:
        yield SearchApi(client)
