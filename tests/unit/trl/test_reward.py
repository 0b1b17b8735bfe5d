"""A batch is scored by one action, all at once; where the infrastructure failed, there is no reward."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram.integrations.trl.reward import batch_reward
from arl_tangram.testing import FakePool

CHATS = [[{"role": "user", "content": f"q{n}"}] for n in range(4)]
TEXTS = [[{"role": "assistant", "content": text}] for text in ("1", "2", "3", "4")]


@tangram.action(quota={"judge": 1}, timeout=5)
async def grade(tangram_answer: str, truth: str) -> float:
    return float(tangram_answer == truth)


async def _rewards(action: Any, **columns: Any) -> list[float | None]:
    reward = batch_reward(action)
    async with tangram.Tangram(FakePool(cores=4), tangram.Quota("judge", concurrency=4)):
        return await reward(CHATS, TEXTS, [[1]] * 4, **columns)


async def test_each_sample_is_scored_with_the_columns_that_the_action_names() -> None:
    assert await _rewards(grade, truth=["1", "x", "3", "x"], other=[0] * 4, trainer_state=object()) == [1, 0, 1, 0]


async def test_all_calls_are_made_at_once() -> None:
    together = asyncio.Barrier(4)

    @tangram.action(quota={"judge": 1}, timeout=5)
    async def waits_for_the_others(completion_ids: list[int]) -> dict[str, Any]:
        await together.wait()
        return {"score": len(completion_ids), "why": "it counts"}

    assert await _rewards(waits_for_the_others) == [1.0] * 4


async def test_a_failed_infrastructure_is_no_reward_and_an_answer_that_takes_too_long_is_0() -> None:
    @tangram.action(quota={"judge": 1}, timeout=0.05)
    async def fails(tangram_answer: str) -> float:
        if tangram_answer == "2":
            raise tangram.SandboxLostError("gone")
        if tangram_answer == "3":
            await asyncio.Event().wait()
        return 1.0

    logged: dict[str, float] = {}
    rewards = await _rewards(fails, tangram_masked=[False, False, False, True], log_metric=logged.__setitem__)
    assert rewards == [1.0, None, 0.0, None]
    assert logged["tangram/masked_samples"] == 2
    (calls,) = [value for name, value in logged.items() if name.endswith("fails/calls")]
    assert calls == 3


async def test_an_answer_that_the_body_cannot_take_is_0_and_the_others_are_scored() -> None:
    @tangram.action(quota={"judge": 1}, timeout=5)
    async def inverse(tangram_answer: str) -> float:
        return 1 / (int(tangram_answer) - 1)

    assert await _rewards(inverse) == [0.0, 1.0, 1 / 2, 1 / 3]


async def test_what_is_declared_in_a_wrong_way_is_raised_when_all_have_ended() -> None:
    ended: list[str] = []

    @tangram.action(quota={"judge": 1}, timeout=5)
    async def broken(tangram_answer: str) -> float:
        if tangram_answer == "1":
            tangram.current_service()  # it has none
        await asyncio.sleep(0.01)
        ended.append(tangram_answer)
        return 1.0

    with pytest.raises(tangram.UsageError):
        await _rewards(broken)
    assert sorted(ended) == ["2", "3", "4"]


async def test_a_reward_has_a_sandbox_of_the_image_and_memory_that_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    @tangram.action(cpu=1, timeout=5)
    async def in_sandbox() -> float:
        return float(bool(tangram.current_sandbox().id))

    asked: list[tuple[object, object]] = []
    trajectory = tangram.Tangram.trajectory

    def noted(self: tangram.Tangram, *, image: str | None = None, memory_gib: float = 0, **others: Any) -> Any:
        asked.append((image, memory_gib))
        return trajectory(self, **others)

    monkeypatch.setattr(tangram.Tangram, "trajectory", noted)
    reward = batch_reward(in_sandbox, image="swe:1", memory_gib=2)
    async with tangram.Tangram(FakePool(cores=4)):
        assert await reward(CHATS, TEXTS, [[1]] * 4) == [1.0] * 4
    assert asked == [("swe:1", 2)] * 4


async def test_an_action_with_cores_has_a_sandbox_for_its_call() -> None:
    @tangram.action(cpu=1, timeout=5)
    async def in_sandbox(tangram_answer: str) -> float:
        box = tangram.current_sandbox()
        await box.write_file("answer", tangram_answer.encode())
        return float(await box.read_file("answer") == tangram_answer.encode())

    assert await _rewards(in_sandbox) == [1.0] * 4


async def test_texts_of_a_dataset_without_conversations_are_their_own_answers() -> None:
    reward = batch_reward(grade)
    async with tangram.Tangram(tangram.Quota("judge", concurrency=4)):
        assert await reward(["q", "q"], ["1", "2"], [[1], [2]], truth=["1", "1"]) == [1.0, 0.0]


def test_trl_sees_a_coroutine_function_with_a_name() -> None:
    assert inspect.iscoroutinefunction(batch_reward(grade))
    assert batch_reward(grade).__name__ == "grade"
    assert batch_reward(grade, name="right").__name__ == "right"


async def test_an_action_that_asks_for_what_is_not_there_says_what_is() -> None:
    with pytest.raises(tangram.ConfigurationError, match=r"asks for truth; there are the fields .*tangram_answer"):
        await _rewards(grade)


def test_what_is_no_action_is_refused() -> None:
    with pytest.raises(tangram.ConfigurationError, match="batch_reward"):
        batch_reward(len)  # type: ignore[arg-type]


def test_a_reward_that_could_run_for_ever_is_refused() -> None:
    @tangram.action(quota={"judge": 1})
    async def patient() -> float:
        return 1.0

    with pytest.raises(tangram.ConfigurationError, match="patient has no timeout"):
        batch_reward(patient)


def test_an_address_that_leads_nowhere_is_refused() -> None:
    with pytest.raises(tangram.ConfigurationError, match=r"batch_reward\(\): the module of 'no_such:grade'"):
        batch_reward("no_such:grade")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"truth": ["1"]}, "'truth' has 1 values for 4 samples"),
        ({"truth": ["1"] * 5}, "'truth' has 5 values for 4 samples"),
        ({"truth": None}, "'truth' is no list, but None"),
        ({"truth": ["1"] * 4, "other": 5}, "'other' is no list, but 5"),
    ],
)
async def test_a_column_has_a_value_for_each_sample(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(tangram.ConfigurationError, match=words):
        await _rewards(grade, **columns)


async def test_no_samples_have_no_rewards() -> None:
    async with tangram.Tangram(FakePool(), tangram.Quota("judge", concurrency=4)):
        assert await batch_reward(grade)([], [], [], truth=[]) == []
