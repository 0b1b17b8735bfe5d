"""verl's reward side: a function that calls an action, and a manager that masks what the infrastructure broke."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from contextvars import copy_context
from functools import partial
from typing import Any

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.protocol import DataProto
from verl.utils.reward_score import default_compute_score

from arl_tangram.calling import Calling
from arl_tangram.integrations.rollouts.here import runtime_here
from arl_tangram.integrations.rollouts.rollout import Rollout
from arl_tangram.integrations.rollouts.scoring import find_bounded, has_sandbox, score, score_of, scored_0
from arl_tangram.integrations.rollouts.wording import infrastructure_error, is_own
from arl_tangram.integrations.verl.settings import Settings, read_sample
from arl_tangram.managers.threads import BodyThreads

__all__ = ["MASKED", "TangramRewardManager", "compute_score"]

MASKED: Mapping[str, float] = {"score": 0.0, "tangram_masked": 1.0}
"""What a rollout that does not count is scored with by verl's base worker, which has no way to leave it out."""

_THREADS = 32
_FUNCTION = "the reward function"


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    action: str,
    runtime: str = "tangram",
    **others: Any,
) -> dict[str, Any]:
    """Score one answer with an action, in the shared runtime of the job; a reward function of verl.

    The action gets those of these fields that its signature names: `answer` (the last turn of the model, without what
    tools have printed; only from the loop `tangram_tool_agent`), `solution_str` (the whole response, with what tools
    have printed), `ground_truth`, `data_source`, `extra_info`, and further ones of `reward_kwargs`. An asynchronous
    action that costs cores has a sandbox for this call, with the image and memory that the rollout had in the loop
    `tangram_tool_agent`, and in others with those that the sample names. Whatever it raises, the answer has 0; see
    `score`.

    Args:
        data_source: where the sample is from.
        solution_str: the whole response.
        ground_truth: what the sample says is right.
        extra_info: what the sample and its rollout have beside it.
        action: `module:action`; it returns a number, or a mapping with the key `score`.
        runtime: what the shared runtime is called.
        others: further fields.

    Raises:
        ConfigurationError: the address leads nowhere, or the action has no `timeout` or asks for a field that there is
            not.
        NoSharedRuntimeError: nobody has opened the runtime.
        TangramError: the action is declared in a way that cannot work, such as a cost that no pool can meet.
        InfrastructureError: the infrastructure failed, and the answer is not to be counted.
    """
    extra = dict(extra_info or {})
    if extra.get("tangram_masked"):
        return dict(MASKED)
    scorer = find_bounded(action, where="reward_kwargs.action")
    fields: dict[str, Any] = {
        **others,
        "data_source": data_source,
        "solution_str": solution_str,
        "ground_truth": ground_truth,
        "extra_info": extra,
    }
    if (answer := extra.get("tangram_answer")) is not None:
        fields["answer"] = answer
    tangram = await runtime_here(runtime)
    if not has_sandbox(scorer):
        return await score(tangram, scorer, fields)
    async with _sandbox(tangram, extra) as rollout:
        return await score(rollout, scorer, fields)


def _sandbox(runtime: Calling, extra: Mapping[str, Any]) -> Rollout:
    """Return a rollout for one call, with the image and memory of the rollout, or else those that the sample names."""
    settings = read_sample(extra, Settings(pools=""))
    return Rollout(runtime, image=settings.image, memory_gib=settings.memory_gib)


class TangramRewardManager(RewardManagerBase):
    """Scores one rollout at a time with the job's reward function; what the infrastructure broke does not count.

    In verl's v1 trainer such a rollout has no row, as its error leaves the worker. In the base worker, where an error
    would end the whole batch, it is marked, and `TangramBatchAgentLoopManager` makes it neutral. Plain functions run on
    threads of their own, never on those of the event loop.
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        self._score = compute_score or default_compute_score
        self._router: dict[str, Any] = {}
        if reward_router_address is not None:
            self._router = {
                "reward_router_address": reward_router_address,
                "reward_model_tokenizer": reward_model_tokenizer,
            }
        self._threads = BodyThreads()
        self._free = asyncio.Semaphore(_THREADS)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score the last sequence of one rollout.

        Returns:
            `reward_score`, and `reward_extra_info` with the score, `tangram_masked`, `tangram_error` and what the
            function returned. If it raised something, or returned no score, that is 0, and `tangram_error` says why.

        Raises:
            InfrastructureError: in the v1 trainer.
            TangramError: something is declared or used in a wrong way.
        """
        item = data[-1:][0]
        beside = item.non_tensor_batch
        extra: dict[str, Any] = {**(beside.get("extra_info") or {}), **(beside.get("tool_extra_fields") or {})}
        if extra.get("tangram_masked"):
            return _answer(MASKED)
        extra["num_turns"] = beside.get("__num_turns__")
        extra["rollout_reward_scores"] = beside.get("reward_scores", {})
        given = {
            "data_source": beside["data_source"],
            "solution_str": await self._on_thread(partial(self._text, item)),
            "ground_truth": beside["reward_model"]["ground_truth"],
            "extra_info": extra,
            **self._router,
        }
        try:
            scored = {"tangram_error": "", **score_of(await self._called(given), _FUNCTION)}
        except SystemExit as error:  # of code that the function runs; the worker must not end by it
            scored = scored_0(error, _FUNCTION)
        except Exception as error:
            if infrastructure_error(error) is None and is_own(error):
                scored = scored_0(error, _FUNCTION)
            elif infrastructure_error(error) is not None and "session_id" not in beside:
                return _answer(MASKED)
            else:
                raise
        return _answer({"tangram_masked": 0.0, **scored})

    def close(self) -> None:
        """End its threads once what runs there has ended; verl never does, as its workers end with the job."""
        self._threads.close()

    async def _called(self, given: Mapping[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self._score):
            return await self._score(**given)
        result = await self._on_thread(partial(self._score, **given))
        return await result if inspect.isawaitable(result) else result

    async def _on_thread(self, call: Any) -> Any:
        async with self._free:
            return (await self._threads.run(partial(copy_context().run, call), ())).result()

    def _text(self, item: Any) -> str:
        """Return the response as text, with what tools have printed."""
        responses = item.batch["responses"]
        length = int(item.batch["attention_mask"][-responses.shape[-1] :].sum())
        return str(self.tokenizer.decode(responses[:length], skip_special_tokens=True))


def _answer(scored: Mapping[str, Any]) -> dict[str, Any]:
    return {"reward_score": scored["score"], "reward_extra_info": dict(scored)}
