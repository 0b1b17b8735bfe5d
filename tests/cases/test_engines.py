"""Engines that sleep and wake: faults that others met, against stand-ins for vLLM 0.33.0 and SGLang 0.5.23."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from arl_tangram.errors import ConfigurationError, RestoreError, ServiceLostError
from hosted_engine import declare, hosting, until
from standin_engines import StandIn, StandInSglang, StandInVllm

KINDS = [StandInVllm, StandInSglang]
CONTROL = {
    StandInVllm: ("/sleep", "/wake_up"),
    StandInSglang: ("/release_memory_occupation", "/resume_memory_occupation"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_case_106_calls_to_an_engine_that_sleeps_share_one_wake(kind: type[StandIn]) -> None:
    async with kind() as server, hosting(declare(server)) as engine:
        with pytest.raises(ServiceLostError, match="asleep, not awake"):  # none reaches it before
            await engine.ask("too early")

        async def action(number: int) -> str:
            await engine.restore()
            answer = await engine.ask(f"question {number}")
            return str(answer["choices"][0]["text"])

        server.log.clear()
        answers = await asyncio.gather(*(action(number) for number in range(32)))
        assert len(set(answers)) == 32
        assert server.calls(*CONTROL[kind]) == [CONTROL[kind][1]]
        assert not server.is_dead


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", ["awake", "asleep"])
async def test_case_108_sleeps_and_wakes_in_any_order_alternate_at_the_server(kind: type[StandIn], first: str) -> None:
    async with kind() as server, hosting(declare(server)) as engine:
        for order in sorted(set(itertools.permutations(["restore", "restore", "restore", "evict"]))):
            await (engine.restore() if first == "awake" else engine.evict())
            server.log.clear()
            await asyncio.gather(*(getattr(engine, wish)() for wish in order))
            told = server.calls(*CONTROL[kind])
            assert all(a != b for a, b in itertools.pairwise(told))
            if order[-1] == "restore":
                await engine.ask("Hello")
            else:
                assert server.used_bytes == server.asleep_bytes
        assert not server.is_dead


async def test_case_108_a_wake_of_some_tags_only_counts_as_asleep() -> None:
    async with StandInVllm() as server, hosting(declare(server, level=2)) as engine:
        server.faults.dies_at = "/collective_rpc"
        with pytest.raises(RestoreError):
            await engine.restore()
        with pytest.raises(ServiceLostError, match="not awake"):
            await engine.ask("Hello")


@pytest.mark.parametrize("kind", KINDS)
async def test_case_112_the_answer_is_the_same_before_and_after(kind: type[StandIn]) -> None:
    async with kind() as server, hosting(declare(server)) as engine:
        await engine.restore()
        before = await engine.ask("Hello")
        for _ in range(3):
            await engine.evict()
            await engine.restore()
            after = await engine.ask("Hello")
            assert after["choices"] == before["choices"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["other_weights", "rubbish"])
async def test_case_112_what_comes_back_changed_is_used_by_nobody(kind: type[StandIn], fault: str) -> None:
    async with kind() as server, hosting(declare(server)) as engine:
        setattr(server.faults, fault, True)
        with pytest.raises(RestoreError, match="as it did before"):
            await engine.restore()
        with pytest.raises(ServiceLostError, match="not awake"):
            await engine.ask("Hello")
        assert server.used_bytes == server.asleep_bytes


async def test_case_112_weights_that_nobody_kept_are_found_out() -> None:
    async with StandInSglang(backup=False) as server, hosting(declare(server)) as engine:
        with pytest.raises(RestoreError, match="as it did before"):
            await engine.restore()


async def test_case_112_a_server_that_keeps_nothing_back_is_not_taken() -> None:
    async with StandInSglang(saver=False) as server:
        with pytest.raises(ConfigurationError, match="--enable-memory-saver"):
            async with hosting(declare(server)):
                pass


@pytest.mark.parametrize("kind", KINDS)
async def test_case_120_a_swap_waits_for_the_requests_that_are_on_their_way(kind: type[StandIn]) -> None:
    async with kind() as server, kind() as other:
        a, b = declare(server), declare(other)
        async with hosting(a) as first, hosting(b) as second:
            await first.restore()
            server.faults.call_s = 0.5
            asking = asyncio.ensure_future(first.ask("a long one"))
            await until(lambda: server.running == 1)
            begin = time.monotonic()
            await first.evict()  # room for the other one
            assert time.monotonic() - begin >= 0.3
            assert (await asking)["choices"][0]["finish_reason"] == "length"
            await second.restore()
            await second.ask("Hello")
        assert not server.is_dead
