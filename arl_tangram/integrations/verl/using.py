"""One use of a tool in verl: in the rollout that it belongs to, or alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from arl_tangram.errors import InfrastructureError
from arl_tangram.integrations.rollouts.here import runtime_here
from arl_tangram.integrations.rollouts.rollout import current_rollout, use_alone
from arl_tangram.integrations.rollouts.tool import Tool
from arl_tangram.integrations.rollouts.wording import words_for

_LOG = logging.getLogger("arl_tangram.verl")

# What a rollout counts of the tools that it uses: {name: {"calls": n, "failures": n}}.
uses_var: ContextVar[dict[str, dict[str, int]] | None] = ContextVar("arl_tangram_verl_uses", default=None)


async def use(tool: Tool, arguments: Mapping[str, Any], given: Mapping[str, Any], runtime: str | None) -> str:
    """Call a tool's action and return what the model is to read.

    Args:
        tool: the tool.
        arguments: what the model says.
        given: what the dataset says.
        runtime: the name of the shared runtime, for a call outside of a rollout of ours; None for "tangram".

    Raises:
        InfrastructureError: in a rollout, which ends with it. Outside of one nothing could be masked, so that the model
            reads of it.
    """
    rollout = current_rollout()
    count = _count(tool.name)
    if rollout is not None:
        count["failures"] += 1  # until it has ended well
        used = await rollout.use(tool, arguments, given)
        count["failures"] -= used.ok
        return used.text
    try:
        used = await use_alone(await runtime_here(runtime or "tangram"), tool, arguments, given)
    except InfrastructureError as error:
        _LOG.warning(
            "the tool %s failed by no fault of the model (%s: %s), and this rollout cannot be masked: verl's own loop "
            "runs it; the loop tangram_tool_agent would leave it out of the training",
            tool.name,
            type(error).__name__,
            error,
        )
        return words_for(error, tool.name)
    return used.text


def _count(name: str) -> dict[str, int]:
    """Count a call in the rollout around it, and return where its end is counted."""
    uses = uses_var.get()
    count = {"calls": 0, "failures": 0} if uses is None else uses.setdefault(name, {"calls": 0, "failures": 0})
    count["calls"] += 1
    return count
