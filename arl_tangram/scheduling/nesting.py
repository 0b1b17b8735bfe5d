"""Know who has called whom: what actions keep while they wait for those that they called, and where these stand.

A call stands in the queue where the outermost of the actions that wait for it stood, with a lead of so many places (or,
where time is what ranks, of so much time) that it comes before nearly everybody else: what those actions keep meanwhile
is of use to nobody. The lead is bounded so that nobody starves: who waits is overtaken only by calls of actions that
came not much later than itself. The priority is the most urgent of all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from arl_tangram.errors import NestedActionError
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.turns import Trajectories, TrajectoryState

_LEAD = 1000
_LEAD_S = 3600.0

Units = tuple[tuple[int, int], ...]
"""Pairs of a dimension's index and integer units of it."""


class SeatsInPool(Protocol):
    """The seats of a pool of GPUs, for those who wait."""

    def is_possible(self, action: PendingAction, kept: Collection[int]) -> bool:
        """Whether an action could ever sit while these others (their ids) keep their seats."""
        ...

    def forget(self, action_id: int) -> None:
        """An action waits no more for a seat."""
        ...


@dataclass(slots=True)
class Caller:
    """A running action that has called others.

    Attributes:
        running: the action.
        calls: those of its calls that wait or run, by id.
        lent: whether it waits for them, and has lent what can be lent.
        cpu: the dimension of the cores that it has lent, if any.
        cores: integer units of them.
        kept: what it keeps of what is held, while it has lent the rest.
        lacks_turn: whether it has lent its turn.
        keeps_turn: whether it has a turn that it does not lend.
        wanted: whether it wants to have all of it back.
        since_s: when it lent last.
        away_s: seconds for which it had lent something, before that.
    """

    running: RunningAction
    calls: dict[int, PendingAction] = field(default_factory=dict[int, PendingAction])
    lent: bool = False
    cpu: int = -1
    cores: int = 0
    kept: Units = ()
    lacks_turn: bool = False
    keeps_turn: bool = False
    wanted: bool = False
    since_s: float = 0.0
    away_s: float = 0.0


