from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import arl_tangram as tangram
from arl_tangram.errors import ConfigurationError, RunTimeout, SandboxLostError
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


@tangram.action(cpu=1)
async def asks_for_more(solution_str: str, answer: str) -> float:
    return 1


@tangram.action(quota={"judge": 1})
async def judged() -> float:
    return 1


async def test_an_action_gets_the_fields_that_its_signature_names() -> None:
    async with tangram.Tangram(FakePool()) as runtime:
        assert await score(runtime, exact, FIELDS) == {"score": 2.0}
        assert await score(runtime, seen, FIELDS) == {"score": 4.0, "seen": sorted(FIELDS)}


async def test_in_a_rollout_it_runs_in_the_sandbox_of_the_rollout() -> None:
    ran: list[list[str]] = []
    pool = FakePool(on_exec=lambda argv: ran.append(list(argv)))
    async with tangram.Tangram(pool) as runtime, Rollout(runtime) as rollout:
        assert await score(rollout, in_sandbox, FIELDS) == {"score": 1.0}
    assert ran == [["true"]]


async def test_an_answer_that_takes_too_long_to_score_has_none() -> None:
    async with tangram.Tangram(FakePool()) as runtime:
        assert await score(runtime, slow, FIELDS) == {"score": 0.0, "tangram_error": RunTimeout.__name__}


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
    with pytest.raises(TypeError, match="grade as a reward returns a finite number"):
        score_of(result, "grade")


def test_a_mapping_needs_a_score() -> None:
    with pytest.raises(TypeError, match="without the key 'score', but acc"):
        score_of({"acc": 1.0}, "grade")


def test_only_an_asynchronous_action_that_costs_cores_has_a_sandbox() -> None:
    assert [has_sandbox(one) for one in (exact, slow, judged)] == [True, False, False]
