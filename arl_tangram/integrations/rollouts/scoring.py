"""Score an answer with an action: which fields it takes, and what its result or its error means."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, cast, get_type_hints, is_typeddict

from arl_tangram.action import BoundAction
from arl_tangram.calling import Calling
from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.rollouts.addresses import find_action
from arl_tangram.integrations.rollouts.rollout import Rollout
from arl_tangram.integrations.rollouts.tool import QUEUE_TIMEOUT_S, bounded
from arl_tangram.integrations.rollouts.wording import infrastructure_error, is_own
from arl_tangram.model.lifecycle import BodyKind

__all__ = ["find_bounded", "has_sandbox", "score", "score_of", "scored_0", "taken_by", "within_bounds"]

_logger = logging.getLogger(__name__)
_told: set[tuple[str, str]] = set()  # of which action which class of error was told


async def score(runtime: Calling | Rollout, action: BoundAction[..., Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Call an action with those of the fields that its signature names, and return what it says.

    Args:
        runtime: where it runs; in a rollout, it runs in the rollout's sandbox.
        action: returns a number, or a mapping with the key `score`.
        fields: what can be asked for, such as `solution_str` and `ground_truth`.

    Returns:
        `score`, a float, `tangram_error`, a text, and whatever else the action has put beside it. Whatever the body
        does wrong, the answer has 0 and the class of the error as `tangram_error`, which is empty otherwise: an agent
        can bring about an error of what scores it, and must not escape a low reward by that. What else the action
        returns is then 0 or None, if its return annotation is a TypedDict, which says what that is.

    Raises:
        ConfigurationError: it asks for a field that there is not.
        InfrastructureError: the infrastructure failed.
        TangramError: something is declared or used in a wrong way, such as a cost that no pool can meet.
    """
    given = taken_by(action, fields)
    call = runtime.call if isinstance(runtime, Rollout) else runtime.run
    name = action.spec.name
    try:
        scored = score_of(await call(action, **given), name)
    except Exception as error:
        if infrastructure_error(error) is not None or not is_own(error):
            raise
        return _declared(action) | scored_0(error, name)
    return {"score": scored["score"], "tangram_error": "", **scored}


def scored_0(error: BaseException, name: str) -> dict[str, Any]:
    """Return the score of an answer that what scores it could not take, and log why, once for each class of error.

    Args:
        error: what it raised.
        name: what it is called in the log.
    """
    kind = type(error).__name__
    if (name, kind) not in _told:
        _told.add((name, kind))
        _logger.warning("%s raised %s, for which an answer scores 0", name, kind, exc_info=error)
    return {"score": 0.0, "tangram_error": kind}


def _declared(action: BoundAction[..., Any]) -> dict[str, Any]:
    """Return what an action says that it returns, with 0 for numbers and None for all else; nothing if it does not."""
    try:
        returned = get_type_hints(action).get("return")
        named = get_type_hints(returned) if returned is not None and is_typeddict(returned) else {}
    except Exception:  # noqa: BLE001 - names that only a type checker sees
        return {}
    return {key: 0.0 if hint in {float, int, bool} else None for key, hint in named.items()}


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
        raise TypeError(f"{name} returns a finite number as a score, or a mapping with one as 'score', not {value!r}")
    return {**beside, "score": float(value)}


def has_sandbox(action: BoundAction[..., Any]) -> bool:
    """Return whether an action runs in the sandbox of its trajectory: it is asynchronous, and costs cores."""
    return action.spec.kind is BodyKind.ASYNC and action.spec.cost.cpu != 0
