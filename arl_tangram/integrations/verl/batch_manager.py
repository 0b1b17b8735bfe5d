"""The agent loop manager of verl's older, batch-wise workers, which owns the shared runtime of the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from verl.experimental.agent_loop.agent_loop import AgentLoopManager, AgentLoopWorker
from verl.protocol import DataProto
from verl.utils.ray_utils import auto_await

from arl_tangram.integrations.ray.installed import find_ray
from arl_tangram.integrations.ray.sharing import Shared
from arl_tangram.integrations.verl.manager import opened, with_loop
from arl_tangram.integrations.verl.neutral import neutral_scores, reward_columns
from arl_tangram.integrations.verl.owning import disown

__all__ = ["TangramAgentLoopWorker", "TangramBatchAgentLoopManager"]

_TOLD = "tangram_reward"


class TangramAgentLoopWorker(AgentLoopWorker):
    """verl's worker, whose rollouts may each have been scored with other keys: a masked one has few of them."""

    def _postprocess(self, inputs: list[Any], *args: Any, **kwargs: Any) -> DataProto:
        for item in inputs:  # else verl asks each rollout for the keys of the first
            item.extra_fields[_TOLD] = item.extra_fields.pop("reward_extra_info", {})
        return super()._postprocess(inputs, *args, **kwargs)


class TangramBatchAgentLoopManager(AgentLoopManager):
    """verl's manager that returns whole batches, in whose process the shared runtime lives until it is closed.

    A rollout that the infrastructure broke stays in its batch: no token of it is trained on, and its score is the mean
    of its group, so that its advantage is 0 and the mean of the group is that of the others. Where verl divides
    advantages by the deviation of the group, as it does by default, that counts the row, too: with k of them beside m
    others, the advantages of these are larger by the root of (m + k - 1) / (m - 1). `meta_info["timing"]` has
    `tangram/…`.

    Raises:
        ConfigurationError: something in the configuration is wrong.
        InfrastructureError: the runtime did not start in time.
    """

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        self._owned = opened(config)
        try:
            self.agent_loop_workers_class = find_ray().remote(TangramAgentLoopWorker)
            super().__init__(with_loop(config), *args, **kwargs)
        except BaseException:
            disown()  # nobody has this object, whose `close()` would do so
            raise

    async def _init_agent_loop_workers(self) -> None:
        try:
            await super()._init_agent_loop_workers()
        except BaseException:
            disown()  # as above: `create` does not return it
            raise

    @property
    def runtime(self) -> Shared:
        """The shared runtime of the job."""
        return self._owned.runtime

    @auto_await
    async def generate_sequences(self, prompts: DataProto) -> DataProto:
        """Play a batch of rollouts, and make those neutral that the infrastructure broke.

        Raises:
            OwnerLostError: the runtime is gone for good: all rollouts would be masked.
        """
        self._owned.check()
        output: DataProto = await super().generate_sequences(prompts)
        masked = settled(output, _groups(prompts, len(output)))
        output.meta_info["timing"] = {
            **output.meta_info["timing"],
            "tangram/masked_samples": float(sum(masked)),
            **self._owned.take_figures(),
        }
        return output

    def close(self) -> None:
        """Close the runtime, and all that it holds in all processes; idempotent; it blocks."""
        disown()


def _groups(prompts: DataProto, size: int) -> list[Any]:
    """Return what each row shares with the other rollouts of its prompt; one for all if the batch does not say."""
    uids: Any = prompts.non_tensor_batch.get("uid")
    return [None] * size if uids is None else list(uids)


def settled(output: DataProto, groups: Sequence[Any]) -> list[bool]:
    """Make masked rows of a batch neutral, give it the columns of what scored it, and return which rows are masked."""
    beside = output.non_tensor_batch
    told: list[Mapping[str, Any]] = list(beside.pop(_TOLD))
    looped: Sequence[Any] = beside.get("tangram_masked", [False] * len(told))
    masked = [bool(loop) or bool(reward.get("tangram_masked")) for loop, reward in zip(looped, told, strict=True)]
    columns = reward_columns([{} if without else reward for without, reward in zip(masked, told, strict=True)])
    columns["tangram_masked"] = [float(without) for without in masked]
    for key, values in columns.items():
        beside[key] = np.array(values)
    output.batch["response_mask"][np.flatnonzero(masked)] = 0
    if "rm_scores" not in output.batch:
        return masked
    output.meta_info["reward_extra_keys"] = list(columns)
    scores = output.batch["rm_scores"]
    totals = [float(row.sum()) for row in scores]
    for row, score in neutral_scores(totals, masked, groups).items():
        last = int(output.batch["attention_mask"][row, -scores.shape[1] :].sum()) - 1
        scores[row] = 0
        scores[row, last] = score
    return masked
