from verl.experimental.agent_loop.agent_loop import AgentLoopBase as AgentLoopBase
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput as AgentLoopOutput
