from __future__ import annotations

import logging
import time
from typing import Any, TypedDict

import numpy as np
import pytest

import arl_tangram as tangram
from arl_tangram.errors import ConfigurationError, InfeasibleError, RunTimeout, SandboxLostError
from arl_tangram.integrations.rollouts.rollout import Rollout
from arl_tangram.integrations.rollouts.scoring import find_bounded, has_sandbox, score, score_of, taken_by
from arl_tangram.testing import FakePool

FIELDS: dict[str, Any] = {"data_source": "toy", "solution_str": "it is 42", "ground_truth": "42", "extra_info": {}}


@tangram.action(cpu=1)
async def exact(solution_str: str, ground_truth: str, weight: float = 2) -> float:
    return weight * solution_str.endswith(ground_truth)


@tangram.action(cpu=1)
async def seen(**fields: Any) -> dict[str, Any]:
    return {"score": len(fields), "seen": sorted(fields)}


@tangram.action(cpu=1)
async def in_sandbox(ground_truth: str) -> float:
    await tangram.current_sandbox().exec(["true"])
    return 1


@tangram.action(cpu=1, timeout=0.01)
def slow() -> float:
    time.sleep(0.05)
    return 1


class Marks(TypedDict):
    score: float
    acc: float
    passed: int
    why: str


@tangram.action(cpu=1)
async def marked(solution_str: str) -> Marks:
    number = int(solution_str)  # what stands there is the model's to say
    return {"score": 1 / number, "acc": 1.0, "passed": number, "why": "a number"}


@tangram.action(cpu=1)
async def number(solution_str: str) -> Any:
    known = {"nan": float("nan"), "nothing": None, "other": {"acc": 1.0}, "key": {}}
    return known[solution_str]


@tangram.action(isolate="process", timeout=60)
def unpicklable(solution_str: str) -> Any:
    return lambda: solution_str


