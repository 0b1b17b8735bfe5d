from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.tools.base_tool import BaseTool
from verl.tools.function_tool import FunctionTool

class ToolAgentLoop(AgentLoopBase):
    tools: dict[str, BaseTool | FunctionTool]
    tool_schemas: list[dict[str, Any]]
    tool_parser: Any
    def __init__(self, *args: Any, tools: Any = None, **kwargs: Any) -> None: ...
    async def run(self, sampling_params: dict[str, Any], priority: int = 0, **kwargs: Any) -> AgentLoopOutput: ...
