"""A core object whose running actions share their cores, beside an account of what each has."""

from __future__ import annotations

from arl_tangram.model.lifecycle import PendingAction, RunningAction
from arl_tangram.model.quantities import MILLI
from arl_tangram.scheduling.core import Decisions
from arl_tangram.scheduling.sharing.kinds import begins_by_sharing, shares
from property.callers import ancestors, granted
from property.worlds import World


class SharedWorld(World):
    """As a `World`; what runs may change."""

    # Of those that run, the units that they started with.
    first_units: dict[int, int]

    def _resized(self, decisions: Decisions) -> None:
        known = self.__dict__.setdefault("first_units", {})
        before = {running.pending.id: running for running in decisions.resized}
        for running in decisions.resized:
            action_id = running.pending.id
            old = self.running[action_id]
            demand = running.pending.demand
            known.setdefault(action_id, old.units)
            assert shares(demand), "it does not share"
            loan = self.callers.loans.get(action_id)
            assert loan is None or loan.wanted or loan.shares
            assert running == old._replace(units=running.units)
            assert running.units != old.units, "no change"
            self._check_size(running, known[action_id])
            self.running[action_id] = running
        for running in before.values():
            assert self.core._running[running.pending.id].pending is running.pending

    def _check_size(self, running: RunningAction, first: int) -> None:
        demand = running.pending.demand
        if running.units == 0:
            assert demand.preemptible, "it must not be suspended"
        elif demand.resizable:
            assert running.units in demand.options or running.units < demand.options[0]
        else:
            assert running.units <= first
            assert running.units == first or running.units >= 1000
            assert demand.elastic is not None

    def in_queue(self) -> list[PendingAction]:
        """Who waits for units, in order, but for those that begin by sharing."""
        return [action for action in super().in_queue() if not begins_by_sharing(action.demand)]

    def check_work_conservation(self) -> None:
        super().check_work_conservation()
        for cpu in [node.cpu for node in self.topology.nodes if node.cpu is not None]:
            self._check_nobody_lacks_what_is_free(cpu)
            self._check_callers_have_theirs(cpu)

    def _check_nobody_lacks_what_is_free(self, cpu: int) -> None:
        free = self.free(cpu) // MILLI
        for running in self.running.values():
            demand = running.pending.demand
            if demand.elastic != cpu or running.units or running.pending.id in self.callers.loans:
                continue
            least = demand.options[0] if demand.resizable else self.first_units[running.pending.id]
            assert least > free * MILLI, f"{running} could go on: {free} cores are free"
        for action in self.waiting.values():
            if action.id not in self.core._queue or not begins_by_sharing(action.demand):
                continue
            if (
                action.demand.elastic == cpu
                and action.demand.preemptible
                and not (self.halted and not self.is_called(action))
            ):
                assert action.demand.options[0] > free * MILLI, f"{action} could start: {free} cores are free"

    def _check_callers_have_theirs(self, cpu: int) -> None:
        """The first that wants its cores back has them unless those who do not share, or must keep theirs, do."""
        wanting = [i for i in self.core._lending._resuming if self.callers.loans[i].cpu == cpu]
        for i in wanting[:1]:
            loan = self.callers.loans[i]
            above = [a for a in ancestors(self.running[i].pending.parent, self.running) if a in self.callers.loans]
            kept = sum(granted(self.running[a]).get(cpu, 0) - self.lent(a, cpu) for a in above)
            can_be_taken = sum(
                r.units - (0 if r.pending.demand.preemptible else r.pending.demand.options[0])
                for j, r in self.running.items()
                if j not in self.callers.loans
                and r.pending.demand.elastic == cpu
                and shares(r.pending.demand)
                and (r.pending.demand.preemptible or r.pending.demand.resizable)
            )
            needed = max(0, min(loan.cores, self.capacity[cpu] - kept))
            left = self.capacity[cpu] - (self._used(cpu) - can_be_taken)
            assert loan.cores == 0 or needed > left, f"{i} could go on"
