"""Rebuild a scheduler core from what the sessions of an owner that died say they hold: by ordinary inputs, pinned.

Everything is submitted again with one place and one number of units to choose from, at the time at which it was
granted. What cannot start then, as there is too little of something, is refused. As what runs may hold more than there
is by now, where a capacity was lowered, the owner lets there be plenty meanwhile.

Callers come before all others, as what they have lent others may hold; one that has its cores back lends them here,
too, until those that it has called are there. Rates and budgets come last, in the order of time, so that each unit
returns when it would have returned: until then, whatever runs takes none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from arl_tangram.errors import OwnerLostError, TangramError
from arl_tangram.integrations.ray.charges import counted
from arl_tangram.integrations.ray.wire import HeldCall, HeldTrajectory, Open, Resume, Submit
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.scheduling.core import SchedulerCore


class NotTakenOver(NamedTuple):
    """What cannot be taken over.

    Attributes:
        held: the index of what its session told.
        id: its id there.
        error: why.
    """

    held: int
    id: int
    error: OwnerLostError


class Waiting(NamedTuple):
    """What is to wait again.

    Attributes:
        held: the index of what its session told.
        id: the one that it has from now on.
        item: what its session told.
    """

    held: int
    id: int
    item: Submit | Open


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What has become of all that was held, and of what waits.

    Attributes:
        ids: for each session, the new ids by its own: of calls that run, of trajectories, and of what waits.
        running: the calls that run, by their new ids; those that have lent have lent again.
        waiting: what waits, in the order in which it is to be submitted now; nothing of it was.
        refused: what is lost, all that waits for a lost trajectory included. A call that had a seat on a GPU runs
            nevertheless, with what it had beside that, until it has ended.
        ended: calls that are lost, by the index of what their session told: what they took of rates and budgets counts.
    """

    ids: tuple[dict[int, int], ...]
    running: dict[int, RunningAction]
    waiting: tuple[Waiting, ...]
    refused: tuple[NotTakenOver, ...]
    ended: tuple[tuple[int, HeldCall], ...]


def taken_by(resume: Resume, call: HeldCall) -> Iterator[tuple[int, int, float]]:
    """Return what a call counts for that ran and is lost, of rates and budgets and all else: see `Resume.charges`."""
    demand = next(told.demand for told in resume.demands if told.number == call.submit.demand)
    granted = demand if call.place is None else demand.places[call.place]
    for dimension, units, beyond in counted(dict(granted.fixed), dict(call.settled)):
        yield dimension, units, call.ran_s
        yield dimension, beyond, 0.0


def rebuild(core: SchedulerCore, held: Sequence[Resume], now_s: float, new_id: Callable[[], int]) -> Rebuilt:
    """Let a core hold what sessions say they hold.

    Args:
        core: a new one, in which nothing was submitted, paused or halted; its dimensions begin with those that the
            sessions know, in that order.
        held: what each session told.
        now_s: the time; the ages that were told end now.
        new_id: returns ascending ids.
    """
    return _Rebuilding(core, held, now_s).run(new_id)


class _Told(NamedTuple):
    """A part of what a session told, with its old and its new id."""

    held: int
    old: int
    id: int
    item: HeldTrajectory | HeldCall | Submit | Open


