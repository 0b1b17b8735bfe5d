"""A rate-limited API: a quota keeps to the limit; where the limit was guessed wrong, `retry_after` obeys the server.

The server is a real HTTP server on loopback. It answers 5 calls per 0.4 s and refuses the others with 429.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

import arl_tangram as tangram

CALLS, WINDOW_S, RETRY_AFTER_S = 5, 0.4, 1


class Server(ThreadingHTTPServer):
    """Answers at most `CALLS` requests within any `WINDOW_S` seconds."""

    refused = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.answered: deque[float] = deque()

    def admit(self) -> bool:
        with self.lock:
            now = time.monotonic()
            while self.answered and self.answered[0] <= now - WINDOW_S:
                self.answered.popleft()
            if len(self.answered) < CALLS:
                self.answered.append(now)
                return True
            self.refused += 1
            return False


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # the name that http.server looks for
        assert isinstance(self.server, Server)
        admitted = self.server.admit()
        body = b"three hits" if admitted else b"slow down"
        self.send_response(200 if admitted else 429)
        if not admitted:
            self.send_header("Retry-After", str(RETRY_AFTER_S))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay silent."""


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@tangram.action(quota={"search": 1}, timeout=30)
async def ask(client: httpx.AsyncClient, query: str) -> str | None:
    """Ask once; None means refused, and then nobody asks again before the server said so."""
    answer = await client.get("/search", params={"q": query})
    if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
        tangram.current_quota("search").retry_after(answer.headers["Retry-After"])
        return None
    return answer.raise_for_status().text


async def search(client: httpx.AsyncClient, query: str) -> str:
    while (hits := await ask(client, query)) is None:
        pass  # the next call waits in the queue until the pause is over
    return hits


async def run_with(quota: tangram.Quota) -> None:
    with serving() as server:
        async with (
            tangram.Tangram(quota),
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.server_port}", trust_env=False) as client,
        ):
            start_s = time.monotonic()
            hits = await asyncio.gather(*(search(client, f"query {i}") for i in range(12)))
            took_s = time.monotonic() - start_s
    assert took_s >= RETRY_AFTER_S or server.refused == 0
    print(f"{len(hits)} answers; some were refused on the way: {server.refused > 0}")


async def main() -> None:
    print("a quota like the server's, its period longer, because calls arrive a little after they start:")
    await run_with(tangram.Quota("search", calls=CALLS, period_s=2 * WINDOW_S, concurrency=3))
    print("a quota that allows too much:")
    await run_with(tangram.Quota("search", calls=100, period_s=1, concurrency=12))


asyncio.run(main())
