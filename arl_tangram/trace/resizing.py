"""Integrate over time the units of calls whose cores become more or less while they run."""

from __future__ import annotations

from typing import NamedTuple

from arl_tangram.model.lifecycle import RunningAction


class Share(NamedTuple):
    """What one call has had: unit-seconds so far, and what it has now, since when."""

    unit_s: float
    units: int
    since_s: float


class Resizing:
    """Unit-seconds of the elastic dimension that running calls have had.

    Attributes:
        shares: of each running call that has ever been resized, by its id.
    """

    def __init__(self) -> None:
        self.shares: dict[int, Share] = {}

    def change(self, action: RunningAction, units: int, at_s: float) -> None:
        """A call, as it was started, has so many units from now on."""
        self.shares[action.pending.id] = Share(self.unit_s(action, at_s), units, at_s)

    def unit_s(self, action: RunningAction, until_s: float) -> float:
        """Return unit-seconds that a call has had up to now."""
        share = self.shares.get(action.pending.id)
        if share is None:
            return action.units * (until_s - action.started_at_s)
        return share.unit_s + share.units * (until_s - share.since_s)

    def forget(self, id_: int) -> None:
        """A call has ended."""
        self.shares.pop(id_, None)
