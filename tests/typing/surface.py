"""Pin what an editor shows to someone who uses arl_tangram: mypy and pyright check this file, nothing runs it.

A line that must be an error carries the two checkers' ignore comments; both report an ignore that is not needed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any, assert_type

import arl_tangram as tangram

# --- declaring: the user's signature is kept ----------------------------------------------------------------------


@tangram.action(cpu=tangram.Elastic(1, 8), timeout=600)
async def run_tests(target: str, *, verbose: bool = False) -> bool:
    box = tangram.current_sandbox()
    done = await box.exec(["python", "-m", "pytest", target], timeout=5)
    assert_type(done.exit_code, int)
    assert_type(done.stdout, bytes)
    return done.exit_code == 0 or verbose


@tangram.action(quota={"search": 1})
async def search(query: str) -> list[str]:
    tangram.current_quota("search").retry_after(1)
    return [query]


@tangram.action(service="judge")
async def judge(answer: str) -> float:
    service = tangram.current_service()
    assert_type(service, tangram.Service)
    assert_type(tangram.current_allocation().devices, tuple[str, ...])
    return float(await service.call(answer))


@tangram.action(gpu=tangram.Elastic(1, 4), isolate="process")
def embedded(texts: list[str]) -> list[float]:
    return [0.0 for _ in texts]


async def with_gpus() -> None:
    pool = tangram.GpuPool(
        tangram.TorchService("judge", load=lambda: None, dops=(1, 2)),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        tangram.VllmService("teacher", url="http://127.0.0.1:8000", gpu_gib=40),
        devices=["cpu:0:4GiB"],
    )
    async with tangram.Tangram(tangram.LocalPool(), pool, tangram.Quota("search", calls=1, period_s=1)) as tg:
        async with tg.lend(["cuda:0"]):
            assert_type(await tg.run(judge, "…"), float)
        assert_type(tg.statistics().services["judge"].hit_rate, float)


@tangram.action(cpu=1, isolate="thread")
def exact_match(answer: str, truth: str) -> float:
    return float(answer == truth)


@tangram.action(cpu=1, memory_gib=1, timeout=10, isolate="process")
def graded(answer: str) -> dict[str, float]:
    return {answer: 1.0}


@tangram.action(idempotent=True, retries=2, retry_on=(tangram.InfrastructureError, ConnectionError))
async def page(address: str) -> bytes:
    quota = tangram.current_quota("search")
    assert_type(quota.key, str | None)
    quota.failed()
    quota.succeeded()
    return address.encode()


@tangram.action(cpu=tangram.Elastic(1, 8, resizable=True), preemptible=False)
async def build() -> int:
    assert_type(tangram.current_allocation().max_units, int)
    return tangram.current_allocation().max_units


@tangram.action()
async def nothing() -> None: ...


class Agent:
    @tangram.action(cpu=1)
    async def act(self, observation: str) -> int:
        return len(observation)

    @staticmethod
    @tangram.action(cpu=1)
    async def look(path: str) -> bytes:
        return path.encode()


# --- calling ------------------------------------------------------------------------------------------------------


async def direct_calls() -> None:
    assert_type(await run_tests("tests/"), bool)
    assert_type(await run_tests("tests/", verbose=True), bool)
    assert_type(await exact_match("a", "b"), float)  # a plain function is awaited, too
    assert_type(await graded("a"), dict[str, float])
    assert_type(graded.body("a"), dict[str, float])
    assert_type(await search("slots"), list[str])
    assert_type(await Agent().act("x"), int)
    assert_type(await Agent.look("x"), bytes)
    await run_tests(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await run_tests()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await run_tests("t", quiet=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await Agent().act(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def calls_by_run() -> None:
    assert_type(await tangram.run(run_tests, "tests/", verbose=True), bool)
    assert_type(await tangram.run(exact_match, "a", "b"), float)
    assert_type(await tangram.run(Agent().act, "x"), int)
    await tangram.run(run_tests, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await tangram.run(search)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def calls_by_map(lines: AsyncIterator[str]) -> None:
    assert_type(await tangram.map(search, ["a", "b"]), list[list[str]])
    assert_type(await tangram.map(search, lines), list[list[str]])
    await tangram.map(search, [1, 2])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def an_action_is_a_coroutine_function() -> None:
    scores = await asyncio.gather(exact_match("a", "b"), search("c"))
    assert_type(scores, tuple[float, list[str]])
    assert inspect.iscoroutinefunction(search)


# --- what a decorated function carries ----------------------------------------------------------------------------


async def attributes() -> None:
    assert_type(exact_match.body("a", "b"), float)
    assert_type(await run_tests.body("tests/"), bool)
    assert_type(await run_tests.with_options(timeout=5)("tests/"), bool)
    assert_type(search.__name__, str)
    assert_type(await page.with_options(idempotent=True, retries=3, retry_on=OSError)("a"), bytes)
    page.with_options(retries="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    run_tests.with_options(timeout="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(await build.with_options(preemptible=True)(), int)
    build.with_options(preemptible="no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    run_tests.with_options(cores=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def refused_declarations() -> None:
    tangram.action(cpu="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tangram.action(cores=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    tangram.action(retries=1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tangram.action(retry_on="OSError")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tangram.action(retry_on=(OSError, 3))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tangram.Quota("a", breaker=tangram.Breaker(failures="5"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tangram.action(isolate="container")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tangram.Elastic(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# --- the runtime --------------------------------------------------------------------------------------------------


async def runtime(tasks: list[str]) -> None:
    async with tangram.Tangram(tangram.LocalPool(), tangram.Quota("search", calls=10, period_s=1)) as tg:
        assert_type(tg, tangram.Tangram)
        assert_type(await tg.run(search, "x"), list[str])
        assert_type(tg.report(), str)
        async with tangram.trajectory():
            assert_type(await run_tests("x"), bool)
    tangram.Tangram(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def runtime_without_a_loop() -> None:
    with tangram.Tangram() as tg, tangram.trajectory():
        assert_type(tg, tangram.Tangram)
        assert_type(tangram.run_sync(exact_match, "a", "b"), float)
        assert_type(tangram.run_sync(Agent().act, "x"), int)
        assert_type(tg.run_sync(search, "x"), list[str])
        assert_type(tg.wait(search("x")), list[str])
        tangram.run_sync(search)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def any_is_not_what_comes_back(value: Any) -> None:
    # assert_type would accept Any nowhere above; this line shows that it is told apart.
    assert_type(value, int)  # type: ignore[assert-type]  # pyright: ignore[reportAssertTypeFailure]
