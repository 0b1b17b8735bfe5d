"""verl's replay buffers, which also log what the shared runtime did: the one official way to add to logged metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.verl.failures import Failures
from arl_tangram.integrations.verl.owning import present

__all__ = ["TangramReplayBuffer", "TangramReplayBufferAsync", "sampler_options"]

_OPTIONS = ("filter_groups_metric", "sync_refill_failed_groups", "train_batch_size", "gen_batch_size")
_MORE = ("max_inflight_gen_batches", "poll_interval")


def sampler_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what `trainer.v1.sampler.sampler_kwargs` says: verl gives a custom sampler nothing of this otherwise.

    Raises:
        ConfigurationError: an unknown key, or filtering of groups without `train_batch_size`.
    """
    options = {str(key): value for key, value in (given or {}).items()}
    if unknown := sorted(options.keys() - {*_OPTIONS, *_MORE}):
        known = ", ".join((*_OPTIONS, *_MORE))
        raise ConfigurationError(
            f"trainer.v1.sampler.sampler_kwargs has no key {', '.join(unknown)}; its keys: {known}"
        )
    filters, refills = options.get("filter_groups_metric"), options.get("sync_refill_failed_groups")
    if filters is not None and options.get("train_batch_size") is None:
        raise ConfigurationError(
            "trainer.v1.sampler.sampler_kwargs with filter_groups_metric needs train_batch_size, that of data"
        )
    if filters is not None or refills:
        options.setdefault("gen_batch_size", 1)
    return options


class TangramReplayBuffer(ReplayBuffer):
    """verl's synchronous sampler, with the metrics of the runtime; by `trainer.v1.sampler.custom_sampler`.

    It ends the training with an `InfrastructureError` where groups fail on and on; see `Failures`.

    Args:
        sampler_kwargs: `filter_groups_metric`, `sync_refill_failed_groups` and the like, as verl gives its own sampler.
        given: what verl gives to any sampler.

    Raises:
        ConfigurationError: a key in `sampler_kwargs` that there is not.
    """

    def __init__(self, *, sampler_kwargs: Any = None, **given: Any) -> None:
        super().__init__(sampler_kwargs=sampler_kwargs, **{**given, **sampler_options(sampler_kwargs)})
        self._failures = Failures()

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Sample a batch as verl does, and add `tangram/…` to its metrics."""
        self._failures.want(batch_size)
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        self._failures.arrived()
        return batch, _with_figures(batch, metrics, batch_size)

    def _evict_terminal_groups(self, global_steps: int, partition_id: str, eviction_reasons: Any) -> Any:
        self._failures.failed(len(eviction_reasons[2]))
        return super()._evict_terminal_groups(global_steps, partition_id, eviction_reasons)


class TangramReplayBufferAsync(ReplayBufferAsync):
    """verl's sampler of the asynchronous trainers, with the metrics of the runtime.

    It ends the training with an `InfrastructureError` where groups fail on and on; see `Failures`.

    Args:
        sampler_kwargs: `filter_groups_metric` and the like, as verl gives its own sampler.
        given: what verl gives to any sampler.

    Raises:
        ConfigurationError: a key in `sampler_kwargs` that there is not.
    """

    def __init__(self, *, sampler_kwargs: Any = None, **given: Any) -> None:
        super().__init__(sampler_kwargs=sampler_kwargs, **{**given, **sampler_options(sampler_kwargs)})
        self._failures = Failures()

    def wait_for_sampleable(
        self, global_steps: int, partition_id: str, target_count: int
    ) -> tuple[set[str], dict[str, Any]]:
        """Wait for groups as verl does, and bound how many fail meanwhile."""
        self._failures.want(target_count)
        found = super().wait_for_sampleable(global_steps, partition_id, target_count)
        self._failures.arrived()
        return found

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Sample a batch as verl does, and add `tangram/…` to its metrics."""
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        return batch, _with_figures(batch, metrics, batch_size)

    def _evict_terminal_groups(self, global_steps: int, partition_id: str, eviction_reasons: Any) -> Any:
        self._failures.failed(len(eviction_reasons[2]))
        return super()._evict_terminal_groups(global_steps, partition_id, eviction_reasons)


def _with_figures(batch: KVBatchMeta, metrics: dict[str, Any], prompts: int) -> dict[str, Any]:
    """Return the metrics of a training step with ours; those of verl are left if this process owns no runtime.

    Args:
        batch: the rows that verl trains on.
        metrics: of verl.
        prompts: how many groups it has asked for.
    """
    owned = present()
    if owned is None or batch.partition_id == "val":
        return metrics
    owned.ended({key.split("_")[0] for key in batch.keys})
    rollouts = {key.rsplit("_", 1)[0] for key in batch.keys}
    return {
        **metrics,
        "tangram/masked_samples": float(prompts * owned.rollouts - len(rollouts)),
        "tangram/cancelled_groups": float(owned.take_cancelled()),
        **owned.take_figures(),
    }
