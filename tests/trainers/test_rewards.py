"""Rewards, batches and samplers beside the real verl, without Ray: verl's own loaders and managers call them."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.trainer.ppo.reward import get_custom_reward_fn, load_reward_manager

import arl_tangram as tangram
from arl_tangram.errors import ConfigurationError, SandboxLostError
from arl_tangram.integrations.verl import TangramRewardManager, compute_score
from arl_tangram.model.sandbox import ExecResult
from arl_tangram.testing import FakePool

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # verl warns of each engine that is not installed
    from arl_tangram.integrations.verl import manager
    from arl_tangram.integrations.verl.batch_manager import settled
    from arl_tangram.integrations.verl.replay import sampler_options

OURS = "pkg://arl_tangram.integrations.verl"
HERE = __name__


@tangram.action(cpu=1, timeout=10)
def exact(answer: str, ground_truth: str) -> float:
    return float(answer == ground_truth)


@tangram.action(cpu=1, timeout=10)
def seen(solution_str: str, extra_info: dict[str, Any], weight: float) -> dict[str, Any]:
    return {"score": weight, "text": solution_str, "turns": extra_info["num_turns"]}


@tangram.action(cpu=1, timeout=10)
async def in_sandbox() -> bool:
    done = await tangram.current_sandbox().exec(["pytest"])
    return done.exit_code == 0


DONE = ExecResult(exit_code=0, stdout=b"", stderr=b"", truncated=False, timed_out=False, duration_s=0.0, cpu_s=0.0)

Load = Callable[..., Any]


@pytest.fixture
def load() -> Iterator[Load]:
    """Return what makes a reward manager as a reward worker does."""
    made: list[Any] = []

    def load(manager: dict[str, Any] | None, function: Any) -> Any:
        if callable(function):
            made.append(TangramRewardManager(config(), Words(), function))
        else:
            made.append(load_reward_manager(config(manager, function), Words()))
        return made[-1]

    yield load
    for each in made:
        if isinstance(each, TangramRewardManager):
            each.close()


class Words:
    """A tokenizer of whole words: token n is the n-th of these."""

    words = ("", "I", "print", "42", "so", "it", "is", "41")

    def decode(self, tokens: Any, *, skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return " ".join(self.words[int(token)] for token in tokens)


def config(manager: dict[str, Any] | None = None, function: dict[str, Any] | None = None) -> Any:
    return OmegaConf.create(
        {
            "reward": {
                "custom_reward_function": function or {},
                "reward_manager": manager or {"source": "register", "name": "naive", "module": None},
            }
        }
    )


OUR_MANAGER = {"source": "importlib", "name": "TangramRewardManager", "module": {"path": OURS}}


def ours(**kwargs: Any) -> dict[str, Any]:
    return {"path": OURS, "name": "compute_score", "reward_kwargs": kwargs}


def sample(*, v1: bool = True, response: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7), **extra_fields: Any) -> DataProto:
    """Return one rollout as an agent loop worker sends it to a reward worker."""
    responses = torch.tensor([response])
    beside: dict[str, Any] = {
        "data_source": "toy",
        "reward_model": {"style": "rule", "ground_truth": "41"},
        "extra_info": {"index": 3},
        "__num_turns__": 4,
        "tool_extra_fields": extra_fields,
    }
    if v1:
        beside["session_id"] = 0
    columns = {key: np.array([value], dtype=object) for key, value in beside.items()}
    tensors = {
        "prompts": responses[:, :2],
        "responses": responses,
        "attention_mask": torch.ones(1, 2 + len(response), dtype=torch.long),
    }
    return DataProto(batch=TensorDict(tensors, batch_size=1), non_tensor_batch=columns)


@pytest.mark.parametrize("chosen", [None, OUR_MANAGER], ids=["naive", "ours"])
async def test_the_reward_sees_the_last_answer_apart_from_tool_output(
    chosen: dict[str, Any] | None, load: Load
) -> None:
    rewards = load(chosen, ours(action=f"{HERE}:exact"))
    async with tangram.Tangram(FakePool()):
        right = await rewards.run_single(sample(tangram_answer="41"))
        wrong = await rewards.run_single(sample(tangram_answer="42"))
    assert (right["reward_score"], wrong["reward_score"]) == (1.0, 0.0)


async def test_what_stands_beside_the_score_and_further_arguments_pass(load: Load) -> None:
    rewards = load(OUR_MANAGER, ours(action=f"{HERE}:seen", weight=0.5))
    async with tangram.Tangram(FakePool()):
        scored = await rewards.run_single(sample())
    told = {"score": 0.5, "text": "I print 42 so it is 41", "turns": 4}
    assert scored == {"reward_score": 0.5, "reward_extra_info": {"tangram_masked": 0.0, "tangram_error": "", **told}}


async def test_an_answer_that_the_loop_does_not_give_is_told() -> None:
    async with tangram.Tangram(FakePool()):
        with pytest.raises(ConfigurationError, match="exact asks for answer"):
            await compute_score("toy", "it is 41", "41", {}, action=f"{HERE}:exact")


async def test_an_action_that_needs_a_sandbox_has_one_for_the_call() -> None:
    opened: list[list[str]] = []

    def run(argv: Any) -> ExecResult:
        opened.append(list(argv))
        return DONE

    async with tangram.Tangram(FakePool(on_exec=run)) as runtime:
        scores = [await compute_score("toy", "", "", None, action=f"{HERE}:in_sandbox") for _ in range(2)]
        assert runtime.statistics().trajectories == 0
    assert [each["score"] for each in scores] == [1.0, 1.0]
    assert opened == [["pytest"], ["pytest"]]


async def test_the_sandbox_of_a_reward_is_what_the_rollout_or_the_sample_says(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, Any]] = []
    trajectory = tangram.Tangram.trajectory

    def noted(self: tangram.Tangram, *, image: str | None = None, memory_gib: float = 0, **others: Any) -> Any:
        asked.append((image, memory_gib))
        return trajectory(self, memory_gib=memory_gib, **others)

    monkeypatch.setattr(tangram.Tangram, "trajectory", noted)
    own = {"tangram": {"image": "swe:1", "memory_gib": 2.0}}
    async with tangram.Tangram(FakePool(on_exec=lambda _: DONE)):
        for extra_info in (own, {"tangram": {"image": "swe:1", "memory_gib": None}}, {}):
            await compute_score("toy", "", "", extra_info, action=f"{HERE}:in_sandbox")
        with pytest.raises(ConfigurationError, match="has the keys image and memory_gib, not 'memory'"):
            await compute_score("toy", "", "", {"tangram": {"memory": 2}}, action=f"{HERE}:in_sandbox")
    assert asked == [("swe:1", 2.0), ("swe:1", 0), (None, 0)]


def lost(argv: Any) -> None:
    raise SandboxLostError("it is gone")


@pytest.mark.parametrize("chosen", [None, OUR_MANAGER], ids=["naive", "ours"])
async def test_in_the_v1_trainer_what_the_infrastructure_breaks_leaves_the_worker(
    chosen: dict[str, Any] | None, load: Load
) -> None:
    rewards = load(chosen, ours(action=f"{HERE}:in_sandbox"))
    async with tangram.Tangram(FakePool(on_exec=lost)):
        with pytest.raises(SandboxLostError):
            await rewards.run_single(sample())


async def test_in_the_base_worker_it_is_marked(load: Load) -> None:
    rewards = load(OUR_MANAGER, ours(action=f"{HERE}:in_sandbox"))
    masked = {"reward_score": 0.0, "reward_extra_info": {"score": 0.0, "tangram_masked": 1.0}}
    async with tangram.Tangram(FakePool(on_exec=lost)):
        assert await rewards.run_single(sample(v1=False)) == masked
    # A rollout that was masked before is not scored: there is no runtime that could.
    assert await rewards.run_single(sample(v1=False, tangram_masked=True)) == masked


@pytest.mark.parametrize("v1", [True, False])
async def test_what_a_function_of_the_user_cannot_score_has_0(load: Load, v1: bool) -> None:
    def broken(solution_str: str, **fields: Any) -> float:
        return float(solution_str)  # an error that left here would be no row in the v1 trainer, which is the mask

    async def nothing(**fields: Any) -> Any:
        return float("nan")

    def exits(**fields: Any) -> float:
        sys.exit(3)  # as of an answer that is a program, and is run here

    async def exits_on_the_loop(**fields: Any) -> float:
        return exits()

    functions = {broken: "ValueError", nothing: "TypeError", exits: "SystemExit", exits_on_the_loop: "SystemExit"}
    for function, error in functions.items():
        scored = await load(None, function).run_single(sample(v1=v1))
        told = {"score": 0.0, "tangram_masked": 0.0, "tangram_error": error}
        assert scored == {"reward_score": 0.0, "reward_extra_info": told}


@pytest.mark.parametrize("chosen", [None, OUR_MANAGER], ids=["naive", "ours"])
async def test_an_answer_that_an_action_cannot_score_has_0_with_the_keys_of_the_others(
    chosen: dict[str, Any] | None, load: Load
) -> None:
    rewards = load(chosen, ours(action="trainers.tool_actions:counted"))
    async with tangram.Tangram(FakePool()):
        good = await rewards.run_single(sample(tangram_answer="41"))
        bad = await rewards.run_single(sample(tangram_answer="I do not know"))
    assert (good["reward_score"], bad["reward_score"]) == (1.0, 0.0)
    assert bad["reward_extra_info"]["tangram_error"] == "ValueError"
    assert bad["reward_extra_info"]["acc"] == 0.0  # verl ends a training whose groups are filtered by what is not there
    assert good["reward_extra_info"].keys() == bad["reward_extra_info"].keys()


@pytest.mark.parametrize("v1", [True, False])
async def test_a_reward_that_is_declared_in_a_wrong_way_is_no_0(load: Load, v1: bool) -> None:
    rewards = load(OUR_MANAGER, ours(action=f"{HERE}:exact"))
    async with tangram.Tangram(tangram.Quota("search", concurrency=1)):  # no pool of cores
        with pytest.raises(tangram.InfeasibleError):
            await rewards.run_single(sample(v1=v1, tangram_answer="41"))


async def test_nothing_of_ours_runs_on_the_default_executor(load: Load) -> None:
    class Refused(ThreadPoolExecutor):
        def submit(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("the default executor is the trainer's")

    threads: list[str] = []

    def plain(solution_str: str, **fields: Any) -> float:
        threads.append(threading.current_thread().name)
        return float(len(solution_str))

    asyncio.get_running_loop().set_default_executor(Refused(1))
    rewards = load(None, plain)
    scored = await rewards.run_single(sample())
    async with tangram.Tangram(FakePool()):
        await compute_score("toy", "", "41", {"tangram_answer": "41"}, action=f"{HERE}:exact")
    assert scored["reward_score"] == len("I print 42 so it is 41")
    assert threads[0].startswith("arl_tangram body")


def test_an_action_is_a_coroutine_function_for_verl_as_reward() -> None:
    assert inspect.iscoroutinefunction(compute_score)
    assert inspect.iscoroutinefunction(exact)
    wrapped: Any = get_custom_reward_fn(config(function=ours(action="a:b")))
    assert inspect.iscoroutinefunction(wrapped.func)


async def test_a_file_path_reward_shares_the_runtime_of_the_process(tmp_path: Path, load: Load) -> None:
    file = tmp_path / "my_reward.py"
    file.write_text(
        "from arl_tangram.integrations.rollouts.here import runtime_here\n"
        "from arl_tangram.integrations.verl import compute_score as ours\n"
        "async def compute_score(data_source, solution_str, ground_truth, extra_info, **others):\n"
        f"    scored = await ours(data_source, solution_str, ground_truth, extra_info, action='{HERE}:exact')\n"
        "    return {**scored, 'runtime': id(await runtime_here())}\n"
    )
    rewards = load(OUR_MANAGER, {"path": str(file), "name": "compute_score"})
    async with tangram.Tangram(FakePool()) as runtime:
        scored = await rewards.run_single(sample(tangram_answer="41"))
        told = {"tangram_masked": 0.0, "tangram_error": "", "score": 1.0, "runtime": id(runtime)}
        assert scored["reward_extra_info"] == told


def batch(told: list[dict[str, Any]], scores: list[float], *, looped: list[bool]) -> DataProto:
    """Return a batch of one-token answers as the base workers' manager has it."""
    rows = len(told)
    reward = np.empty(rows, dtype=object)
    reward[:] = told
    rm_scores = torch.zeros(rows, 3)
    rm_scores[:, 1] = torch.tensor(scores)
    tensors = {
        "responses": torch.ones(rows, 3, dtype=torch.long),
        "response_mask": torch.ones(rows, 3, dtype=torch.long),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 0]] * rows),
        "rm_scores": rm_scores,
    }
    beside = {"tangram_reward": reward, "tangram_masked": np.array(looped)}
    return DataProto(batch=TensorDict(tensors, batch_size=rows), non_tensor_batch=beside)


