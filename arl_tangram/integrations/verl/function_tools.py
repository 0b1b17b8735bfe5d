"""Actions as function tools of verl, for the file that `multi_turn.function_tool_path` names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from verl.tools.function_tool import FUNCTION_TOOL_REGISTRY
from verl.tools.function_tool import function_tool as verl_function_tool

from arl_tangram.action import BoundAction
from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.rollouts.tool import Tool
from arl_tangram.integrations.verl.schemas import verl_schema
from arl_tangram.integrations.verl.using import use

A = TypeVar("A", bound=BoundAction[..., Any])


@overload
def function_tool(
    action: A, *, name: str | None = ..., timeout_s: float | None = ..., queue_timeout_s: float | None = ...
) -> A: ...
@overload
def function_tool(
    action: None = ..., *, name: str | None = ..., timeout_s: float | None = ..., queue_timeout_s: float | None = ...
) -> Callable[[A], A]: ...
def function_tool(
    action: A | None = None,
    *,
    name: str | None = None,
    timeout_s: float | None = None,
    queue_timeout_s: float | None = None,
) -> A | Callable[[A], A]:
    """Register an action with verl as a function tool, and return the action.

    Use it as a decorator above `@tangram.action(...)`, or call it with an action of another module. An action that is
    to take something from the dataset needs `TangramTool`: verl gives a function tool what the model says, and no more.

    Args:
        action: the action.
        name: what the model calls it; the name of the action by default.
        timeout_s: seconds that a call may run, if the action has no `timeout` of its own, or another one.
        queue_timeout_s: seconds that it may wait to run, 600 if neither this nor the action says so.

    Raises:
        ConfigurationError: nothing says how long a call may run, or another function tool has this name.
        DefinitionError: a parameter of the action has a type that no schema can express.
    """
    if action is None:
        return lambda action: _register(action, name, timeout_s, queue_timeout_s)
    return _register(action, name, timeout_s, queue_timeout_s)


def _register(action: A, name: str | None, timeout_s: float | None, queue_timeout_s: float | None) -> A:
    where = f"function_tool({getattr(action, '__qualname__', action)!s})"
    tool = Tool.declare(action, name=name, timeout_s=timeout_s, queue_timeout_s=queue_timeout_s, where=where)
    if (other := FUNCTION_TOOL_REGISTRY.get(tool.name)) is not None:
        raise ConfigurationError(
            f"{where}: a function tool named {tool.name!r} is registered already, from {other.fn.__module__}"
        )

    async def call(**arguments: Any) -> str:
        return await use(tool, arguments, {}, None)

    call.__module__, call.__qualname__ = action.__module__, action.__qualname__
    verl_function_tool(tool.name, schema=verl_schema(tool.schema))(call)
    return action
