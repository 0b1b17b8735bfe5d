"""One use of a tool in verl: in the rollout that it belongs to, or alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from arl_tangram.errors import InfrastructureError, TangramError
from arl_tangram.integrations.rollouts.here import runtime_here
from arl_tangram.integrations.rollouts.rollout import Rollout, current_rollout, use_alone
from arl_tangram.integrations.rollouts.tool import Tool
from arl_tangram.integrations.rollouts.wording import words_for

_LOG = logging.getLogger("arl_tangram.verl")


@dataclass(slots=True)
class Uses:
    """How a rollout uses its tools.

    Attributes:
        give_up: told what makes it end: verl's loop would tell the model of it and go on.
        counts: of each tool that was used, its `calls` and its `failures`.
    """

    give_up: Callable[[TangramError], None]
    counts: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])


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
        TangramError: the tool is declared or used in a wrong way, such as a cost that no pool can meet.
    """
    rollout, uses = current_rollout(), uses_var.get()
    if rollout is not None and uses is not None:
        return await _use_in(rollout, uses, tool, arguments, given)
    try:
        used = await use_alone(await runtime_here(runtime or "tangram"), tool, arguments, given)
    except InfrastructureError as error:
        _LOG.warning(
            "the tool %s failed by no fault of the model (%s: %s), and this rollout cannot be masked: verl's own loop "
            "plays it; the loop tangram_tool_agent would leave it out of the training",
            tool.name,
            type(error).__name__,
            error,
        )
        return words_for(error, tool.name)
    return used.text


async def _use_in(
    rollout: Rollout, uses: Uses, tool: Tool, arguments: Mapping[str, Any], given: Mapping[str, Any]
) -> str:
    count = uses.counts.setdefault(tool.name, {"calls": 0, "failures": 0})
    count["calls"] += 1
    count["failures"] += 1  # until it has ended well
    try:
        used = await rollout.use(tool, arguments, given)
    except TangramError as error:
        uses.give_up(error)
        raise
    count["failures"] -= used.ok
    return used.text


uses_var: ContextVar[Uses | None] = ContextVar("arl_tangram_verl_uses", default=None)