@pytest.mark.parametrize(("scores", "masked"), [([1.0, 0.0, 0.5, 0.0], 1), ([1.0, 0.0, 0.25, 0.5, 0.0, 0.0], 2)])
def test_what_a_masked_row_changes_in_the_advantages_of_its_group(scores: list[float], masked: int) -> None:
    kept = len(scores) - masked
    looped = [place >= kept for place in range(len(scores))]
    output = batch([{"score": score} for score in scores], scores, looped=looped)
    settled(output, ["a"] * len(scores))

    def advantages(rows: DataProto, *, by_std: bool) -> torch.Tensor:
        group = np.array(["a"] * len(rows.batch["rm_scores"]))
        rewards, mask = rows.batch["rm_scores"], rows.batch["response_mask"]
        made: torch.Tensor = compute_grpo_outcome_advantage(rewards, mask, group, norm_adv_by_std_in_grpo=by_std)[0]
        return made

    alone = batch([{}] * kept, scores[:kept], looped=[False] * kept)
    for by_std in (False, True):
        made = advantages(output, by_std=by_std)
        assert not made[kept:].any()
        # What docs/limits.md says: verl divides by the deviation of all rows, which the masked ones make smaller.
        factor = ((len(scores) - 1) / (kept - 1)) ** 0.5 if by_std else 1.0
        torch.testing.assert_close(made[:kept], advantages(alone, by_std=by_std) * factor, rtol=1e-4, atol=1e-5)


