"""A step of rollouts with verl's own batch-wise workers, as actors of Ray: two for loops and two for rewards.

Then two rollouts more, in a runtime and a worker of their own, which are set up and scored in their sandboxes.
`worker_program.py MODEL TOOLS` prints one line of JSON with what the trainer would get.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import ray
import worker_agent
from hydra import compose, initialize_config_module
from scripted import ScriptedLLM
from verl.experimental.reward_loop import RewardLoopManager
from verl.protocol import DataProto

from arl_tangram.integrations.verl import TangramBatchAgentLoopManager

ROLLOUTS, GROUP = 16, 4
IN_SANDBOX = ["+tangram.setup=worker_agent:begin", "+tangram.reward=worker_agent:count"]

OURS = "arl_tangram.integrations.verl"


def config(model: str, tools: str, workers: int, *more: str) -> Any:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(
            "ppo_trainer",
            [
                "+tangram.pools=worker_agent:pools",
                "+tangram.memory_gib=0.05",
                f"actor_rollout_ref.model.path={model}",
                "+actor_rollout_ref.model.override_config.attn_implementation=eager",
                "actor_rollout_ref.rollout.name=vllm",
                "actor_rollout_ref.rollout.prompt_length=2048",
                "actor_rollout_ref.rollout.response_length=512",
                f"actor_rollout_ref.rollout.n={GROUP}",
                f"actor_rollout_ref.rollout.agent.num_workers={workers}",
                "actor_rollout_ref.rollout.agent.default_agent_loop=tangram_tool_agent",
                "actor_rollout_ref.rollout.multi_turn.enable=True",
                f"actor_rollout_ref.rollout.multi_turn.tool_config_path={tools}",
                "actor_rollout_ref.rollout.multi_turn.max_parallel_calls=4",
                "actor_rollout_ref.rollout.multi_turn.max_tool_response_length=4096",
                "reward.num_workers=2",
                f"reward.custom_reward_function.path=pkg://{OURS}",
                "+reward.custom_reward_function.reward_kwargs.action=worker_agent:grade",
                "reward.reward_manager.source=importlib",
                "reward.reward_manager.name=TangramRewardManager",
                f"reward.reward_manager.module.path=pkg://{OURS}",
                *more,
            ],
        )


def objects(values: list[Any]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def prompts(rollouts: int) -> DataProto:
    numbers = range(rollouts)
    return DataProto(
        non_tensor_batch={
            "raw_prompt": objects([[{"role": "user", "content": worker_agent.question(n)}] for n in numbers]),
            "uid": objects([f"group{n // GROUP}" for n in numbers]),
            "data_source": objects(["notes"] * rollouts),
            "reward_model": objects([{"style": "rule", "ground_truth": "2" if n % 2 else "3"} for n in numbers]),
            "extra_info": objects([{"index": n} for n in numbers]),
        },
        meta_info={"global_steps": 1, "validate": False},
    )


def in_sandboxes(settings: Any, llm: ScriptedLLM, rewards: RewardLoopManager) -> dict[str, Any]:
    """Play two rollouts whose sandboxes an action sets up and another one scores, and return what they have."""
    manager = TangramBatchAgentLoopManager.create(
        config=settings, llm_client=llm, reward_loop_worker_handles=rewards.reward_loop_worker_handles
    )
    try:
        batch = manager.generate_sequences(prompts(2))
    finally:
        manager.close()
    beside = batch.non_tensor_batch
    return {
        "scores": batch.batch["rm_scores"].sum(-1).tolist(),
        "answers": list(beside["tangram_answer"]),
        "first": list(beside["first"]),
        "is_known": beside["is_known"].tolist(),
        "called": sorted(name for name in batch.meta_info["timing"] if name.endswith("/calls")),
    }


def main(model: str, tools: str) -> None:
    ray.init(num_cpus=6, address="local", include_dashboard=False)
    settings = config(model, tools, 2)
    rewards = RewardLoopManager(settings)
    llm = ScriptedLLM(model, worker_agent.says)
    manager = TangramBatchAgentLoopManager.create(
        config=settings, llm_client=llm, reward_loop_worker_handles=rewards.reward_loop_worker_handles
    )
    try:
        batch = manager.generate_sequences(prompts(ROLLOUTS))
        left = manager.runtime.statistics()
    finally:
        manager.close()
    alone = in_sandboxes(config(model, tools, 1, *IN_SANDBOX), llm, rewards)
    beside = batch.non_tensor_batch
    told = {
        "scores": batch.batch["rm_scores"].sum(-1).tolist(),
        "trained": batch.batch["response_mask"].sum(-1).tolist(),
        "masked": beside["tangram_masked"].tolist(),
        "letters": beside["letters"].tolist(),
        "answers": list(beside["tangram_answer"]),
        "tools": list(beside["tangram_tools"]),
        "alone": alone,
        "left": [left.running, left.waiting, left.trajectories],
        "timing": {k: float(v) for k, v in batch.meta_info["timing"].items() if k.startswith("tangram/")},
        "actors": [each["name"] for each in ray.util.list_named_actors(all_namespaces=True)],
    }
    print(f"\n[told] {json.dumps(told)}", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