class Nesting:
    """Callers and calls.

    Attributes:
        callers: running actions that have called others, by id.
        lent: those of them that have lent something, in the order in which they did.
        waiting: calls of running actions that wait, by id.
        kept: units of each dimension that those who have lent keep.
        asked: the demands of those that wait, by the id of the object, with how many ask for it.
        kept_turns: how many of those who have lent keep their turn.
        unchecked: whether something has changed after which calls may wait for each other for ever.
        seating: the seats of a pool of GPUs, if there is one.
    """

    def __init__(
        self,
        topology: Topology,
        ledger: Ledger,
        trajectories: Trajectories,
        running: Mapping[int, RunningAction],
        kept: Sequence[int],
    ) -> None:
        self._dimensions = topology.dimensions
        self._cores = topology.cores
        self._cpus = [node.cpu for node in topology.nodes if node.cpu is not None]
        self._ledger = ledger
        self._trajectories = trajectories
        self._running = running
        self.kept = kept
        self.callers: dict[int, Caller] = {}
        self.lent: dict[int, Caller] = {}
        self.waiting: dict[int, PendingAction] = {}
        self.asked: dict[int, tuple[Demand, int]] = {}
        self.kept_turns = 0
        self.unchecked = False
        self.seating: SeatsInPool | None = None

    # Calls.

    def check(self, action: PendingAction) -> None:
        """Check that a call fits beside what those who wait for it keep until it has ended.

        Raises:
            NestedActionError: it never does; the message names the chain of calls.
        """
        callers = self._callers_of(action)
        if not callers:
            return
        keeper = self.keeper_of_turn(action) if self.kept_turns else None
        if keeper is not None and any(running is keeper for running in callers):
            raise self.no_turn(action, keeper)
        kept = [0] * len(self._dimensions)
        for running in callers:
            caller = self.callers.get(running.pending.id)
            units = caller.kept if caller is not None and caller.lent else self._kept(running)
            for dimension, amount in units:
                kept[dimension] += amount
        for trajectory in {running.pending.trajectory for running in callers} | {action.trajectory}:
            state = None if trajectory is None else self._trajectories.get(trajectory)
            if state is not None and state.held is not None:
                for dimension, amount in state.held.demand.fixed:
                    kept[dimension] += amount
        beside = [target - units for target, units in zip(self._ledger.target, kept, strict=True)]
        lacking = [self.first_lacking(placed, beside) for placed in action.demand.places or (action.demand,)]
        if None in lacking:
            self._check_seat(action)
            return
        dimension, amount = next(found for found in lacking if found is not None)
        scale, name = self._dimensions[dimension].scale, self._dimensions[dimension].name
        raise NestedActionError(
            f"{self.chain(action)}: {action.demand.name} asks for {amount / scale:g} of {name}; it has "
            f"{self._ledger.target[dimension] / scale:g} in all, and the actions that wait for this call keep "
            f"{kept[dimension] / scale:g} of them until it has ended"
        )

    def _check_seat(self, action: PendingAction) -> None:
        """Check that a call can sit while those who wait for it keep their seats."""
        if action.demand.seat is None or self.seating is None:
            return
        kept = self.seated_callers_of(action)
        if kept and not self.seating.is_possible(action, kept):
            raise self.no_seat(action)

    def no_seat(self, action: PendingAction) -> NestedActionError:
        """Return the error of a call for which there is no room on the GPUs until it has ended."""
        need = action.demand.seat
        asked = "GPUs" if need is None or need.service is None else f"the service {need.service}"
        return NestedActionError(
            f"{self.chain(action)}: there is no room for {asked}, which {action.demand.name} asks for, beside the "
            "services that are kept until it has ended by actions that wait for it, directly or not"
        )

    def seated_callers_of(self, action: PendingAction) -> tuple[int, ...]:
        """Return the ids of those who wait for a call, and have a seat in a pool of GPUs."""
        return tuple([running.pending.id for running in self._callers_of(action) if running.seat is not None])

    def keeper_of_turn(self, action: PendingAction) -> RunningAction | None:
        """Return who has lent but keeps the turn that an action takes, if anybody."""
        if not action.turn or action.trajectory is None:
            return None
        turn = self._trajectories[action.trajectory].turn
        keeper = None if turn is None else self.lent.get(turn)
        return keeper.running if keeper is not None and keeper.keeps_turn else None

    def no_turn(self, action: PendingAction, keeper: RunningAction) -> NestedActionError:
        """Return the error of a call that needs a turn which is kept until it has ended."""
        name = keeper.pending.demand.name
        return NestedActionError(
            f"{self.chain(action)}: {action.demand.name} would run in the sandbox of {name}, where what {name} has "
            f"started is still alive, and {name} waits for this call, directly or not"
        )

    def arrive(self, action: PendingAction, state: TrajectoryState) -> None:
        """An action waits in a trajectory, which closes later than that has ended.

        If it fits while all is held that callers keep and such trajectories hold, it ends whatever else does not.
        """
        if state.held is not None and state.held.demand.fixed:
            self.unchecked = not self.fits(action.demand, self.left())

    def left(self) -> list[int]:
        """Return what is left by callers, and by trajectories in which somebody waits."""
        everything = zip(self._ledger.target, self.kept, self._trajectories.tied, strict=True)
        return [target - kept - tied for target, kept, tied in everything]

    def fits(self, demand: Demand, units: list[int]) -> bool:
        """Whether there is a place for a demand if there are so many units, and enough is left of budgets now."""
        budgets = self._ledger.budgets
        return any(
            self.first_lacking(placed, units) is None
            and not (placed.dimensions & budgets and self._ledger.lacking(placed) & budgets)
            for placed in demand.places or (demand,)
        )

    def add(self, action: PendingAction) -> None:
        """A running action has called another one."""
        running = None if action.parent is None else self._running.get(action.parent)
        if running is None:
            return
        self._caller(running).calls[action.id] = action
        self.waiting[action.id] = action
        demand, count = self.asked.get(id(action.demand), (action.demand, 0))
        self.asked[id(action.demand)] = demand, count + 1
        self.unchecked = True

    def start(self, action_id: int) -> None:
        """A call does not wait any more."""
        action = self.waiting.pop(action_id, None)
        if action is not None:
            demand, count = self.asked.pop(id(action.demand))
            if count > 1:
                self.asked[id(demand)] = demand, count - 1

    def end(self, action: PendingAction) -> None:
        """A call has ended, or is not wanted any more."""
        self.start(action.id)
        caller = None if action.parent is None else self.callers.get(action.parent)
        if caller is not None:
            caller.calls.pop(action.id, None)

    def placed(self, action: PendingAction, *, by_time: bool) -> PendingAction:
        """Return a call with the place in the queue that it inherits, if a running action has called it.

        Args:
            action: the call.
            by_time: whether times are what ranks, and not ids.
        """
        running = None if action.parent is None else self._running.get(action.parent)
        if running is None:
            return action._replace(inherited=None)
        caller = running.pending
        if caller.inherited is not None:
            priority, rank, number = caller.inherited
        elif by_time:
            priority, rank, number = caller.demand.priority, caller.submitted_at_s - _LEAD_S, caller.id
        else:
            priority, rank, number = caller.demand.priority, 0.0, caller.id - _LEAD
        return action._replace(rank=rank, inherited=(min(priority, action.demand.priority), rank, number))

    def chain(self, action: PendingAction) -> str:
        """Return the names of those who wait for a call, from the outermost, and its own."""
        names = [running.pending.demand.name for running in reversed(self._callers_of(action))]
        return " → ".join([*names, action.demand.name])

    def first_lacking(self, demand: Demand, units: list[int]) -> tuple[int, int] | None:
        """Return what a demand lacks if there are so many units, but for rates and budgets; None if nothing."""
        for dimension, amount in self.held_by(demand):
            if amount > units[dimension]:
                return dimension, amount
        return None

    def held_by(self, demand: Demand) -> Units:
        """Return the least that a demand holds until it ends."""
        held = self._of_what_is_held(demand.fixed)
        return held if demand.elastic is None else (*held, (demand.elastic, demand.options[0]))

    # Callers.

    def lend(self, running: RunningAction, now_s: float, *, cores: bool) -> Caller:
        """Take note that an action has lent its turn and its cores if `cores`, else nothing."""
        caller = self._caller(running)
        caller.lent, caller.wanted, caller.since_s = True, False, now_s
        held = self._held(running)
        caller.kept = tuple([pair for pair in held if not self._cores >> pair[0] & 1]) if cores else held
        caller.cpu, caller.cores = -1, 0
        if cores:
            for dimension, units in held:  # of one node, so of one such dimension
                if self._cores >> dimension & 1:
                    caller.cpu, caller.cores = dimension, caller.cores + units
        caller.keeps_turn = not cores and running.pending.turn and running.pending.trajectory is not None
        self.kept_turns += caller.keeps_turn
        self.lent[running.pending.id] = caller
        self._tie(running, 1)
        self.unchecked = True
        return caller

    def regain(self, caller: Caller, now_s: float) -> None:
        """Take note that an action has all that it had lent."""
        caller.lent, caller.wanted = False, False
        caller.away_s += now_s - caller.since_s
        del self.lent[caller.running.pending.id]
        self.kept_turns -= caller.keeps_turn
        self._tie(caller.running, -1)

    @property
    def cores_are_kept(self) -> bool:
        """Whether somebody who has lent keeps cores."""
        return any(self.kept[dimension] for dimension in self._cpus)

    def cores_kept_by_callers_of(self, caller: Caller) -> int:
        """Return the cores, on the node where a caller has lent, that those keep who wait for it, a call of theirs."""
        if not self.cores_are_kept:
            return 0
        lent = [self.lent.get(running.pending.id) for running in self._callers_of(caller.running.pending)]
        return sum([units for other in lent if other is not None for d, units in other.kept if d == caller.cpu])

    def _caller(self, running: RunningAction) -> Caller:
        caller = self.callers.get(running.pending.id)
        if caller is None:
            caller = self.callers[running.pending.id] = Caller(running)
        return caller

    def _callers_of(self, action: PendingAction) -> list[RunningAction]:
        """Return those who wait for a call, from the one that called it outwards."""
        callers: list[RunningAction] = []
        parent = action.parent
        while parent is not None and (running := self._running.get(parent)) is not None:
            callers.append(running)
            parent = running.pending.parent
        return callers

    def _held(self, running: RunningAction) -> Units:
        """Return what an action holds."""
        demand = running.pending.demand
        held = self._of_what_is_held(demand.fixed)
        return held if demand.elastic is None else (*held, (demand.elastic, running.units))

    def _kept(self, running: RunningAction) -> Units:
        """Return what an action holds, without its cores, which it lends."""
        return tuple([pair for pair in self._held(running) if not self._cores >> pair[0] & 1])

    def _of_what_is_held(self, units: Units) -> Units:
        stays = self._ledger.budgets | self._ledger.rates
        return tuple([pair for pair in units if pair[1] and not stays >> pair[0] & 1])

    def _tie(self, running: RunningAction, more: int) -> None:
        trajectory = running.pending.trajectory
        if trajectory is not None:
            self._trajectories.lend(self._trajectories[trajectory], more)
