"""Find the calls that can never start, because what they ask for is held by actions that wait for one another's calls.

An action that has called others keeps its memory, threads and quotas until these have ended. Two such actions may keep
what each other's calls ask for: then all of them wait for ever, unless a call is refused.

What can still end is found by reduction of the graph of who waits for what: take away, again and again, whoever needs
no more than is free, and count what it holds as free. Who is left when nobody can be taken away is dead-locked. The
order does not matter, because what is free only grows. Here, at first, free is what nobody holds, what trajectories
hold in which nobody waits, and what actions hold that wait for nobody: these end by themselves. Then a call goes if it
gets what it asks for; an action that has lent, if all that it has called have gone and its cores are free; and a
trajectory, after those of its actions that wait or have lent. An action that fits beside all that callers keep and
those trajectories hold goes in any case, and is left out, unless a running one has called it.

Who needs a seat in a pool of GPUs goes if there could be one while those callers that have not gone keep theirs.

Rates return by time. A turn in a sandbox that is held by an action that has not started is given to another one that
can end, before anybody is refused. One that is kept by an action that has lent is had after that has gone. Whoever
else has a turn, or waits for one, is an action of the same trajectory, which closes after all of them.

Source: E. G. Coffman, M. J. Elphick, A. Shoshani, "System Deadlocks", Computing Surveys 3 (1971); the reduction of
graphs with several units of a resource is R. C. Holt's, "Some Deadlock Properties of Computer Systems", Computing
Surveys 4 (1972).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from arl_tangram.errors import NestedActionError
from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.lending import Lending
from arl_tangram.scheduling.nesting import Nesting, Units
from arl_tangram.scheduling.turns import Trajectories


@dataclass(frozen=True, slots=True)
class Node:
    """Something that waits.

    Attributes:
        needs: what it asks for, in each of the places of which any will do.
        holds: what is free when it has ended.
        after: those that end before it.
        seat: itself, if it needs a seat in a pool of GPUs.
        callers: ids of those who wait for it and keep a seat there, which it may share.
    """

    needs: tuple[Units, ...]
    holds: Units
    after: frozenset[int]
    seat: PendingAction | None = None
    callers: tuple[int, ...] = ()


CanSit = Callable[[PendingAction, Collection[int]], bool]
"""Says whether an action could ever sit while others (their ids) keep their seats."""


def reduce(
    nodes: Mapping[int, Node], free: list[int], kept: Collection[int] = (), can_sit: CanSit | None = None
) -> dict[int, Node]:
    """Return the nodes that can never end; `free`, units by dimension, becomes what is free without them.

    It costs the number of nodes, and a look at each different need whenever something has become free.

    Args:
        nodes: by the ids of the actions, for those that are actions.
        free: units by dimension.
        kept: ids of those that keep a seat in a pool of GPUs.
        can_sit: is asked for nodes with `seat`.
    """
    left = dict(nodes)
    keep = set(kept)
    outstanding = {number: len(node.after) for number, node in nodes.items()}
    followers: defaultdict[int, list[int]] = defaultdict(list)
    waiting: defaultdict[tuple[tuple[Units, ...], int, tuple[int, ...]], list[int]] = defaultdict(list)

    def key(number: int) -> tuple[tuple[Units, ...], int, tuple[int, ...]]:
        node = nodes[number]
        return node.needs, 0 if node.seat is None else id(node.seat.demand), node.callers

    def goes(numbers: list[int]) -> bool:
        node = nodes[numbers[0]]
        return fits(node.needs, free) and (node.seat is None or can_sit is None or can_sit(node.seat, keep))

    for number, node in nodes.items():
        for other in node.after:
            followers[other].append(number)
        if not node.after:
            waiting[key(number)].append(number)
    reduced = True
    while reduced:
        reduced = False
        for alike in [alike for alike, numbers in waiting.items() if goes(numbers)]:
            for number in waiting.pop(alike):
                reduced = True
                keep.discard(number)
                for dimension, units in left.pop(number).holds:
                    free[dimension] += units
                for follower in followers[number]:
                    outstanding[follower] -= 1
                    if outstanding[follower] == 0:
                        waiting[key(follower)].append(follower)
    return left


def fits(needs: tuple[Units, ...], free: list[int]) -> bool:
    """Whether one of several places has what is asked for."""
    return any(all(units <= free[dimension] for dimension, units in place) for place in needs)


class Deadlocks:
    """Looks for dead locks in one core."""

    def __init__(
        self, topology: Topology, ledger: Ledger, nesting: Nesting, lending: Lending, trajectories: Trajectories
    ) -> None:
        self._dimensions = topology.dimensions
        self._ledger = ledger
        self._nesting = nesting
        self._lending = lending
        self._trajectories = trajectories

    def refusals(self, now_s: float) -> Iterator[tuple[PendingAction, NestedActionError]]:
        """Yield the calls to refuse, each with the error; the caller withdraws each before it asks for the next.

        Of those that wait for one another, the youngest is refused first.
        """
        while self._nesting.unchecked:
            self._nesting.unchecked = False
            if not self._nesting.lent or self._all_fit_beside_callers():
                return
            free = self._free()
            kept = self._kept_seats()
            stuck = reduce(self._nodes(free, kept), free, kept, self._can_sit)
            calls = [number for number in stuck if number in self._nesting.waiting]
            if not calls:
                return
            self._nesting.unchecked = True
            if not self._pass_a_turn_on(stuck, free, now_s):
                call = self._nesting.waiting[max(calls)]
                yield call, self._refusal(call, free)

    def _all_fit_beside_callers(self) -> bool:
        """Whether there is no need to look closer: each call fits while nothing is held but what callers keep."""
        nesting = self._nesting
        if nesting.cores_are_kept or nesting.kept_turns:
            return False
        if any(demand.seat is not None for demand, _ in nesting.asked.values()) and self._kept_seats():
            return False
        left = nesting.left()
        return all(nesting.fits(demand, left) for demand, _ in nesting.asked.values())

    def _free(self) -> list[int]:
        """Return what is free once everything has ended but callers, and trajectories in which somebody waits."""
        nesting, ledger = self._nesting, self._ledger
        free = nesting.left()
        for dimension in range(len(free)):
            if ledger.budgets >> dimension & 1:
                free[dimension] = ledger.can_be_free(dimension)
        for caller in nesting.lent.values():
            for dimension, units in ledger.charged_for(caller.running):
                free[dimension] -= units
        return free

    def _kept_seats(self) -> frozenset[int]:
        """Return the ids of those who wait for what they have called, and keep a seat in a pool of GPUs."""
        return frozenset([number for number, caller in self._nesting.lent.items() if caller.running.seat is not None])

    def _can_sit(self, action: PendingAction, kept: Collection[int]) -> bool:
        seating = self._nesting.seating
        return seating is None or not kept or seating.is_possible(action, kept)

    def _nodes(self, free: list[int], kept: Collection[int]) -> dict[int, Node]:
        """Return who may wait for ever; to what is free, add what is held by trajectories that do not."""
        nesting = self._nesting
        numbers = nesting.waiting.keys() | nesting.lent.keys()
        needs: dict[int, tuple[Units, ...]] = {}
        nodes: dict[int, Node] = {}
        in_trajectory: defaultdict[int, set[int]] = defaultdict(set)
        for call in nesting.waiting.values():
            key = id(call.demand)
            if key not in needs:
                needs[key] = self._needs(call.demand)
            before = self._before_in_turn(call, numbers)
            if call.demand.seat is None:
                nodes[call.id] = Node(needs[key], (), before)
            else:
                nodes[call.id] = Node(needs[key], (), before, call, nesting.seated_callers_of(call))
        for number, caller in nesting.lent.items():
            action = caller.running.pending
            cores = self._lending.needs(caller)
            if caller.wanted:
                after = self._before_in_turn(action, numbers) if caller.lacks_turn else frozenset[int]()
            else:
                after = frozenset(caller.calls.keys() & numbers)
            holds = (*caller.kept, *self._ledger.charged_for(caller.running))
            nodes[number] = Node((((caller.cpu, cores),) if cores else (),), holds, after)
            if action.trajectory is not None:
                in_trajectory[action.trajectory].add(number)
        self._add_trajectories(nodes, in_trajectory, free, kept)
        return nodes

    def _add_trajectories(
        self, nodes: dict[int, Node], lent_in: Mapping[int, set[int]], free: list[int], kept: Collection[int]
    ) -> None:
        """Add the trajectories that may never close, and their actions that may wait for ever; free the others."""
        needs: dict[int, tuple[Units, ...] | None] = {}
        returns: list[Units] = []
        for trajectory, state, held in self._trajectories.tied_ones():
            before = set(lent_in.get(trajectory, ()))
            for action in state.waiting.values():
                if action.id not in nodes:
                    key = id(action.demand)
                    if key not in needs:
                        asked = self._needs(action.demand)
                        goes = fits(asked, free) and (action.demand.seat is None or self._can_sit(action, kept))
                        needs[key] = None if goes else asked
                    lacking = needs[key]
                    if lacking is None:
                        continue
                    seat = action if action.demand.seat is not None else None
                    nodes[action.id] = Node(lacking, (), frozenset(), seat)
                before.add(action.id)
            if before:
                nodes[_number_of(trajectory)] = Node(((),), held.fixed, frozenset(before))
            else:
                returns.append(held.fixed)
        for units in returns:
            for dimension, amount in units:
                free[dimension] += amount

    def _needs(self, demand: Demand) -> tuple[Units, ...]:
        """Return what a demand asks for of what is held and of budgets, in each of its places."""
        budgets = self._ledger.budgets
        return tuple(
            [
                (*self._nesting.held_by(placed), *[pair for pair in placed.fixed if budgets >> pair[0] & 1])
                for placed in demand.places or (demand,)
            ]
        )

    def _before_in_turn(self, action: PendingAction, numbers: set[int]) -> frozenset[int]:
        """Return who has the turn that an action waits for, if that one waits, too."""
        if not action.turn or action.trajectory is None:
            return frozenset()
        holder = self._trajectories[action.trajectory].turn
        return frozenset() if holder is None or holder == action.id else frozenset({holder} & numbers)

    def _pass_a_turn_on(self, stuck: dict[int, Node], free: list[int], now_s: float) -> bool:
        """Give the turn of one that cannot go on to one that could; return whether there was any."""
        for number in sorted(stuck):
            caller = self._nesting.lent.get(number)
            if caller is not None and caller.wanted:
                action = caller.running.pending
            elif number in self._nesting.waiting:
                action = self._nesting.waiting[number]
            else:
                continue
            node = stuck[number]
            if node.after and fits(node.needs, free) and self._nesting.keeper_of_turn(action) is None:
                (holder,) = node.after
                self._lending.yield_turn(holder, action, now_s)
                return True
        return False

    def _refusal(self, call: PendingAction, free: list[int]) -> NestedActionError:
        needs = self._needs(call.demand)
        keeper = self._nesting.keeper_of_turn(call)
        if keeper is not None and fits(needs, free):
            return self._nesting.no_turn(call, keeper)
        if fits(needs, free):
            return self._nesting.no_seat(call)
        dimension, units = next(pair for place in needs for pair in place if pair[1] > free[pair[0]])
        scale, name = self._dimensions[dimension].scale, self._dimensions[dimension].name
        return NestedActionError(
            f"{self._nesting.chain(call)}: {call.demand.name} asks for {units / scale:g} of {name}; "
            f"actions and trajectories that wait for one another keep all but {max(free[dimension], 0) / scale:g} of "
            f"{self._ledger.target[dimension] / scale:g}"
        )


def _number_of(trajectory: int) -> int:
    """Return a number for the node of a trajectory that no action has."""
    return -1 - trajectory
