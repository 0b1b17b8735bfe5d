"""An account of who has called whom, and of what can still end: by trying everybody again and again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction


@dataclass
class Loan:
    """What a running action has lent: `cores` of a dimension, and its turn, if it had one and does not keep it.

    One that was suspended, and keeps that, goes on sharing cores: it `shares` them.
    """

    cores: int
    cpu: int = 0
    keeps_turn: bool = False
    wanted: bool = False
    shares: bool = False


@dataclass
class Callers:
    """Who has lent something, and the calls in progress of each running action."""

    loans: dict[int, Loan] = field(default_factory=dict)
    calls: dict[int, set[int]] = field(default_factory=dict)

    def keeps_turn(self, action_id: int) -> bool:
        """Whether an action has lent something, but not its turn."""
        return action_id in self.loans and self.loans[action_id].keeps_turn

    def idle(self) -> list[int]:
        """Those that have lent and have no call in progress, and do not want anything back yet."""
        return [i for i, loan in self.loans.items() if not loan.wanted and not self.calls.get(i)]


def least(demand: Demand) -> dict[int, int]:
    """The least units that a demand takes."""
    needs = dict(demand.fixed)
    if demand.elastic is not None:
        needs[demand.elastic] = needs.get(demand.elastic, 0) + demand.options[0]
    return needs


def granted(running: RunningAction) -> dict[int, int]:
    """The units that an action was granted."""
    units = dict(running.pending.demand.fixed)
    if running.pending.demand.elastic is not None:
        units[running.pending.demand.elastic] = running.units
    return units


def ancestors(parent: int | None, running: Mapping[int, RunningAction]) -> list[int]:
    """Those who wait for a call of `parent`, from that one outwards."""
    found: list[int] = []
    while parent is not None and parent in running:
        found.append(parent)
        parent = running[parent].pending.parent
    return found


def stuck_calls(
    waiting: Iterable[PendingAction],
    running: Mapping[int, RunningAction],
    callers: Callers,
    held_by_trajectories: Mapping[int, Mapping[int, int]],
    capacity: Mapping[int, int],
) -> set[int]:
    """The calls that can never start, whoever ends: what is held, by dimension, is counted in `capacity` only.

    A trajectory closes after the actions in it that wait or have lent.
    """

    def kept(action_id: int) -> dict[int, int]:
        units = {d: u for d, u in granted(running[action_id]).items() if d in capacity}
        loan = callers.loans[action_id]
        units[loan.cpu] = units.get(loan.cpu, 0) - loan.cores
        if loan.shares:  # it can be suspended again
            units.pop(running[action_id].pending.demand.elastic, None)
        return units

    calls = {a.id: a for a in waiting if a.parent is not None and a.parent in running}
    others = {a.id: a for a in waiting if a.id not in calls and a.trajectory is not None}
    loans = set(callers.loans)

    def open_still() -> set[int]:
        inside = [*(running[i].pending for i in loans), *calls.values(), *others.values()]
        return {action.trajectory for action in inside if action.trajectory is not None}

    trajectories = open_still()

    def free(dimension: int) -> int:
        left = capacity[dimension]
        left -= sum(kept(i).get(dimension, 0) for i in loans)
        left -= sum(held_by_trajectories[t].get(dimension, 0) for t in trajectories)
        return left

    def can_start(action: PendingAction) -> bool:
        kept_turns = {running[i].pending.trajectory for i in loans if callers.keeps_turn(i)}
        if action.turn and action.trajectory is not None and action.trajectory in kept_turns:
            return False
        return all(u <= free(d) for d, u in least(action.demand).items() if d in capacity)

    def cores_needed(i: int) -> int:
        above, loan = ancestors(running[i].pending.parent, running), callers.loans[i]
        kept_above = sum(kept(a).get(loan.cpu, 0) for a in above if a in callers.loans)
        return max(0, min(loan.cores, capacity[loan.cpu] - kept_above))

    while True:
        ended = {i for i, action in [*calls.items(), *others.items()] if can_start(action)}
        for i in ended:
            calls.pop(i, None)
            others.pop(i, None)
        for i in loans:
            loan = callers.loans[i]
            after = () if loan.wanted else callers.calls.get(i, set())
            if any(c in calls or c in loans for c in after) or cores_needed(i) > max(free(loan.cpu), 0):
                continue
            loans.remove(i)
            ended.add(i)
            break
        still = open_still()
        if not ended and still == trajectories:
            return set(calls)
        trajectories = still
