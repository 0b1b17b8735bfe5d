"""What is wrong with the configuration of a training job, found before anything is started; it knows no verl."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.rollouts.addresses import find_function
from arl_tangram.integrations.rollouts.scoring import find_bounded
from arl_tangram.integrations.verl.settings import Settings

__all__ = ["check_job"]

LOOP = "tangram_tool_agent"
REWARDS = "pkg://arl_tangram.integrations.verl"
FEW_CHARACTERS = 256
"""verl's default for how much of a tool's answer the model sees."""

_MULTI_TURN = "actor_rollout_ref.rollout.multi_turn"
_DEFAULT_LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop"
_REWARD = "reward.custom_reward_function"


def check_job(config: Any, settings: Settings, tools: Sequence[Any]) -> list[str]:
    """Check what the configuration names, and return what it probably does not mean.

    Args:
        config: the configuration of the whole job.
        settings: its block `tangram`.
        tools: those that its workers will have; each has a `name`.

    Returns:
        Warnings: defaults of verl that cut what tools do, settings that have no effect.

    Raises:
        ConfigurationError: two tools have one name, an address leads nowhere, or an action has no `timeout`.
    """
    names = Counter(str(tool.name) for tool in tools)
    if twice := sorted(name for name, times in names.items() if times > 1):
        raise ConfigurationError(
            f"tools: more than one is called {', '.join(map(repr, twice))}; verl would use the last"
        )
    find_function(settings.pools, where="tangram.pools")
    for name in ("setup", "reward"):
        address: str | None = getattr(settings, name)
        if address is not None:
            find_bounded(address, where=f"tangram.{name}")
    _check_reward(config, settings)
    return [*_cuts(config, tools), *_without_effect(config, settings)]


def _check_reward(config: Any, settings: Settings) -> None:
    """Check the action that our reward function is to call, and in which runtime.

    Raises:
        ConfigurationError: none is named, or it leads nowhere, or that is another runtime.
    """
    if _at(config, f"{_REWARD}.path") != REWARDS or _at(config, f"{_REWARD}.name") != "compute_score":
        return
    where = f"{_REWARD}.reward_kwargs"
    action, runtime = _at(config, f"{where}.action"), _at(config, f"{where}.runtime")
    if not isinstance(action, str):
        raise ConfigurationError(f"compute_score needs the action that scores: +{where}.action=module:action")
    find_bounded(action, where=f"{where}.action")
    if (runtime or "tangram") != settings.name:
        raise ConfigurationError(
            f"the runtime is called {settings.name!r}, and rewards look for {runtime or 'tangram'!r}: "
            f"say +{where}.runtime={settings.name}"
        )


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
