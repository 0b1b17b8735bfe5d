from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ as AgentLoopManagerTQ
