from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.rollouts.tool import Tool
from arl_tangram.integrations.verl.checks import OURS, check_job
from arl_tangram.integrations.verl.settings import Settings


def pools() -> tangram.Tangram:
    return tangram.Tangram(tangram.LocalPool(cores=1))


def pools_with_quota() -> tangram.Tangram:
    return tangram.Tangram(tangram.LocalPool(cores=1), tangram.Quota("search", calls=9, period_s=1))


def a_pool() -> tangram.LocalPool:
    return tangram.LocalPool(cores=1)


def broken_pools() -> tangram.Tangram:
    return tangram.Tangram(tangram.LocalPool(cores=-1))


@tangram.action(cpu=1)
def endless(answer: str) -> float:
    return 1.0


@tangram.action(quota={"search": 1}, timeout=10)
def search(query: str) -> str:
    """Search the web.

    Args:
        query: what for.
    """
    return query


@tangram.action(cpu=1, timeout=10)
def grade(answer: str) -> float:
    """Score an answer.

    Args:
        answer: it.
    """
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
    "reward": {"custom_reward_function": {"path": OURS, "name": "compute_score", "reward_kwargs": {"action": GRADE}}},
    "algorithm": {"filter_groups": {"enable": False, "metric": "reward", "max_inflight_gen_batches": 1}},
    "data": {"train_batch_size": 64},
    "trainer": {
        "v1": {
            "trainer_mode": "sync",
            "sampler": {
                "sync_refill_failed_groups": False,
                "custom_sampler": {"path": OURS, "name": "TangramReplayBuffer"},
                "sampler_kwargs": {},
            },
        }
    },
}
SAMPLER = "trainer.v1.sampler"


def changed(path: str, value: Any, config: dict[str, Any] = GOOD) -> dict[str, Any]:
    config = copy.deepcopy(config)
    *folders, last = path.split(".")
    here = config
    for folder in folders:
        here = here[folder]
    here[last] = value
    return config


def told_again(config: dict[str, Any]) -> list[str]:
    """Return which lines a job is refused for the lack of."""
    with pytest.raises(ConfigurationError, match="verl tells a sampler that is not its own nothing") as refused:
        check_job(config, Settings(POOLS), TOOLS)
    return str(refused.value).partition("say it again: ")[2].split()


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


@pytest.mark.parametrize("key", ["pools", "nodes", "setup", "reward"])
def test_an_address_that_leads_nowhere_is_told_with_its_key(key: str) -> None:
    settings = Settings(**{"pools": POOLS, key: "no_such_agent:it"})
    with pytest.raises(ConfigurationError, match=rf"tangram\.{key}: .*no_such_agent"):
        check_job(GOOD, settings, TOOLS)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a_pool", "is a plain function that returns a Tangram, not opened; this is LocalPool"),
        ("endless", "is a plain function that returns a Tangram, not opened; this is <function endless"),
        ("broken_pools", "failed: ConfigurationError: .*cores"),
    ],
)
def test_what_returns_no_pools_is_refused(name: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^tangram\.pools: \S+:{name} {words}"):
        check_job(GOOD, Settings(f"{__name__}:{name}"), TOOLS)


def test_a_quota_that_no_pools_declare_is_refused() -> None:
    tool = SimpleNamespace(name="web", runtime=None, tool=Tool.declare(search))
    with pytest.raises(ConfigurationError, match=r"'web' takes of the quota 'search'.*declares none"):
        check_job(GOOD, Settings(POOLS), [tool])
    assert check_job(GOOD, Settings(f"{__name__}:pools_with_quota"), [tool]) == []
    address = f"{__name__}:search"
    for settings in (Settings(POOLS, setup=address), Settings(POOLS, reward=address)):
        with pytest.raises(ConfigurationError, match=r"tangram\.(setup|reward) takes of the quota 'search'"):
            check_job(GOOD, settings, TOOLS)
    scoring = changed("reward.custom_reward_function.reward_kwargs", {"action": address, "query": "x"})
    with pytest.raises(ConfigurationError, match=r"reward_kwargs\.action takes of the quota 'search'"):
        check_job(scoring, Settings(POOLS), TOOLS)


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


def test_a_reward_that_asks_for_no_field_is_refused() -> None:
    job = copy.deepcopy(GOOD)
    job["reward"]["custom_reward_function"]["reward_kwargs"] |= {"action": f"{__name__}:search"}
    with pytest.raises(
        ConfigurationError, match=r"reward_kwargs\.action: .*search asks for query; there are .* answer"
    ):
        check_job(job, Settings(pools=f"{__name__}:pools_with_quota"), TOOLS)
    job["reward"]["custom_reward_function"]["reward_kwargs"] |= {"query": "x"}
    assert check_job(job, Settings(pools=f"{__name__}:pools_with_quota"), TOOLS) == []


def test_a_reward_that_looks_for_another_runtime_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"called 'mine', and rewards look for 'tangram': .*runtime=mine"):
        check_job(GOOD, Settings(POOLS, name="mine"), TOOLS)


