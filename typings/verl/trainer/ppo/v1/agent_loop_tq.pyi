from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopManager

class AgentLoopManagerTQ(AgentLoopManager):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def generate_sequences(self, prompts: Any) -> None: ...
