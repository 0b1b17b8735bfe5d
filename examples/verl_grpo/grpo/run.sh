#!/bin/sh
# Train a model with GRPO to use tools in sandboxes; the first ten lines are ours, the others those of any training.
#
#     MODEL=Qwen/Qwen2.5-0.5B-Instruct sh run.sh trainer.n_gpus_per_node=1
#
# It needs verl 0.9.1 with an engine such as vLLM, and a GPU. Words behind `run.sh` are more settings of verl; the tests of
# the library run this file on a CPU with a stand-in for the engine.
set -e
cd "$(dirname "$0")"
python make_data.py
PYTHONPATH="$PWD:$PYTHONPATH" exec python -m verl.trainer.main_ppo \
    +tangram.pools=my_agent:pools \
    actor_rollout_ref.rollout.multi_turn.tool_config_path=tools.yaml \
    actor_rollout_ref.rollout.multi_turn.max_parallel_calls=4 \
    actor_rollout_ref.rollout.multi_turn.max_tool_response_length=4096 \
    actor_rollout_ref.rollout.agent.default_agent_loop=tangram_tool_agent \
    +actor_rollout_ref.rollout.agent.agent_loop_manager_class=arl_tangram.integrations.verl.TangramAgentLoopManager \
    reward.custom_reward_function.path=pkg://arl_tangram.integrations.verl \
    +reward.custom_reward_function.reward_kwargs.action=my_agent:grade \
    trainer.v1.sampler.custom_sampler.path=pkg://arl_tangram.integrations.verl \
    trainer.v1.sampler.custom_sampler.name=TangramReplayBuffer \
    actor_rollout_ref.model.path="$MODEL" \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=4 \
    actor_rollout_ref.rollout.multi_turn.max_assistant_turns=4 \
    algorithm.adv_estimator=grpo \
    data.train_files=products.parquet \
    data.val_files=products.parquet \
    data.train_batch_size=4 \
    "$@"