def test_a_reward_function_that_is_not_ours_is_not_looked_into() -> None:
    config = changed("reward.custom_reward_function", {"path": "their.py", "name": "compute_score"})
    assert check_job(config, Settings(POOLS, name="mine"), TOOLS) == []


def test_filtering_of_groups_that_would_have_no_effect_is_refused_with_the_lines_to_add() -> None:
    config = changed("algorithm.filter_groups.enable", value=True)
    assert told_again(config) == [
        f"+{SAMPLER}.sampler_kwargs.filter_groups_metric=reward",
        f"+{SAMPLER}.sampler_kwargs.train_batch_size=64",
    ]
    more = changed("algorithm.filter_groups.max_inflight_gen_batches", 2, config)
    kwargs = {"filter_groups_metric": "reward", "train_batch_size": 64}
    more = changed(f"{SAMPLER}.sampler_kwargs", kwargs, more)
    assert told_again(more) == [f"+{SAMPLER}.sampler_kwargs.max_inflight_gen_batches=2"]
    all_told = changed(f"{SAMPLER}.sampler_kwargs", {**kwargs, "max_inflight_gen_batches": 2}, more)
    assert check_job(all_told, Settings(POOLS), TOOLS) == []
    # The other way round, verl would bring prompts in whole batches where the sampler asks for single ones.
    unfiltered = changed("algorithm.filter_groups.enable", value=False, config=all_told)
    assert told_again(unfiltered) == [f"+{SAMPLER}.sampler_kwargs.filter_groups_metric=null"]


def test_the_replacement_of_failed_groups_is_to_be_told_again() -> None:
    config = changed(f"{SAMPLER}.sync_refill_failed_groups", value=True)
    assert told_again(config) == [f"+{SAMPLER}.sampler_kwargs.sync_refill_failed_groups=True"]
    told = changed(f"{SAMPLER}.sampler_kwargs", {"sync_refill_failed_groups": True}, config)
    assert check_job(told, Settings(POOLS), TOOLS) == []


def test_each_mode_of_the_trainer_has_its_sampler() -> None:
    late = changed("trainer.v1.trainer_mode", "separate_async")
    with pytest.raises(ConfigurationError, match=r"custom_sampler\.name=TangramReplayBufferAsync"):
        check_job(late, Settings(POOLS), TOOLS)
    right = changed(f"{SAMPLER}.custom_sampler.name", "TangramReplayBufferAsync", late)
    assert check_job(right, Settings(POOLS), TOOLS) == []
    assert told_again(changed("algorithm.filter_groups.enable", value=True, config=right)) == [
        f"+{SAMPLER}.sampler_kwargs.filter_groups_metric=reward"
    ]
    wrong = changed("trainer.v1.trainer_mode", "sync", right)
    with pytest.raises(ConfigurationError, match=r"trainer_mode=sync .*custom_sampler\.name=TangramReplayBuffer$"):
        check_job(wrong, Settings(POOLS), TOOLS)


def test_a_sampler_that_is_not_ours_is_not_looked_into() -> None:
    config = changed("algorithm.filter_groups.enable", value=True)
    for their in ({"path": None, "name": None}, {"path": "their.py", "name": "TangramReplayBuffer"}):
        assert check_job(changed(f"{SAMPLER}.custom_sampler", their, config), Settings(POOLS), TOOLS) == []


def test_it_warns_of_filtering_by_what_a_broken_answer_has_not() -> None:
    config = changed("algorithm.filter_groups", {"enable": True, "metric": "acc"})
    config = changed(f"{SAMPLER}.sampler_kwargs", {"filter_groups_metric": "acc", "train_batch_size": 64}, config)
    (warning,) = check_job(config, Settings(POOLS), TOOLS)
    assert "say algorithm.filter_groups.metric=reward, or annotate" in warning
    own = changed("reward.custom_reward_function", {"path": "their.py", "name": "compute_score"}, config)
    assert check_job(own, Settings(POOLS), TOOLS) == []


@pytest.mark.parametrize(
    ("loop", "name", "runtime", "looked_for"),
    [
        ("tangram_tool_agent", "mine", None, None),
        ("tangram_tool_agent", "mine", "tangram", "tangram"),
        ("tool_agent", "tangram", None, None),
        ("tool_agent", "mine", "mine", None),
        ("tool_agent", "mine", None, "tangram"),
    ],
)
def test_a_tool_that_looks_for_another_runtime_is_refused(
    loop: str, name: str, runtime: str | None, looked_for: str | None
) -> None:
    tool = SimpleNamespace(name="grade", runtime=runtime, tool=Tool.declare(grade))
    config = changed("actor_rollout_ref.rollout.agent.default_agent_loop", loop)
    config = changed("reward.custom_reward_function.reward_kwargs.runtime", name, config)
    if looked_for is None:
        check_job(config, Settings(POOLS, name=name), [tool])
        return
    with pytest.raises(ConfigurationError, match=f"'grade' looks for '{looked_for}': say runtime: {name} under"):
        check_job(config, Settings(POOLS, name=name), [tool])
