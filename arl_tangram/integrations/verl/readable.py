"""verl's parser of tool calls, without what a model can write in a call to break verl's loop; it knows no verl."""

from __future__ import annotations

import json
from typing import Any

from arl_tangram.integrations.rollouts.wording import in_utf_8

__all__ = ["ReadableCalls"]

_UNREADABLE = "{"  # verl tells the model that this is no JSON


class ReadableCalls:
    """Reads what a parser reads. What verl's loop could not go on with would be a rollout without a row.

    Args:
        parser: of verl; all but its calls is as it is there.
    """

    def __init__(self, parser: Any) -> None:
        self._parser = parser

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    async def extract_tool_calls(self, *args: Any, **kwargs: Any) -> tuple[str, list[Any]]:
        """Return the text beside the calls, and the calls: names can be written, and arguments be read."""
        text, calls = await self._parser.extract_tool_calls(*args, **kwargs)
        for call in calls:
            call.name = in_utf_8(call.name)
            if not _is_told_by_verl(call.arguments):
                call.arguments = _UNREADABLE
        return text, calls


def _is_told_by_verl(arguments: str) -> bool:
    """Return whether arguments are JSON, or wrong in the way that verl tells the model of."""
    try:
        json.loads(arguments)
    except json.JSONDecodeError:
        return True
    except (RecursionError, ValueError):  # nested too deeply; a number of too many digits
        return False
    return True