class Own(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


@tangram.action(isolate="process", timeout=60)
def unknown_error(solution_str: str) -> Any:
    raise Own("cannot be", "made again from its text")


@tangram.action(cpu=1000)
async def too_wide(solution_str: str) -> float:
    return 1


@tangram.action(cpu=1)
async def without_runtime(solution_str: str) -> float:
    tangram.current_service()  # it is declared without one
    return 1


@tangram.action(cpu=1)
async def asks_for_more(solution_str: str, answer: str) -> float:
    return 1


@tangram.action(quota={"judge": 1})
async def judged() -> float:
    return 1


async def test_an_action_gets_the_fields_that_its_signature_names() -> None:
    async with tangram.Tangram(FakePool()) as runtime:
        assert await score(runtime, exact, FIELDS) == {"score": 2.0, "tangram_error": ""}
        told = {"score": 4.0, "tangram_error": "", "seen": sorted(FIELDS)}
        assert await score(runtime, seen, FIELDS) == told


async def test_in_a_rollout_it_runs_in_the_sandbox_of_the_rollout() -> None:
    ran: list[list[str]] = []
    pool = FakePool(on_exec=lambda argv: ran.append(list(argv)))
    async with tangram.Tangram(pool) as runtime, Rollout(runtime) as rollout:
        assert await score(rollout, in_sandbox, FIELDS) == {"score": 1.0, "tangram_error": ""}
    assert ran == [["true"]]


async def test_an_answer_that_takes_too_long_to_score_has_none() -> None:
    async with tangram.Tangram(FakePool()) as runtime:
        assert await score(runtime, slow, FIELDS) == {"score": 0.0, "tangram_error": RunTimeout.__name__}


@pytest.mark.parametrize(
    ("action", "answer", "error"),
    [
        (marked, "garbage", "ValueError"),
        (marked, "0", "ZeroDivisionError"),
        (number, "unknown", "KeyError"),
        (number, "nan", "TypeError"),
        (number, "nothing", "TypeError"),
        (number, "other", "TypeError"),
        (unpicklable, "1", "ResultError"),
        (unknown_error, "1", "RemoteError"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.spec.name.rpartition(":")[2],
)
async def test_an_answer_that_what_scores_it_cannot_take_has_0(action: Any, answer: str, error: str) -> None:
    # An error that left here would be a rollout without a row in verl: a way for an agent to escape a low reward.
    async with tangram.Tangram(FakePool()) as runtime, Rollout(runtime) as rollout:
        for place in (runtime, rollout):
            scored = await score(place, action, {"solution_str": answer})
            assert (scored["score"], scored["tangram_error"]) == (0.0, error)


async def test_a_row_that_failed_has_the_keys_that_the_action_declares() -> None:
    async with tangram.Tangram(FakePool()) as runtime:
        good = await score(runtime, marked, {"solution_str": "2"})
        bad = await score(runtime, marked, {"solution_str": "x"})
    assert good == {"score": 0.5, "tangram_error": "", "acc": 1.0, "passed": 2, "why": "a number"}
    assert bad == {"score": 0.0, "tangram_error": "ValueError", "acc": 0.0, "passed": 0.0, "why": None}


async def test_an_error_is_told_once_with_where_it_came_from(caplog: pytest.LogCaptureFixture) -> None:
    @tangram.action(cpu=1)
    async def fresh(solution_str: str) -> float:
        return float(solution_str)

    with caplog.at_level(logging.WARNING):
        async with tangram.Tangram(FakePool()) as runtime:
            for _ in range(3):
                await score(runtime, fresh, {"solution_str": "x"})
    (told,) = [record for record in caplog.records if "fresh" in record.getMessage()]
    assert "scores 0" in told.getMessage()
    assert told.exc_info is not None


async def test_what_is_declared_in_a_wrong_way_is_no_0() -> None:
    async with tangram.Tangram(FakePool()) as runtime:
        with pytest.raises(InfeasibleError):
            await score(runtime, too_wide, FIELDS)
        with pytest.raises(tangram.UsageError):
            await score(runtime, without_runtime, FIELDS)
        with pytest.raises(ConfigurationError):
            await score(runtime, asks_for_more, FIELDS)


async def test_what_the_infrastructure_breaks_has_no_score() -> None:
    def lost(argv: Any) -> None:
        raise SandboxLostError("it is gone")

    async with tangram.Tangram(FakePool(on_exec=lost)) as runtime, Rollout(runtime) as rollout:
        with pytest.raises(SandboxLostError):
            await score(rollout, in_sandbox, FIELDS)


def test_a_field_that_there_is_not_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"asks_for_more asks for answer; .*solution_str, ground_truth"):
        taken_by(asks_for_more, FIELDS)
    assert taken_by(asks_for_more, {**FIELDS, "answer": "42"}) == {"solution_str": "it is 42", "answer": "42"}


def test_an_action_that_scores_neither_runs_nor_waits_for_ever() -> None:
    found = find_bounded(f"{__name__}:slow", where="tangram.reward")
    assert (found.spec.timeout, found.spec.queue_timeout) == (0.01, 600)
    with pytest.raises(ConfigurationError, match=r"tangram\.reward: .*exact has no timeout"):
        find_bounded(f"{__name__}:exact", where="tangram.reward")


@pytest.mark.parametrize("result", [1, True, 1.0, np.float32(1), np.bool_(True), np.array(1)])
def test_numbers_of_all_kinds_are_scores(result: Any) -> None:
    for given in (result, {"score": result}):
        scored = score_of(given, "grade")["score"]
        assert scored == 1.0
        assert type(scored) is float


@pytest.mark.parametrize(
    "result", [None, "1", float("nan"), float("inf"), [1.0], {"score": "high"}, np.array([1.0, 2.0])]
)
def test_anything_else_is_not(result: Any) -> None:
    with pytest.raises(TypeError, match="grade returns a finite number as a score"):
        score_of(result, "grade")


def test_a_mapping_needs_a_score() -> None:
    with pytest.raises(TypeError, match="without the key 'score', but acc"):
        score_of({"acc": 1.0}, "grade")


def test_only_an_asynchronous_action_that_costs_cores_has_a_sandbox() -> None:
    assert [has_sandbox(one) for one in (exact, slow, judged)] == [True, False, False]
