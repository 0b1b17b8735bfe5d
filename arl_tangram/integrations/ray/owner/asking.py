"""What clients ask of the owner beside their calls: to look in, and to steer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from arl_tangram.errors import GroupCancelledError, UsageError
from arl_tangram.integrations.ray.owner.decider import Decider
from arl_tangram.integrations.ray.owner.holding import Held
from arl_tangram.integrations.ray.owner.holdings import Holdings

TAKES_LONG = ("drain", "cancel_group")
"""What is waited for as long as a session lasts; to the rest, there is an answer soon, or it is not done."""
LONGEST_S = 15.0
"""Beyond the grace time of bodies, for a cancelled group to be ended."""


class Asking:
    """Answers what a client asks.

    Args:
        decider: the scheduler.
        holdings: what each client has, by session.
    """

    def __init__(self, decider: Decider, holdings: Mapping[str, Holdings]) -> None:
        self._decider = decider
        self._holdings = holdings

    async def answer(self, what: str, arguments: Mapping[str, Any]) -> Any:
        """Return what was asked for.

        Raises:
            UsageError: it is nothing that can be asked.
            TangramError: it cannot be done.
        """
        decider = self._decider
        match what:
            case "statistics":
                return decider.statistics()
            case "figures":
                return decider.figures()
            case "report":
                return decider.report()
            case "set_capacity":
                return decider.set_capacity(arguments["name"], arguments["capacity"])
            case "halt":
                return decider.memory.halt(arguments["halted"])
            case "drain":
                decider.memory.halt(True)
                return await decider.dispatcher.until_idle()
            case "cancel_group":
                return await self._cancel_group(arguments["group"])
            case _:
                raise UsageError(f"the owner of a shared runtime cannot be asked for {what!r}")

    async def _cancel_group(self, group: str) -> int:
        """End all trajectories of a group, and wait until their calls have ended."""
        members: list[tuple[Holdings, Held]] = []
        calls: list[Held] = []
        for holdings in self._holdings.values():
            there = holdings.all()
            trajectories = [held for held in there if held.is_trajectory and held.group == group]
            ids = {held.pending.id for held in trajectories}
            members += [(holdings, held) for held in trajectories]
            calls += [held for held in there if held.pending.trajectory in ids]
        ends = [_end_of(held) for held in calls]
        for holdings, held in members:
            holdings.call_off(held, GroupCancelledError(f"the group {group!r} was cancelled"))
        if ends:
            await asyncio.wait(ends, timeout=self._decider.shape.kill_grace_s + LONGEST_S)
        return len(ends)


def _end_of(held: Held) -> asyncio.Future[None]:
    """Return a future that is done when a call holds nothing any more."""
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    before = held.on_end

    def ended() -> None:
        if before is not None:
            before()
        if not end.done():
            end.set_result(None)

    held.on_end = ended
    return end
