"""Engines as services of a pool: actions that use them, over the whole library, against stand-ins on loopback.

The stand-ins follow vLLM 0.33.0 and SGLang 0.5.23 (standin_engines.py); real servers need GPUs.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import arl_tangram as tangram
from hosted_engine import declare
from standin_engines import GIB, StandIn, StandInSglang, StandInVllm

pytestmark = pytest.mark.timeout(60)


class Card:
    """One device that several stand-ins share; what is free on it can be measured."""

    def __init__(self, *servers: StandIn) -> None:
        self.servers = servers

    def free(self, _: str) -> int:
        return 16 * GIB - sum(server.used_bytes for server in self.servers)

    def service(self, name: str, server: StandIn, **options: Any) -> Any:
        given = {"name": name, "memory_of": self.free, "devices": [0], **options}
        return declare(server, **given)


@tangram.action(service="judge")
async def judge(question: str) -> str:
    answer = await tangram.current_service().call(question)
    return str(answer["choices"][0]["text"])


@tangram.action(service="teacher")
async def teach(question: str) -> str:
    answer = await tangram.current_service().call(question)
    return str(answer["choices"][0]["text"])


def pool(*services: Any) -> tangram.GpuPool:
    return tangram.GpuPool(*services, devices=["cpu:0:10GiB"])


async def test_two_engines_of_which_one_fits_serve_everybody() -> None:
    async with StandInSglang() as first, StandInVllm() as second:
        second.lie_down()  # together they have no room, also not before the pool opens
        card = Card(first, second)
        services = card.service("judge", first), card.service("teacher", second)
        async with tangram.Tangram(pool(*services)):
            answers = await asyncio.gather(*((judge if n % 2 else teach)(f"question {n}") for n in range(40)))
            assert len(set(answers)) == 40
            for n in range(3):
                await judge(f"again {n}")
                await teach(f"again {n}")
        assert first.calls("/resume_memory_occupation")
        assert second.calls("/wake_up")
        assert not first.is_dead
        assert not second.is_corrupt


async def test_one_that_dies_in_use_is_no_fault_of_the_body_and_is_used_again_when_it_is_back() -> None:
    async with StandInVllm() as server, tangram.Tangram(pool(Card(server).service("judge", server))):
        await judge("Hello")
        server.faults.dies_at = "/v1/completions"
        with pytest.raises(tangram.InfrastructureError) as caught:
            await judge("Hello")
        assert isinstance(caught.value, tangram.ServiceLostError)
        with pytest.raises(tangram.RestoreError, match="could not be restored"):
            await judge("Hello")
        server.faults.dies_at = ""
        await server.start()
        await judge("Hello")


async def test_what_a_hanging_wake_may_hold_is_given_to_nobody() -> None:
    async with StandInSglang() as first, StandInVllm() as second:
        second.lie_down()  # together they have no room, also not before the pool opens
        card = Card(first, second)
        services = card.service("judge", first), card.service("teacher", second, transition_s=0.2)
        async with tangram.Tangram(pool(*services)):
            second.faults.wake_hangs = True
            with pytest.raises(tangram.RestoreError, match="waking for more than"):
                await teach("Hello")
            waiting = asyncio.ensure_future(judge("Hello"))
            await asyncio.sleep(0.5)
            assert first.used_bytes == first.asleep_bytes  # its room may be taken at any moment
            second.faults.wake_hangs = False
            second.released.set()
            await waiting
            assert second.used_bytes == second.asleep_bytes
            assert not second.is_corrupt


async def test_room_that_was_not_given_up_is_given_to_nobody() -> None:
    async with StandInSglang() as first, StandInVllm() as second:
        second.lie_down()  # together they have no room, also not before the pool opens
        card = Card(first, second)
        services = card.service("judge", first), card.service("teacher", second)
        async with tangram.Tangram(pool(*services)):
            await teach("Hello")
            second.faults.frees_nothing = True
            with pytest.raises(tangram.RestoreError, match="something that was evicted still has memory there"):
                await judge("Hello")
            assert first.calls("/resume_memory_occupation") == []
            second.used_bytes = second.asleep_bytes
            await judge("Hello")


async def test_an_answer_that_was_cut_off_masks_the_sample() -> None:
    async with StandInVllm() as server, tangram.Tangram(pool(Card(server).service("judge", server))):
        server.faults.aborts = False
        await judge("Hello")
        server.faults.aborts = True
        with pytest.raises(tangram.InfrastructureError, match="abort"):
            await judge("Hello")
