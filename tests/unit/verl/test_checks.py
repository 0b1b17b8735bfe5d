from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.verl.checks import REWARDS, check_job
from arl_tangram.integrations.verl.settings import Settings


def pools() -> tangram.Tangram:
    return tangram.Tangram(tangram.LocalPool(cores=1))


@tangram.action(cpu=1)
def endless(answer: str) -> float:
    return 1.0


@tangram.action(cpu=1, timeout=10)
def grade(answer: str) -> float:
    return 1.0


POOLS = f"{__name__}:pools"
GRADE = f"{__name__}:grade"
TOOLS = [SimpleNamespace(name="bash"), SimpleNamespace(name="python")]
GOOD: dict[str, Any] = {
    "actor_rollout_ref": {
        "rollout": {
            "multi_turn": {"max_parallel_calls": 4, "max_tool_response_length": 4096},
            "agent": {"default_agent_loop": "tangram_tool_agent"},
        }
    },
    "reward": {
        "custom_reward_function": {"path": REWARDS, "name": "compute_score", "reward_kwargs": {"action": GRADE}}
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    config = copy.deepcopy(GOOD)
    *folders, last = path.split(".")
    here = config
    for folder in folders:
        here = here[folder]
    here[last] = value
    return config


def test_a_job_that_says_all_is_not_warned_of() -> None:
    assert check_job(GOOD, Settings(POOLS, setup=GRADE, reward=GRADE, deadline_s=9), TOOLS) == []


def test_the_manager_warns_of_one_parallel_call_and_of_256_characters() -> None:
    multi_turn = "actor_rollout_ref.rollout.multi_turn"
    (one,) = check_job(changed(f"{multi_turn}.max_parallel_calls", 1), Settings(POOLS), TOOLS)
    assert one.startswith(f"{multi_turn}.max_parallel_calls=1: ")
    (few,) = check_job(changed(f"{multi_turn}.max_tool_response_length", 256), Settings(POOLS), TOOLS)
    assert few.startswith(f"{multi_turn}.max_tool_response_length=256: ")


def test_it_warns_of_another_loop_and_of_what_has_no_effect_there() -> None:
    config = changed("actor_rollout_ref.rollout.agent.default_agent_loop", "tool_agent")
    (warning,) = check_job(config, Settings(POOLS, setup=GRADE, deadline_s=9), TOOLS)
    assert "default_agent_loop=tool_agent, not tangram_tool_agent" in warning
    assert "tangram.setup, tangram.deadline_s have no effect" in warning


def test_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="more than one is called 'bash'; verl would use the last"):
        check_job(GOOD, Settings(POOLS), [*TOOLS, SimpleNamespace(name="bash")])


@pytest.mark.parametrize("key", ["pools", "setup", "reward"])
def test_an_address_that_leads_nowhere_is_told_with_its_key(key: str) -> None:
    settings = Settings(**{"pools": POOLS, key: "no_such_agent:it"})
    with pytest.raises(ConfigurationError, match=rf"tangram\.{key}: .*no_such_agent"):
        check_job(GOOD, settings, TOOLS)


def test_an_action_without_a_timeout_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"tangram\.setup: .*endless has no timeout"):
        check_job(GOOD, Settings(POOLS, setup=f"{__name__}:endless"), TOOLS)
    config = changed("reward.custom_reward_function.reward_kwargs.action", f"{__name__}:endless")
    with pytest.raises(ConfigurationError, match=r"reward_kwargs\.action: .*endless has no timeout"):
        check_job(config, Settings(POOLS), TOOLS)


def test_a_reward_needs_an_action_that_there_is() -> None:
    where = r"reward\.custom_reward_function\.reward_kwargs"
    key = "reward.custom_reward_function.reward_kwargs"
    with pytest.raises(ConfigurationError, match=rf"needs the action .*\+{where}\.action=module:action"):
        check_job(changed(key, {}), Settings(POOLS), TOOLS)
    with pytest.raises(ConfigurationError, match=rf"{where}\.action: .*no_such_agent"):
        check_job(changed(f"{key}.action", "no_such_agent:grade"), Settings(POOLS), TOOLS)


def test_a_reward_that_looks_for_another_runtime_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"called 'mine', and rewards look for 'tangram': .*runtime=mine"):
        check_job(GOOD, Settings(POOLS, name="mine"), TOOLS)


def test_a_reward_function_that_is_not_ours_is_not_looked_into() -> None:
    config = changed("reward.custom_reward_function", {"path": "their.py", "name": "compute_score"})
    assert check_job(config, Settings(POOLS, name="mine"), TOOLS) == []
