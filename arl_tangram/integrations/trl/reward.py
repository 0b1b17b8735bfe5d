"""Score a whole batch for TRL with one action: all samples at once, and none where the infrastructure failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, cast

from arl_tangram.action import BoundAction, invocable_of
from arl_tangram.calling import Calling
from arl_tangram.errors import ConfigurationError, TangramError, UsageError
from arl_tangram.integrations.rollouts.addresses import find_action
from arl_tangram.integrations.rollouts.here import runtime_here
from arl_tangram.integrations.rollouts.rollout import Rollout
from arl_tangram.integrations.rollouts.scoring import has_sandbox, score, taken_by, within_bounds
from arl_tangram.integrations.rollouts.step_metrics import StepMetrics
from arl_tangram.integrations.rollouts.wording import is_masked
from arl_tangram.model.quantities import bytes_of_gib

_logger = logging.getLogger(__name__)
_OF_THE_TRAINER = {"trainer_state", "log_extra", "log_metric", "environments"}


class RewardFunction(Protocol):
    """A reward function as TRL calls it, with all samples of a batch and the columns of their rows."""

    __name__: str

    async def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], completion_ids: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        """Return the reward of each sample; None where there is none."""
        ...


def batch_reward(
    action: BoundAction[..., Any] | str,
    *,
    name: str | None = None,
    prefix: str = "tangram",
    runtime: str = "tangram",
    image: str | None = None,
    memory_gib: float = 0,
) -> RewardFunction:
    """Return a reward function for `GRPOTrainer(reward_funcs=…)` that scores each sample with one call of an action.

    The action gets those fields that its signature names: the columns of the dataset, `prompt`, `completion`,
    `completion_ids`, and `tangram_answer`, the text of the model's last turn. It returns a number, or a mapping with
    one as `score`. An answer whose call raised something, ran for too long or out of memory, or returned no score, has
    0, and the log says why, once for each class of error.

    An asynchronous action that costs cores has a new sandbox for its call: that of the rollout is gone by then, with
    the files in it.

    A sample whose call or whose rollout failed because of the infrastructure has no reward: TRL leaves it out of its
    group's baseline and does not train on it. `<prefix>/…` in TRL's log tells of the calls of each step, and
    `<prefix>/masked_samples` how many samples have been left out.

    Args:
        action: an action with a `timeout`, or its address, such as `my_agent.rewards:grade`; it waits for 600 s at most
            unless it says otherwise.
        name: what TRL calls it in its log; by default the name of the action's function.
        prefix: begins the names of the numbers in the log.
        runtime: the name of the shared runtime that is used where this process has opened none.
        image: of the sandbox of each call, as for `tangram.trajectory`.
        memory_gib: of the sandbox of each call, as for `tangram.trajectory`.

    Raises:
        ConfigurationError: no such action, or one without a `timeout`; memory that is not possible.
    """
    where = "batch_reward()"
    found = find_action(action, where=where) if isinstance(action, str) else action
    try:
        invocable_of(found)
    except UsageError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    bounded = within_bounds(found, where=where)
    bytes_of_gib(memory_gib, f"{where}: memory_gib", ConfigurationError)
    metrics = StepMetrics(prefix)

    async def reward(
        prompts: Sequence[Any], completions: Sequence[Any], completion_ids: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        rows = _rows(prompts, completions, completion_ids, columns)
        taken = [taken_by(bounded, row) for row in rows]
        here = await runtime_here(runtime)
        sandbox = partial(Rollout, here, image=image, memory_gib=memory_gib) if has_sandbox(bounded) else None
        scores = await _score_all(here, bounded, rows, taken, sandbox)
        log = columns.get("log_metric")
        if log is not None:
            await _log(log, here, metrics, prefix, scores)
        return [None if one is None else float(one["score"]) for one in scores]

    reward.__name__ = reward.__qualname__ = name or str(getattr(found, "__name__", "tangram"))
    return reward


def _rows(
    prompts: Sequence[Any], completions: Sequence[Any], completion_ids: Sequence[Any], columns: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the fields of each sample.

    Raises:
        ConfigurationError: a column has no value for each of them.
    """
    whole = {key: values for key, values in columns.items() if key not in _OF_THE_TRAINER}
    count = len(completions)
    for key, values in {"prompts": prompts, "completion_ids": completion_ids, **whole}.items():
        if not hasattr(values, "__len__"):
            raise ConfigurationError(f"batch_reward(): the column {key!r} is no list, but {values!r}")
        if len(values) != count:
            raise ConfigurationError(f"batch_reward(): the column {key!r} has {len(values)} values for {count} samples")
    rows: list[dict[str, Any]] = []
    for number, completion in enumerate(completions):
        row = {key: values[number] for key, values in whole.items()}
        row.setdefault("tangram_answer", _last_text(completion))
        row |= {"prompt": prompts[number], "completion": completion, "completion_ids": completion_ids[number]}
        rows.append(row)
    return rows


def _last_text(completion: Any) -> str:
    """Return what the model said last: TRL tells it as a text, or as messages."""
    if isinstance(completion, str):
        return completion
    messages = cast("Sequence[Mapping[str, Any]]", completion)
    said = [message for message in messages if message.get("role") == "assistant"]
    return str(said[-1].get("content") or "") if said else ""


async def _score_all(
    runtime: Calling,
    action: BoundAction[..., Any],
    rows: Sequence[Mapping[str, Any]],
    taken: Sequence[Mapping[str, Any]],
    sandbox: Callable[[], Rollout] | None,
) -> list[dict[str, Any] | None]:
    """Score the samples, all at once; None where the infrastructure failed.

    Raises:
        Exception: what one of the calls has raised, once all have ended.
    """

    async def one(row: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any] | None:
        if row.get("tangram_masked"):
            return None
        try:
            if sandbox is None:
                return await score(runtime, action, fields)
            async with sandbox() as rollout:
                return await score(rollout, action, fields)
        except Exception as error:
            if not is_masked(error):
                raise
            _logger.warning("a sample has no reward: %s: %s", type(error).__name__, error)
            return None

    calls = (one(row, fields) for row, fields in zip(rows, taken, strict=True))
    scores = await asyncio.gather(*calls, return_exceptions=True)
    for found in scores:
        if isinstance(found, BaseException):
            raise found
    return cast("list[dict[str, Any] | None]", scores)


async def _log(
    log: Callable[[str, float], None],
    runtime: Calling,
    metrics: StepMetrics,
    prefix: str,
    scores: Sequence[dict[str, Any] | None],
) -> None:
    log(f"{prefix}/masked_samples", float(sum(one is None for one in scores)))
    try:
        figures = await asyncio.to_thread(runtime.figures)
    except TangramError as error:
        _logger.warning("no figures of the runtime in this step: %s", error)
        return
    for key, value in metrics.since(figures).items():
        log(key, value)
