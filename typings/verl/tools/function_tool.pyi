from collections.abc import Callable
from typing import Any, TypeVar

from verl.tools.schemas import OpenAIFunctionToolSchema

_F = TypeVar("_F", bound=Callable[..., Any])

class FunctionTool:
    name: str
    fn: Callable[..., Any]
    tool_schema: OpenAIFunctionToolSchema
    is_async: bool

FUNCTION_TOOL_REGISTRY: dict[str, FunctionTool]

def function_tool(
    name: str | None = None, *, schema: OpenAIFunctionToolSchema | dict[str, Any] | None = None
) -> Callable[[_F], _F]: ...
