"""Turns of several rollouts are gathered into one call of the model, and nobody waits for who is with a tool."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable

import pytest

from arl_tangram.integrations.trl.turns import Said, Turns

Rollout = Callable[[Turns], Awaitable[object]]


def _play(rollouts: list[Rollout], generate: Callable[[list[list[int]]], list[Said]]) -> list[object]:
    """Run rollouts on a loop of their own, and serve them here."""
    turns = Turns(len(rollouts))
    played: concurrent.futures.Future[list[object]] = concurrent.futures.Future()

    async def one(rollout: Rollout) -> object:
        try:
            return await rollout(turns)
        finally:
            turns.leave()

    async def all_of_them() -> list[object]:
        return list(await asyncio.gather(*map(one, rollouts), return_exceptions=True))

    def run() -> None:
        try:
            played.set_result(asyncio.run(all_of_them()))
        finally:
            turns.end()

    thread = threading.Thread(target=run)
    thread.start()
    turns.serve(generate)
    thread.join()
    return played.result()


def _doubled(batches: list[list[list[int]]]) -> Callable[[list[list[int]]], list[Said]]:
    def generate(asked: list[list[int]]) -> list[Said]:
        batches.append(sorted(asked))
        return [Said([2 * one for one in ids]) for ids in asked]

    return generate


def test_all_begin_with_one_call_and_each_gets_its_own_answer() -> None:
    batches: list[list[list[int]]] = []

    def rollout(number: int) -> Rollout:
        async def play(turns: Turns) -> list[int]:
            first = await turns.ask([number])
            return (await turns.ask(first.ids)).ids

        return play

    assert _play([rollout(n) for n in range(1, 5)], _doubled(batches)) == [[4], [8], [12], [16]]
    assert batches == [[[1], [2], [3], [4]], [[2], [4], [6], [8]]]


def test_nobody_waits_for_who_is_with_a_tool_and_who_comes_back_is_served() -> None:
    batches: list[list[list[int]]] = []
    others_are_done = asyncio.Event()

    async def with_tool(turns: Turns) -> list[int]:
        await turns.ask([1])
        with turns.away():
            await others_are_done.wait()
        return (await turns.ask([10])).ids

    async def without(turns: Turns) -> list[int]:
        await turns.ask([2])
        said = await turns.ask([20])
        others_are_done.set()
        return said.ids

    assert _play([with_tool, without], _doubled(batches)) == [[20], [40]]
    assert batches == [[[1], [2]], [[20]], [[10]]]


def test_a_cancelled_question_is_taken_back_and_holds_up_nobody() -> None:
    batches: list[list[list[int]]] = []
    taken_back = asyncio.Event()

    async def impatient(turns: Turns) -> bool:
        asking = asyncio.create_task(turns.ask([1]))
        await asyncio.sleep(0)  # it has asked, and the other one is still to ask
        asking.cancel()
        await asyncio.wait([asking])
        taken_back.set()
        return asking.cancelled()

    async def patient(turns: Turns) -> list[int]:
        await taken_back.wait()
        return (await turns.ask([2])).ids

    assert _play([impatient, patient], _doubled(batches)) == [True, [4]]
    assert batches == [[[2]]]


def test_what_the_model_raises_comes_out_where_it_is_served() -> None:
    turns = Turns(1)
    loop = asyncio.new_event_loop()
    question = loop.create_task(turns.ask([1]))
    loop.call_soon(loop.stop)
    loop.run_forever()  # now it has asked

    def generate(asked: list[list[int]]) -> list[Said]:
        raise ZeroDivisionError("the model")

    with pytest.raises(ZeroDivisionError):
        turns.serve(generate)
    question.cancel()
    loop.run_until_complete(asyncio.wait([question]))
    loop.close()


def test_as_many_answers_as_questions_are_demanded() -> None:
    turns = Turns(1)
    loop = asyncio.new_event_loop()
    question = loop.create_task(turns.ask([1]))
    loop.call_soon(loop.stop)
    loop.run_forever()
    with pytest.raises(ValueError, match="asked for 1 turns, and returned 2"):
        turns.serve(lambda asked: [Said([1]), Said([2])])
    question.cancel()
    loop.run_until_complete(asyncio.wait([question]))
    loop.close()


def test_each_token_has_its_logprob_or_none_has() -> None:
    with pytest.raises(ValueError, match="3 tokens with 2 logprobs"):
        Said([1, 2, 3], [-1.0, -2.0])
    assert Said([1], [-1.0]).logprobs == [-1.0]


def test_without_rollouts_there_is_nothing_to_serve() -> None:
    turns = Turns(0)
    turns.end()
    turns.serve(lambda asked: pytest.fail("the model was called"))
