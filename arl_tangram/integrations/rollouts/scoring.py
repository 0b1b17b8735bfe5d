"""Score an answer with an action: which fields it takes, and what its result means; it does not know verl."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from arl_tangram.action import BoundAction
from arl_tangram.calling import Calling
from arl_tangram.errors import BodyExitedError, ConfigurationError, OutOfMemoryError, RunTimeout
from arl_tangram.integrations.rollouts.addresses import find_action
from arl_tangram.integrations.rollouts.rollout import Rollout
from arl_tangram.integrations.rollouts.tool import QUEUE_TIMEOUT_S, bounded
from arl_tangram.model.lifecycle import BodyKind

# What an agent can bring about by what it wrote: if it ended a rollout without a row, that would be a way out of a 0.
_OF_THE_ANSWER = (RunTimeout, OutOfMemoryError, BodyExitedError)

__all__ = ["find_bounded", "has_sandbox", "score", "score_of", "taken_by"]


async def score(runtime: Calling | Rollout, action: BoundAction[..., Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Call an action with those of the fields that its signature names, and return what it says.

    Args:
        runtime: where it runs; in a rollout, it runs in the rollout's sandbox.
        action: returns a number, or a mapping with the key `score`.
        fields: what can be asked for, such as `solution_str` and `ground_truth`.

    Returns:
        `score`, a float, and whatever else the action has put beside it. An answer that is not scored in time, or that
        breaks the process of what scores it, has 0 and the name of the error as `tangram_error`.

    Raises:
        ConfigurationError: it asks for a field that there is not.
        TypeError: it returns something else.
        InfrastructureError: the infrastructure failed; what the body raises passes unchanged.
    """
    given = taken_by(action, fields)
    call = runtime.call if isinstance(runtime, Rollout) else runtime.run
    try:
        result = await call(action, **given)
    except _OF_THE_ANSWER as error:
        return {"score": 0.0, "tangram_error": type(error).__name__}
    return score_of(result, action.spec.name)


@cache
def find_bounded(address: str, *, where: str) -> BoundAction[..., Any]:
    """Return the action that an address names, as one that neither runs nor waits for ever.

    Args:
        address: `module:action`; its `timeout` bounds the running, its `queue_timeout`, or 600 s, the waiting.
        where: the setting that holds the address.

    Raises:
        ConfigurationError: it leads to no action, or to one without a `timeout`.
    """
    return within_bounds(find_action(address, where=where), where=where)


def within_bounds(action: BoundAction[..., Any], *, where: str) -> BoundAction[..., Any]:
    """Return an action as one that neither runs nor waits for ever; see `find_bounded`.

    Raises:
        ConfigurationError: it has no `timeout`.
    """
    spec = action.spec
    if spec.timeout is None:
        text = "has no timeout, so that one rollout could hold up a step for ever: declare it with timeout="
        raise ConfigurationError(f"{where}: {spec.name} {text}")
    return bounded(action, spec.timeout, spec.queue_timeout or QUEUE_TIMEOUT_S)


def taken_by(action: BoundAction[..., Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that the signature of an action names, or all of them if it takes any.

    Raises:
        ConfigurationError: it has another parameter, without a default.
    """
    parameters = inspect.signature(action).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(fields)
    named = [p for p in parameters if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}]
    lacking = [p.name for p in named if p.default is p.empty and p.name not in fields]
    if lacking or any(p.kind is p.POSITIONAL_ONLY and p.default is p.empty for p in parameters):
        raise ConfigurationError(
            f"{action.spec.name} asks for {', '.join(lacking) or 'positional arguments'}; "
            f"there are the fields {', '.join(fields)}"
        )
    return {p.name: fields[p.name] for p in named if p.name in fields}


def score_of(result: Any, name: str) -> dict[str, Any]:
    """Return the score that an action has returned as a float, under `score`, with what stands beside it.

    Raises:
        TypeError: it is neither a finite number nor a mapping with one under `score`.
    """
    beside: dict[str, Any] = {}
    value: Any = result
    if isinstance(result, Mapping):
        beside = {str(key): item for key, item in cast("Mapping[object, Any]", result).items()}
        if "score" not in beside:
            raise TypeError(
                f"{name} has returned a mapping without the key 'score', but {', '.join(beside) or 'empty'}"
            )
        value = beside["score"]
    if not isinstance(value, int | float) and getattr(value, "ndim", None) == 0:
        value = value.item()  # a number of numpy or torch
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"{name} as a reward returns a finite number, or a mapping with one as 'score', not {value!r}")
    return {**beside, "score": float(value)}


def has_sandbox(action: BoundAction[..., Any]) -> bool:
    """Return whether an action runs in the sandbox of its trajectory: it is asynchronous, and costs cores."""
    return action.spec.kind is BodyKind.ASYNC and action.spec.cost.cpu != 0