def test_rows_that_are_scored_later_are_masked_all_the_same() -> None:
    output = batch([{}, {}], [0.0, 0.0], looped=[False, True])
    del output.batch["rm_scores"]
    settled(output, ["a", "a"])
    assert output.batch["response_mask"].sum(-1).tolist() == [3, 0]


def test_masked_rows_of_a_batch_leave_the_means_of_their_groups() -> None:
    told = [{"score": 1.0, "acc": 1.0}, {}, {"score": 0.0, "acc": 0.0}, {"score": 0.0, "tangram_masked": 1.0}]
    output = batch(told, [1.0, 0.0, 0.0, 0.0], looped=[False, True, False, False])

    assert settled(output, ["a", "a", "a", "b"]) == [False, True, False, True]

    assert output.batch["rm_scores"].sum(-1).tolist() == [1.0, 0.5, 0.0, 0.0]
    assert output.batch["response_mask"].sum(-1).tolist() == [3, 0, 3, 0]
    assert output.non_tensor_batch["acc"].tolist() == [1.0, 0.5, 0.0, 0.5]
    assert output.non_tensor_batch["tangram_masked"].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert output.meta_info["reward_extra_keys"] == ["score", "acc", "tangram_masked"]


def test_a_sampler_takes_what_verl_gives_its_own_from_sampler_kwargs() -> None:
    assert sampler_options(None) == {}
    refill = OmegaConf.create({"sync_refill_failed_groups": True})
    assert sampler_options(refill) == {"sync_refill_failed_groups": True, "gen_batch_size": 1}
    with pytest.raises(ConfigurationError, match=r"sampler_kwargs has no key batch; its keys: filter_groups_metric"):
        sampler_options({"batch": 3})
    with pytest.raises(ConfigurationError, match="filter_groups_metric needs train_batch_size"):
        sampler_options({"filter_groups_metric": "reward"})


@pytest.mark.parametrize(
    ("mode", "strategy", "threshold", "expected"),
    [("sync", "drop", 2, None), ("colocate_async", "wait", 2, None), ("colocate_async", "drop", 2, 2)],
)
def test_only_what_verl_would_drop_is_stale(mode: str, strategy: str, threshold: int, expected: int | None) -> None:
    sampler = {"max_off_policy_threshold": threshold, "max_off_policy_strategy": strategy}
    given = OmegaConf.create({"trainer": {"v1": {"trainer_mode": mode, "sampler": sampler}}})
    assert manager.threshold_of(given) == expected
