"""`QuotaTransport` with a real HTTP server on loopback, and its clock."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

import arl_tangram as tangram
from arl_tangram import (
    BackendDownError,
    Breaker,
    ConfigurationError,
    DefinitionError,
    InfeasibleError,
    NoRuntimeError,
    QueueTimeout,
    Quota,
    Tangram,
)
from arl_tangram.integrations.httpx import QuotaTransport
from arl_tangram.testing import assert_idle


def now_s() -> float:
    return asyncio.get_running_loop().time()


class Server:
    """Answers with what it was told to, and counts.

    Attributes:
        answers: statuses and headers of the next answers; 200 when there are none, 0 for a connection that breaks.
        at_s: when requests came in.
        keys: their `Authorization`.
        most: how many were answered at once at most.
        hold: what an answer waits for between its two chunks.
    """

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.at_s: list[float] = []
        self.keys: list[str | None] = []
        self.most = 0
        self.open = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.address = ""
        self._handlers: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(request.decode(), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._handlers.discard(task)
            writer.close()

    async def _answer(self, request: str, writer: asyncio.StreamWriter) -> None:
        fields = dict(line.split(": ", 1) for line in request.split("\r\n")[1:] if ": " in line)
        self.at_s.append(now_s())
        self.keys.append(fields.get("Authorization"))
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            status, headers = self.answers.pop(0) if self.answers else (200, {})
            if status == 0:
                writer.close()
                raise ConnectionResetError
            lines = [f"HTTP/1.1 {status} Told", *(f"{name}: {value}" for name, value in headers.items())]
            body = json.dumps({"usage": {"total_tokens": 30}}).encode()
            writer.write("\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode())
            for chunk in (body[:5], body[5:]):
                writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                await writer.drain()
                await self.hold.wait()
        finally:
            self.open -= 1
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def aclose(self) -> None:
        for handler in list(self._handlers):
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)


def address_of(listening: asyncio.Server) -> str:
    return f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server.connected, "127.0.0.1", 0)
    server.address = address_of(listening)
    try:
        yield server
    finally:
        listening.close()
        await server.aclose()
        await listening.wait_closed()


def client_of(server: Server, transport: httpx.AsyncBaseTransport) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=transport, base_url=server.address, trust_env=False, timeout=10)


def usage(response: httpx.Response) -> float:
    tokens: float = response.json()["usage"]["total_tokens"]
    return tokens


def used(tg: Tangram, dimension: str) -> float:
    return tg.statistics().dimensions[f"quota:api/{dimension}"].used


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not claim():  # noqa: ASYNC110 - what is claimed is no event of the test's own
            await asyncio.sleep(0.001)


async def test_requests_outside_of_actions_wait_for_the_quota() -> None:
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api")) as client,
        Tangram(Quota("api", calls=30, period_s=60, concurrency=3)) as tg,
    ):
        answers = await asyncio.gather(*(client.get("/") for _ in range(30)))
        assert [answer.status_code for answer in answers] == [200] * 30
        assert server.most <= 3
        assert (used(tg, "calls"), used(tg, "concurrency")) == (30, 0)
        assert "request(api)" in tg.report()
        assert_idle(tg)


async def test_a_streamed_response_holds_its_slot_until_it_is_closed() -> None:
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api")) as client,
        Tangram(Quota("api", concurrency=1)) as tg,
    ):
        server.hold.clear()
        async with client.stream("GET", "/") as response:
            chunks = response.aiter_raw()
            assert await anext(chunks) == b'{"usa'
            second = asyncio.create_task(client.get("/"))
            await asyncio.sleep(0.05)
            assert (len(server.at_s), used(tg, "concurrency"), tg.statistics().waiting) == (1, 1, 1)
            server.hold.set()
            await chunks.aclose()
        assert (await second).status_code == 200
        assert len(server.at_s) == 2
        assert_idle(tg)


async def test_429_with_retry_after_pauses_everybody_and_is_not_sent_again() -> None:
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api")) as client,
        Tangram(Quota("api", concurrency=5)) as tg,
    ):
        server.answers.append((429, {"Retry-After": "1"}))
        assert (await client.get("/")).status_code == 429
        assert (await client.get("/")).status_code == 200
        assert len(server.at_s) == 2
        assert 0.99 <= server.at_s[1] - server.at_s[0] < 5
        assert_idle(tg)


@pytest.mark.parametrize(
    ("status", "headers", "pause_s"),
    [
        (429, {"Retry-After": "0"}, 0),
        (429, {}, 0.3),
        (429, {"Retry-After": "soon"}, 0.3),
        (429, {"retry-after-ms": "400"}, 0.4),
        (503, {"Retry-After-Ms": "400"}, 0.4),
        (503, {}, 0),
        (500, {"Retry-After": "60"}, 0),
        (200, {"Retry-After": "60"}, 0),
    ],
)
async def test_what_an_answer_does_to_those_that_follow(status: int, headers: dict[str, str], pause_s: float) -> None:
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api", pause_s=0.3)) as client,
        Tangram(Quota("api", concurrency=5)),
    ):
        server.answers.append((status, headers))
        assert (await client.get("/")).status_code == status
        await client.get("/")
        assert pause_s - 0.01 <= server.at_s[1] - server.at_s[0] < pause_s + 5


async def test_an_http_date_counts_from_the_clock_of_the_server() -> None:
    """The server is a year behind: 60 seconds are 60 seconds, capped by the quota at a third of one."""
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api")) as client,
        Tangram(Quota("api", concurrency=5, longest_pause_s=0.3)),
    ):
        its_now = datetime.now(UTC) - timedelta(days=365)
        date, until_ = (format_datetime(at, usegmt=True) for at in (its_now, its_now + timedelta(seconds=60)))
        server.answers.append((503, {"Date": date, "Retry-After": until_}))
        await client.get("/")
        await client.get("/")
        assert 0.29 <= server.at_s[1] - server.at_s[0] < 5


async def test_in_an_action_that_holds_the_quota_a_request_takes_nothing_and_reports() -> None:
    async with serving() as server, client_of(server, QuotaTransport("api")) as client:

        @tangram.action(quota={"api": 1})
        async def fetch() -> int:
            return (await client.get("/")).status_code

        async with Tangram(Quota("api", calls=10, period_s=60, concurrency=1)) as tg:
            server.answers.append((429, {"Retry-After": "1"}))
            assert await asyncio.wait_for(fetch(), 5) == 429
            assert await asyncio.wait_for(fetch(), 5) == 200
            assert server.at_s[1] - server.at_s[0] >= 0.99
            assert used(tg, "calls") == 2
            assert_idle(tg)


async def test_an_action_that_does_not_declare_the_quota_may_not_use_it() -> None:
    """Else it would wait for it while it holds all the rest."""
    async with serving() as server, client_of(server, QuotaTransport("api")) as client:

        @tangram.action(quota={"other": 1})
        async def fetch() -> int:
            return (await client.get("/")).status_code

        async with Tangram(Quota("api", concurrency=1), Quota("other", concurrency=1)) as tg:
            with pytest.raises(InfeasibleError, match=r"fetch holds no quota 'api'; declare it with quota="):
                await fetch()
            assert not server.at_s
            assert_idle(tg)


async def test_each_request_carries_the_key_that_it_took_and_a_pause_is_for_that_key() -> None:
    def authorize(request: httpx.Request, key: str) -> None:
        request.headers["Authorization"] = f"Bearer {key}"

    async with (
        serving() as server,
        client_of(server, QuotaTransport("api", authorize=authorize)) as client,
        Tangram(Quota("api", calls=10, period_s=60, keys=["k1", "k2"])) as tg,
    ):
        server.answers.append((429, {"Retry-After": "50"}))
        for _ in range(3):
            await client.get("/")
        assert server.keys == ["Bearer k1", "Bearer k2", "Bearer k2"]
        assert_idle(tg)


async def test_tokens_are_reserved_by_the_request_and_settled_by_the_response() -> None:
    def estimate(request: httpx.Request) -> float:
        return 10 * len(request.content)

    transport = QuotaTransport("api", tokens=estimate, used=usage)
    async with (
        serving() as server,
        client_of(server, transport) as client,
        Tangram(Quota("api", tokens=1000, period_s=60)) as tg,
    ):
        await client.post("/", content=b"x" * 80)
        assert used(tg, "tokens") == 30
        async with client.stream("POST", "/", content=b"x" * 80):
            pass
        assert used(tg, "tokens") == 830, "what was not read to its end is charged as it was reserved"
        with pytest.raises(InfeasibleError, match="1010 tokens; quota:api/tokens has 1000"):
            await client.post("/", content=b"x" * 101)
        assert_idle(tg)


async def test_a_request_that_was_never_sent_is_not_charged() -> None:
    async with serving() as server:
        address = server.address
    transport = QuotaTransport("api", tokens=5)
    async with (
        httpx.AsyncClient(transport=transport, base_url=address, trust_env=False) as client,
        Tangram(Quota("api", calls=1, tokens=5, period_s=60, total_calls=1)) as tg,
    ):
        for _ in range(3):
            with pytest.raises(httpx.ConnectError):
                await client.get("/")
        await until(lambda: not tg.statistics().running)
        assert (used(tg, "calls"), used(tg, "tokens"), used(tg, "calls/total")) == (0, 0, 0)
        assert_idle(tg)


async def test_a_request_that_fails_after_it_was_sent_is_charged() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    address = address_of(listening)
    async with (
        listening,
        httpx.AsyncClient(transport=QuotaTransport("api"), base_url=address, trust_env=False) as client,
        Tangram(Quota("api", calls=5, period_s=60, concurrency=1)) as tg,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/")
        await until(lambda: not tg.statistics().running)
        assert used(tg, "calls") == 1
        assert_idle(tg)


async def test_a_cancelled_request_holds_nothing_any_more() -> None:
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api")) as client,
        Tangram(Quota("api", concurrency=1)) as tg,
    ):
        server.hold.clear()
        sent = asyncio.create_task(client.get("/"))
        await until(lambda: len(server.at_s) == 1)
        waiting = asyncio.create_task(client.get("/"))
        await until(lambda: tg.statistics().waiting == 1)
        waiting.cancel()
        await until(lambda: tg.statistics().waiting == 0)
        sent.cancel()
        await until(lambda: tg.statistics().running == 0)
        results = await asyncio.gather(sent, waiting, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        server.hold.set()
        assert (await client.get("/")).status_code == 200
        assert_idle(tg)


@pytest.mark.parametrize("steps", range(12))
async def test_a_request_that_is_cancelled_at_any_turn_of_the_loop_leaves_nothing(steps: int) -> None:
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api")) as client,
        Tangram(Quota("api", concurrency=1)) as tg,
    ):
        request = asyncio.create_task(client.get("/"))
        for _ in range(steps):
            await asyncio.sleep(0)
        request.cancel()
        await asyncio.wait([request])
        await until(lambda: not tg.statistics().running and not tg.statistics().waiting)
        assert (await client.get("/")).status_code == 200
        assert_idle(tg)


async def test_waiting_for_the_quota_has_a_limit_of_its_own() -> None:
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api", queue_timeout=0.1)) as client,
        Tangram(Quota("api", calls=1, period_s=60)) as tg,
    ):
        await client.get("/")
        with pytest.raises(QueueTimeout):
            await client.get("/")
        assert len(server.at_s) == 1
        assert_idle(tg)


async def test_closing_the_runtime_ends_those_that_wait_and_leaves_open_responses_readable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server, client_of(server, QuotaTransport("api", used=usage)) as client:
        server.hold.clear()
        async with Tangram(Quota("api", concurrency=1)) as tg:
            response = await client.send(client.build_request("GET", "/"), stream=True)
            waiting = asyncio.create_task(client.get("/"))
            await until(lambda: tg.statistics().waiting == 1)
        with pytest.raises(tangram.ShutdownError):
            await waiting
        server.hold.set()
        assert json.loads(await response.aread())["usage"]
        await response.aclose()
        del response, waiting
        gc.collect()  # an exception that nobody retrieved would be told now
        assert not caplog.records


async def test_what_is_missing_is_said() -> None:
    async with serving() as server, client_of(server, QuotaTransport("api")) as client:
        with pytest.raises(NoRuntimeError):
            await client.get("/")
        async with Tangram(Quota("other", concurrency=1)):
            with pytest.raises(InfeasibleError, match=r"request\(api\) asks for the quota 'api'.*only 'other'"):
                await client.get("/")
    for options, error in (
        ({"quota": "a/b"}, ConfigurationError),
        ({"quota": "api", "pause_s": 0}, ConfigurationError),
        ({"quota": "api", "tokens": -1}, DefinitionError),
        ({"quota": "api", "queue_timeout": 0}, DefinitionError),
    ):
        with pytest.raises(error):
            QuotaTransport(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("in_action", [False, True])
async def test_a_response_whose_content_is_there_already_holds_nothing(in_action: bool) -> None:
    """Transports that keep or make up answers return them read: nobody closes what there is nothing to read from."""
    kept = httpx.MockTransport(lambda _: httpx.Response(200, json={"usage": {"total_tokens": 30}}))

    @tangram.action(quota={"api": tangram.QuotaUse(tokens=100)})
    async def fetch() -> httpx.Response:
        return await client.get("/")

    async with (
        httpx.AsyncClient(
            transport=QuotaTransport("api", kept, tokens=100, used=usage), base_url="http://api"
        ) as client,
        Tangram(Quota("api", concurrency=1, tokens=1000, period_s=60, breaker=Breaker(2, 60))) as tg,
    ):
        for _ in range(3):
            answer = await asyncio.wait_for(fetch() if in_action else client.get("/"), 10)
            assert usage(answer) == 30
            assert_idle(tg)
        assert used(tg, "tokens") == (300 if in_action else 90)


# What the breaker is told.

FAILURE, SUCCESS, NEITHER = "failure", "success", "neither"


async def told(server: Server, client: httpx.AsyncClient, tg: Tangram, call: Callable[[], Awaitable[object]]) -> str:
    """Return what a call was for a breaker that opens at the second failure in a row."""
    assert tg.statistics().breakers == {"api": "closed"}
    answers, server.answers = server.answers, [(500, {})]
    await client.get("/")
    server.answers = answers
    with suppress(httpx.HTTPError):
        await call()
    if tg.statistics().breakers["api"] == "open":
        return FAILURE
    server.answers = [(500, {})]
    await client.get("/")
    return NEITHER if tg.statistics().breakers["api"] == "open" else SUCCESS


@pytest.mark.parametrize("in_action", [False, True])
@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (200, {}, SUCCESS),
        (301, {}, SUCCESS),
        (404, {}, SUCCESS),
        (429, {}, NEITHER),
        (429, {"Retry-After": "0"}, NEITHER),
        (500, {}, FAILURE),
        (503, {"Retry-After": "0"}, FAILURE),
        (599, {}, FAILURE),
        (0, {}, FAILURE),
    ],
)
async def test_what_an_answer_is_for_the_breaker(
    status: int, headers: dict[str, str], expected: str, in_action: bool
) -> None:
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api", pause_s=0.01)) as client,
        Tangram(Quota("api", concurrency=2, breaker=Breaker(2, 60))) as tg,
    ):

        @tangram.action(quota={"api": 1})
        async def fetch() -> None:
            (await client.get("/")).raise_for_status()  # the answer counts, and not what the body makes of it

        async def get() -> None:
            await client.get("/")

        server.answers = [(status, headers)]
        assert await told(server, client, tg, fetch if in_action else get) == expected
        await until(lambda: not tg.statistics().running)
        assert_idle(tg)


async def test_a_connection_that_is_refused_is_a_failure_and_an_impossible_request_is_not() -> None:
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api")) as client,
        Tangram(Quota("api", breaker=Breaker(2, 60))) as tg,
    ):
        assert await told(server, client, tg, lambda: client.get("ftp://127.0.0.1/")) == NEITHER
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api")) as client,
        Tangram(Quota("api", breaker=Breaker(2, 60))) as tg,
    ):
        assert await told(server, client, tg, lambda: client.get("http://127.0.0.1:1/")) == FAILURE
        await until(lambda: not tg.statistics().running)
        assert_idle(tg)


async def test_an_answer_that_breaks_off_is_a_failure() -> None:
    async def breaks_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 Told\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(breaks_off, "127.0.0.1", 0)
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api")) as client,
        Tangram(Quota("api", concurrency=1, breaker=Breaker(2, 60))) as tg,
    ):
        assert await told(server, client, tg, lambda: client.get(address_of(listening))) == FAILURE
        assert_idle(tg)
    listening.close()
    await listening.wait_closed()


async def test_a_request_that_is_cancelled_says_nothing() -> None:
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api")) as client,
        Tangram(Quota("api", concurrency=2, breaker=Breaker(2, 60))) as tg,
    ):

        async def cancelled() -> None:
            server.hold.clear()
            request = asyncio.create_task(client.get("/"))
            await until(lambda: server.open == 1)
            request.cancel()
            await asyncio.wait([request])
            server.hold.set()

        assert await told(server, client, tg, cancelled) == NEITHER
        assert_idle(tg)


async def test_a_server_that_fails_is_left_alone_and_asked_again() -> None:
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api")) as client,
        Tangram(Quota("api", concurrency=5, breaker=Breaker(3, 0.3))) as tg,
    ):
        server.answers = [(502, {})] * 4
        for _ in range(3):
            assert (await client.get("/")).status_code == 502
        answers = await asyncio.gather(*(client.get("/") for _ in range(9)), return_exceptions=True)
        (probe,) = [answer for answer in answers if isinstance(answer, httpx.Response)]
        assert probe.status_code == 502
        assert [type(answer) for answer in answers].count(BackendDownError) == 8
        assert len(server.at_s) == 4
        assert server.at_s[3] - server.at_s[2] >= 0.29
        with pytest.raises(BackendDownError):
            await client.get("/")
        await until(lambda: tg.statistics().breakers["api"] == "probing")
        answers = await asyncio.gather(*(client.get("/") for _ in range(9)))
        assert {answer.status_code for answer in answers} == {200}
        assert tg.statistics().breakers == {"api": "closed"}
        assert_idle(tg)


@pytest.mark.parametrize("in_action", [False, True])
async def test_case_38_a_request_whose_reply_was_lost_is_not_sent_again(in_action: bool) -> None:
    """What it did is done: whether it may be done again is said by who declares the action, not by the transport."""
    async with (
        serving() as server,
        client_of(server, QuotaTransport("api")) as client,
        Tangram(Quota("api", calls=50, period_s=600, concurrency=1)) as tg,
    ):

        @tangram.action(quota={"api": 1})
        async def fetch() -> None:
            await client.get("/")

        for answer in (0, 502):
            server.answers = [(answer, {})]
            with suppress(httpx.TransportError):
                await (fetch() if in_action else client.get("/"))
        assert len(server.at_s) == 2
        again = fetch.with_options(idempotent=True, retries=1, retry_on=httpx.TransportError)
        server.answers = [(0, {})]
        await again()
        assert len(server.at_s) == 4
        await until(lambda: not tg.statistics().running)
        assert used(tg, "calls") == 4
        assert_idle(tg)


async def test_case_104_requests_beyond_those_declared_are_charged_and_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server, client_of(server, QuotaTransport("api")) as client:

        @tangram.action(quota={"api": 1})
        async def fetch(pages: int) -> None:
            await asyncio.gather(*(client.get("/") for _ in range(pages)))

        async with Tangram(Quota("api", calls=50, period_s=600, concurrency=1)) as tg:
            await fetch(1)
            assert not caplog.records
            for _ in range(2):
                await fetch(20)
            assert used(tg, "calls") == 41
            (record,) = caplog.records
            assert "fetch sends more requests than the 1 calls of the quota 'api'" in record.getMessage()
            assert_idle(tg)


async def test_case_68_the_connections_of_many_requests_are_bounded_by_the_quota() -> None:
    """More calls than a client's pool would take without a `PoolTimeout`: they wait before they enter it."""
    inner = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=8))
    async with serving() as server:
        transport = QuotaTransport("api", inner)
        async with (
            httpx.AsyncClient(
                transport=transport, base_url=server.address, trust_env=False, timeout=httpx.Timeout(10, pool=0.05)
            ) as client,
            Tangram(Quota("api", concurrency=8)) as tg,
        ):
            answers = await asyncio.gather(*(client.get("/") for _ in range(300)))
            assert {answer.status_code for answer in answers} == {200}
            assert server.most <= 8
            assert_idle(tg)