class _Rebuilding:
    def __init__(self, core: SchedulerCore, held: Sequence[Resume], now_s: float) -> None:
        self._core = core
        self._held = held
        self._now_s = now_s
        self._demands = [{told.number: told.demand for told in resume.demands} for resume in held]
        self._ids: list[dict[int, int]] = [{} for _ in held]
        self._running: dict[int, RunningAction] = {}
        self._opened: set[int] = set()
        self._impossible: dict[int, TangramError] = {}
        self._refused: list[NotTakenOver] = []
        self._taken: list[tuple[float, int, int, int]] = []
        self._ended: list[tuple[int, HeldCall]] = []

    def run(self, new_id: Callable[[], int]) -> Rebuilt:
        told = self._in_order(new_id)
        strange = {index for index, resume in enumerate(self._held) if not self._knows(resume)}
        for part in told:
            if part.held in strange:
                self._refuse(part, "the pools of the shared runtime are others by now")
        told = [part for part in told if part.held not in strange]
        for part in told:
            if isinstance(part.item, HeldTrajectory):
                self._open(part, part.item)
        calls = [(part, part.item) for part in told if isinstance(part.item, HeldCall)]
        callers = self._callers(calls)
        for part, call in calls:
            if part.id in callers and self._start(part, call):
                self._core.lend(part.id, self._started_at_s(call), cores=True)
        for part, call in calls:
            if part.id in callers and part.id in self._running:
                self._lend_as_told(part, call)
        for part, call in calls:
            if part.id not in callers:
                self._start(part, call)
        self._charge(new_id, strange)
        self._close(told)
        self._decide(self._now_s)
        self._sort_events()
        waiting = tuple(self._waiting(told))
        return Rebuilt(tuple(self._ids), self._running, waiting, tuple(self._refused), tuple(self._ended))

    def _in_order(self, new_id: Callable[[], int]) -> list[_Told]:
        """Give new ids to all, in the order in which they were submitted."""
        parts: list[tuple[float, int, int, HeldTrajectory | HeldCall | Submit | Open]] = []
        for index, resume in enumerate(self._held):
            parts += [(-part.open.age_s, index, part.open.id, part) for part in resume.trajectories]
            parts += [(-_age_s(part.submit), index, part.submit.id, part) for part in resume.running]
            parts += [(-_age_s(part), index, part.id, part) for part in resume.waiting]
        told: list[_Told] = []
        for _, index, old, part in sorted(parts, key=lambda part: part[:3]):
            told.append(_Told(index, old, new_id(), part))
            self._ids[index][old] = told[-1].id
        return told

    def _knows(self, resume: Resume) -> bool:
        """Whether the dimensions that a session knows are those of the core."""
        known = () if resume.shape is None else resume.shape.dimensions
        return [d.name for d in known] == [d.name for d in self._core.topology.dimensions[: len(known)]]

    # Trajectories.

    def _open(self, part: _Told, trajectory: HeldTrajectory) -> None:
        asked = trajectory.open
        demand = self._demands[part.held][asked.demand]
        places = [place for place in demand.places or (demand,) if place.node in (trajectory.node, None)]
        at_s = self._now_s - asked.age_s
        if not places:
            self._refuse(part, "no trajectory like it can be on its node any more")
            return
        request = PendingAction(part.id, self._pinned(places[0]), at_s)
        if self._submit(part, lambda: self._core.open(request, group=asked.group), at_s) and part.id in self._opened:
            return
        self._let_go(part)

    def _close(self, told: Iterable[_Told]) -> None:
        for part in told:
            if isinstance(part.item, HeldTrajectory) and part.item.closing and part.id in self._opened:
                self._core.close(part.id, self._now_s)

    # Calls.

    def _callers(self, calls: Sequence[tuple[_Told, HeldCall]]) -> set[int]:
        """Return the ids of those that have lent, or that another one was called by."""
        callers = {part.id for part, call in calls if call.lent is not None}
        for part, call in calls:
            if call.submit.parent is not None:
                callers.add(self._ids[part.held].get(call.submit.parent, part.id))
        return callers

    def _start(self, part: _Told, call: HeldCall) -> bool:
        """Let a call run that ran; return whether it does."""
        asked = call.submit
        demand = self._demands[part.held][asked.demand]
        trajectory = parent = None
        if asked.trajectory is not None:
            trajectory = self._ids[part.held].get(asked.trajectory)
            if trajectory not in self._opened:
                self._refuse(part, "its trajectory is lost")
                return False
        if asked.parent is not None and (number := self._ids[part.held].get(asked.parent)) in self._running:
            parent = number
        if call.place is not None:
            demand = demand.places[call.place]
        if call.seated:
            demand = self._without_seat(demand)
        if demand.elastic is not None and call.units not in demand.options:
            self._refuse(part, f"it can not have {call.units} units")
            return False
        at_s = self._started_at_s(call)
        action = PendingAction(
            part.id, self._pinned(demand, call.units), self._now_s - asked.age_s, asked.key, trajectory, asked.turn,
            parent=parent, since_s=None if asked.first_age_s is None else self._now_s - asked.first_age_s,
        )  # fmt: skip
        if self._submit(part, lambda: self._core.submit(action), at_s) and part.id in self._running:
            spent = {d: units for d, units in demand.fixed if self._is_spent(d)}
            settled = {d: units for d, units in call.settled if d in spent}
            self._taken += [(at_s, part.id, d, min(units, settled.get(d, units))) for d, units in spent.items()]
            self._taken += [(self._now_s, part.id, d, units) for d, units in settled.items() if units > spent[d]]
            if call.seated:
                self._lose(part, "what runs on a GPU is not taken over")
            return True
        self._let_go(part)
        return False

    def _lend_as_told(self, part: _Told, call: HeldCall) -> None:
        """A call has lent all: let it have back what it holds now."""
        if call.lent is True:
            return
        if not self._core.reclaim(part.id, self._now_s):
            self._core.finish(part.id, self._now_s, None)
            del self._running[part.id]
            self._refuse(part, "others hold what it held")
        elif call.lent is False:
            self._core.lend(part.id, self._now_s, cores=False)

    def _started_at_s(self, call: HeldCall) -> float:
        return self._now_s - call.ran_s

    def _is_spent(self, dimension: int) -> bool:
        return self._core.topology.dimensions[dimension].window_s is not None

    def _pinned(self, demand: Demand, units: int = 0) -> Demand:
        """Return a demand that can only be met as it was, and never gives up; of rates and budgets it takes nothing."""
        fixed = tuple([(d, 0 if self._is_spent(d) else amount) for d, amount in demand.fixed])
        if demand.elastic is None:
            return replace(demand, fixed=fixed, queue_timeout=None)
        at = demand.options.index(units)
        return replace(demand, fixed=fixed, queue_timeout=None, options=(units,), relative=demand.relative[at : at + 1])

    def _without_seat(self, demand: Demand) -> Demand:
        seats = self._core.topology.seats
        fixed = tuple((d, units) for d, units in demand.fixed if not seats >> d & 1)
        return replace(demand, fixed=fixed, dimensions=demand.dimensions & ~seats, seat=None)

    # Rates and budgets.

    def _charge(self, new_id: Callable[[], int], strange: set[int]) -> None:
        """Count what was taken of rates and budgets, in the order of time."""
        charges: list[tuple[float, int, int]] = []
        for index, resume in enumerate(self._held):
            if index not in strange:
                charges += [(self._now_s - age_s, dimension, units) for dimension, units, age_s in resume.charges]
        for index, call in self._ended:
            taken_there = taken_by(self._held[index], call)
            charges += [(self._now_s - age_s, dimension, units) for dimension, units, age_s in taken_there]
        at_s = min([charge[0] for charge in charges], default=self._now_s)
        dimensions = sorted({dimension for _, dimension, _ in charges if self._is_spent(dimension)})
        mask = sum(1 << dimension for dimension in dimensions)
        ended = new_id()
        fixed = tuple([(dimension, 0) for dimension in dimensions])
        self._core.submit(PendingAction(ended, Demand("calls that have ended", fixed, dimensions=mask), at_s))
        self._decide(at_s)
        totals = dict(fixed)
        taken = [*self._taken, *((at_s, ended, d, units) for at_s, d, units in charges if d in totals)]
        for at_s, number, dimension, units in sorted(taken):
            if number == ended:
                totals[dimension] += units
                self._core.settle(ended, dimension, totals[dimension], at_s)
            elif number in self._running:
                self._core.settle(number, dimension, units, at_s)
        self._core.finish(ended, self._now_s, None)
        del self._running[ended]

    # What the core says.

    def _submit(self, part: _Told, submit: Callable[[], None], at_s: float) -> bool:
        """Submit something and let the core decide; return whether it was taken."""
        try:
            submit()
        except TangramError as error:
            self._impossible[part.id] = error
            return False
        self._decide(at_s)
        return True

    def _decide(self, at_s: float) -> None:
        more = True
        while more:
            decisions = self._core.decide(at_s)
            self._running.update((running.pending.id, running) for running in decisions.started)
            self._opened.update(decisions.opened)
            self._impossible.update(decisions.impossible)
            more = decisions.more

    def _let_go(self, part: _Told) -> None:
        """Refuse what was submitted and has not started."""
        if (error := self._impossible.get(part.id)) is not None:
            self._refuse(part, str(error))
            return
        self._core.withdraw(part.id)
        self._refuse(part, "others hold what it held, or there is less of it")

    def _refuse(self, part: _Told, why: str) -> None:
        del self._ids[part.held][part.old]
        self._lose(part, why)
        if isinstance(part.item, HeldCall) and self._knows(self._held[part.held]):
            self._ended.append((part.held, part.item))

    def _lose(self, part: _Told, why: str) -> None:
        error = OwnerLostError(f"the owner of the shared runtime was started again, and this was lost: {why}")
        self._refused.append(NotTakenOver(part.held, part.old, error))

    def _waiting(self, told: Iterable[_Told]) -> Iterable[Waiting]:
        for part in told:
            item = part.item
            if not isinstance(item, (Submit, Open)):
                continue
            trajectory = item.trajectory if isinstance(item, Submit) else None
            if trajectory is not None and trajectory not in self._ids[part.held]:
                self._refuse(part, "its trajectory is lost")
            else:
                yield Waiting(part.held, part.id, item)

    def _sort_events(self) -> None:
        """Let what was done here be told in the order of time."""
        for event in sorted(self._core.drain_events(), key=lambda event: event.at_s):
            self._core.note(event)


def _age_s(item: Submit | Open) -> float:
    if isinstance(item, Submit) and item.first_age_s is not None:
        return item.first_age_s
    return item.age_s
