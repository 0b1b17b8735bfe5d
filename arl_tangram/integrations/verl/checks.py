"""What is wrong with the configuration of a training job, found before anything is started; it knows no verl."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

from arl_tangram.action import BoundAction, invocable_of
from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.rollouts.addresses import find_function
from arl_tangram.integrations.rollouts.scoring import find_bounded, taken_by
from arl_tangram.integrations.rollouts.tool import Tool
from arl_tangram.integrations.verl.settings import Settings
from arl_tangram.runtime import Tangram

__all__ = ["check_job"]

LOOP = "tangram_tool_agent"
OURS = "pkg://arl_tangram.integrations.verl"
FEW_CHARACTERS = 256
"""verl's default for how much of a tool's answer the model sees."""

_MULTI_TURN = "actor_rollout_ref.rollout.multi_turn"
_DEFAULT_LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop"
_REWARD = "reward.custom_reward_function"
_SCORES = f"{_REWARD}.reward_kwargs.action"
_FIELDS = (
    *("answer", "solution_str", "ground_truth", "data_source", "extra_info"),
    *("reward_router_address", "reward_model_tokenizer"),  # where the job has a reward model
)
_SAMPLER = "trainer.v1.sampler"
_FILTER = "algorithm.filter_groups"
_SYNC, _ASYNC = "TangramReplayBuffer", "TangramReplayBufferAsync"
_UNSAID: Mapping[str, Any] = {
    "filter_groups_metric": None,
    "train_batch_size": None,
    "max_inflight_gen_batches": 1,
    "sync_refill_failed_groups": False,
}


def check_job(config: Any, settings: Settings, tools: Sequence[Any]) -> list[str]:
    """Check what the configuration names, and return what it probably does not mean.

    Args:
        config: the configuration of the whole job.
        settings: its block `tangram`.
        tools: those that its workers will have; each has a `name`.

    Returns:
        Warnings: defaults of verl that cut what tools do, settings that have no effect.

    Raises:
        ConfigurationError: two tools have one name, an address leads nowhere, an action has no `timeout` or takes of a
            quota that is not declared, something looks for a runtime of another name, or our sampler is not told what
            verl would tell its own.
    """
    names = Counter(str(tool.name) for tool in tools)
    if twice := sorted(name for name, times in names.items() if times > 1):
        raise ConfigurationError(
            f"tools: more than one is called {', '.join(map(repr, twice))}; verl would use the last"
        )
    quotas = {quota.name for quota in declared(settings.pools).setup.quotas}
    if settings.nodes is not None:
        find_function(settings.nodes, where="tangram.nodes")  # not called: it may ask Ray
    called = {f"the tool {tool.name!r}": tool.tool.action for tool in tools if _is_ours(tool)}
    for name in ("setup", "reward"):
        address: str | None = getattr(settings, name)
        if address is not None:
            called[f"tangram.{name}"] = find_bounded(address, where=f"tangram.{name}")
    scores = _scoring(config, settings)
    if scores is not None:
        called[_SCORES] = scores
    for who, action in called.items():
        _check_quotas(who, action, quotas)
    _check_runtimes(config, settings, tools)
    _check_sampler(config)
    return [*_cuts(config, tools), *_without_effect(config, settings), *_filtered(config, settings)]


def declared(address: str) -> Tangram:
    """Return the `Tangram` that a function returns, not opened.

    Args:
        address: of the function, `module:name`.

    Raises:
        ConfigurationError: it leads nowhere, fails, or returns something else.
    """
    where = "tangram.pools"
    factory = find_function(address, where=where)
    made: object = factory
    if not inspect.iscoroutinefunction(factory):  # nor an action, which is one
        try:
            made = factory()
        except Exception as error:
            raise ConfigurationError(f"{where}: {address} failed: {type(error).__name__}: {error}") from error
    if isinstance(made, Tangram):
        return made
    raise ConfigurationError(
        f"{where}: {address} is a plain function that returns a Tangram, not opened; this is {made!r}"
    )


def _check_quotas(who: str, action: BoundAction[..., Any], quotas: AbstractSet[str]) -> None:
    """Check that what an action takes of quotas is declared: each of its calls would fail, and its rollout be lost.

    Raises:
        ConfigurationError: it is not.
    """
    for name, _ in invocable_of(action).spec.cost.quota:
        if name not in quotas:
            raise ConfigurationError(
                f"{who} takes of the quota {name!r}, and tangram.pools declares "
                f"{', '.join(map(repr, sorted(quotas))) or 'none'}"
            )


def _is_ours(tool: Any) -> bool:
    return isinstance(getattr(tool, "tool", None), Tool)


def _check_runtimes(config: Any, settings: Settings, tools: Sequence[Any]) -> None:
    """Check that each tool of ours looks for the runtime that there will be.

    Raises:
        ConfigurationError: one looks for another.
    """
    unless_said = settings.name if _at(config, _DEFAULT_LOOP) == LOOP else "tangram"
    for tool in tools:
        if _is_ours(tool) and (tool.runtime or unless_said) != settings.name:
            raise ConfigurationError(
                f"the runtime is called {settings.name!r}, and the tool {tool.name!r} looks for "
                f"{tool.runtime or unless_said!r}: say runtime: {settings.name} under its config:"
            )


def _check_sampler(config: Any) -> None:
    """Check that our sampler is the one for the trainer's mode, and is told what verl tells its own only.

    Raises:
        ConfigurationError: it is not; the lines to add are named.
    """
    name = _at(config, f"{_SAMPLER}.custom_sampler.name")
    if _at(config, f"{_SAMPLER}.custom_sampler.path") != OURS or name not in {_SYNC, _ASYNC}:
        return
    mode = _at(config, "trainer.v1.trainer_mode")
    right = _SYNC if mode == "sync" else _ASYNC
    if name != right:
        raise ConfigurationError(
            f"trainer.v1.trainer_mode={mode} needs another sampler: {_SAMPLER}.custom_sampler.name={right}"
        )
    told: dict[str, Any] = {**_UNSAID, **(_at(config, f"{_SAMPLER}.sampler_kwargs") or {})}
    lines = [
        f"+{_SAMPLER}.sampler_kwargs.{key}={'null' if value is None else value}"
        for key, value in _to_tell(config, is_sync=mode == "sync").items()
        if told[key] != value
    ]
    if lines:
        raise ConfigurationError(
            "verl tells a sampler that is not its own nothing of algorithm.filter_groups and of "
            f"{_SAMPLER}.sync_refill_failed_groups; say it again: {' '.join(lines)}"
        )


def _to_tell(config: Any, *, is_sync: bool) -> dict[str, Any]:
    """Return what verl tells its own sampler of the filtering and the replacement of groups."""
    filters = bool(_at(config, f"{_FILTER}.enable"))
    tell: dict[str, Any] = {"filter_groups_metric": _at(config, f"{_FILTER}.metric") if filters else None}
    if is_sync:
        tell["sync_refill_failed_groups"] = bool(_at(config, f"{_SAMPLER}.sync_refill_failed_groups"))
    if is_sync and filters:
        tell["train_batch_size"] = _at(config, "data.train_batch_size")
        tell["max_inflight_gen_batches"] = _at(config, f"{_FILTER}.max_inflight_gen_batches") or 1
    return tell


def _filtered(config: Any, settings: Settings) -> list[str]:
    """Return what ends the training if groups are filtered by what only some answers are told beside their score."""
    metric = _at(config, f"{_FILTER}.metric")
    is_ours = settings.reward is not None or _at(config, f"{_REWARD}.path") == OURS
    if not is_ours or not _at(config, f"{_FILTER}.enable") or metric in {"reward", "score"}:
        return []
    text = (
        f"{_FILTER}.metric={metric}: an answer that breaks what scores it has a score of 0 and may have no {metric}, "
        f"which ends verl's training; say {_FILTER}.metric=reward, or annotate what the action returns by a TypedDict"
    )
    return [text]


def _scoring(config: Any, settings: Settings) -> BoundAction[..., Any] | None:
    """Return the action that our reward function is to call, in the runtime that there will be; None if it is not ours.

    Raises:
        ConfigurationError: none is named, or it leads nowhere, or asks for no field, or that is another runtime.
    """
    if _at(config, f"{_REWARD}.path") != OURS or _at(config, f"{_REWARD}.name") != "compute_score":
        return None
    action, runtime = _at(config, _SCORES), _at(config, f"{_REWARD}.reward_kwargs.runtime")
    if not isinstance(action, str):
        raise ConfigurationError(f"compute_score needs the action that scores: +{_SCORES}=module:action")
    found = find_bounded(action, where=_SCORES)
    further: Mapping[str, Any] = _at(config, f"{_REWARD}.reward_kwargs")
    try:
        taken_by(found, dict.fromkeys([*_FIELDS, *(str(key) for key in further if key not in {"action", "runtime"})]))
    except ConfigurationError as error:
        raise ConfigurationError(f"{_SCORES}: {error}") from None
    if (runtime or "tangram") != settings.name:
        raise ConfigurationError(
            f"the runtime is called {settings.name!r}, and rewards look for {runtime or 'tangram'!r}: "
            f"say +{_REWARD}.reward_kwargs.runtime={settings.name}"
        )
    return found


def _cuts(config: Any, tools: Sequence[Any]) -> list[str]:
    """Return which defaults of verl drop calls and text of tools."""
    found: list[str] = []
    if tools and _at(config, f"{_MULTI_TURN}.max_parallel_calls") == 1:
        found.append(
            f"{_MULTI_TURN}.max_parallel_calls=1: of several calls in one turn, verl runs the first, and drops the rest"
        )
    if tools and _at(config, f"{_MULTI_TURN}.max_tool_response_length") == FEW_CHARACTERS:
        found.append(
            f"{_MULTI_TURN}.max_tool_response_length={FEW_CHARACTERS}: the model sees {FEW_CHARACTERS} characters of a "
            "tool's answer; Tangram's own tools print up to 4000"
        )
    return found


def _without_effect(config: Any, settings: Settings) -> list[str]:
    """Return which settings only our loop follows, if it is not the default one."""
    loop = _at(config, _DEFAULT_LOOP)
    if loop == LOOP:
        return []
    follow = {"setup": settings.setup, "reward": settings.reward, "deadline_s": settings.deadline_s}
    unused = [f"tangram.{name}" for name, value in follow.items() if value is not None]
    also = f"; {', '.join(unused)} have no effect there" if unused else ""
    text = (
        f"{_DEFAULT_LOOP}={loop}, not {LOOP}: rollouts whose samples name no other loop have a sandbox for each call, "
        f"and what is lost is told to the model instead of masked{also}"
    )
    return [text]


def _at(config: Any, path: str) -> Any:
    """Return what a configuration has under a dotted path, or None."""
    here: Any = config
    for key in path.split("."):
        if not isinstance(here, Mapping):
            return None
        here = cast("Mapping[str, Any]", here).get(key)
    return here
