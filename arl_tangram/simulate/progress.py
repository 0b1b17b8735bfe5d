"""How far a simulated call has come that waits for its service, or whose cores change while it runs."""

from __future__ import annotations

import math

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.lifecycle import RunningAction
from arl_tangram.model.quantities import MILLI
from arl_tangram.simulate.calls import Call
from arl_tangram.simulate.results import SimulatedCall


class Progress:
    """A call that has started.

    Args:
        call: what it is.
        running: as it started.
        begins_s: when it begins to run: when it was started, or later.

    Raises:
        ConfigurationError: how long it really takes is no finite duration.

    Attributes:
        running: as it started.
        event: the number of the planned event that ends it; events planned before count no more.
        switches: how often its units were changed.
        suspended_s: for how long it had none.
    """

    __slots__ = ("_began_s", "_call", "_held_s", "_lasts_s", "_left", "_ready_s", "_since_s", "event", "running",
                 "suspended_s", "switches")  # fmt: skip

    def __init__(self, call: Call, running: RunningAction, begins_s: float) -> None:
        self._call = call
        self.running = running
        if running.seat is None:
            self._lasts_s = _lasts_s(call, running.units // MILLI)
        else:
            self._lasts_s = _lasts_s(call, running.seat.chunk.size, "GPUs")
        self._left = 1.0
        self._began_s = self._since_s = self._ready_s = begins_s
        self._held_s = 0.0
        self.event = -1
        self.switches = 0
        self.suspended_s = 0.0

    def change(self, units: int, now_s: float, switch_s: float) -> None:
        """It has other units from now on, and stands still for `switch_s`; with none, until it has some again.

        Raises:
            ConfigurationError: how long it really takes on these is no finite duration.
        """
        if self._lasts_s < math.inf:
            self._held_s += now_s - self._since_s
            ran_s = max(0.0, now_s - self._ready_s)
            self._left = max(0.0, self._left - ran_s / self._lasts_s) if self._lasts_s > 0 else 0.0
        else:
            self.suspended_s += now_s - self._since_s
        self._since_s = now_s
        self._ready_s = now_s + switch_s
        self._lasts_s = _lasts_s(self._call, units // MILLI) if units else math.inf
        self.switches += 1

    def ends_s(self) -> tuple[float, bool]:
        """Return when it ends if its units stay, infinite if it has none, and whether by its timeout."""
        if self._lasts_s == math.inf:
            return math.inf, False
        end_s = self._ready_s + self._left * self._lasts_s
        timeout = self._call.spec.timeout
        if timeout is not None and self._since_s + timeout - self._held_s <= end_s:
            return self._since_s + timeout - self._held_s, True
        return end_s, False

    def held_s(self, now_s: float) -> float:
        """Return for how long it has had units and could use them, when it ends now."""
        return self._held_s + now_s - self._since_s

    def told_in(self, ended: SimulatedCall) -> SimulatedCall:
        """Return what becomes of a call that has ended, with what is known here."""
        running = self.running
        return ended._replace(
            started_at_s=running.started_at_s,
            units=running.units,
            switches=self.switches,
            suspended_s=self.suspended_s,
            overhead_s=self._began_s - running.started_at_s,
            gpus=0 if running.seat is None else running.seat.chunk.size,
        )


def _lasts_s(call: Call, units: int, what: str = "cores") -> float:
    lasts_s = call.duration_s(units)
    if not 0 <= lasts_s < math.inf:
        raise ConfigurationError(
            f"{call.spec.name} really takes {lasts_s:g} s on {units} {what}; durations are finite and not negative"
        )
    return lasts_s
