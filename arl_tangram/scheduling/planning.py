"""Ask the policy, one dimension at a time: what it sees, what it answers, and what becomes of a policy that is wrong.

A policy that raises, or plans what is not possible, is refused: it is not asked again, and from then on whoever fits
starts in order, each with its least units.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, cast

from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.completions import Completions
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.policy import Candidate, Group, Plan, Policy
from arl_tangram.scheduling.queue import WaitingQueue
from arl_tangram.scheduling.sharing.kinds import shares

_DEPTH = 64
_MOST_ARRIVALS = 128
_MOST_CACHED = 10_000


class Planning:
    """The policy at work.

    Args:
        topology: all dimensions.
        policy: what is asked.
        durations: what is expected of actions.
        queue: who waits.
        ledger: what there is.
        kept: units of each dimension that callers keep while they wait for what they have called: for a policy, these
            are not there, as they return only when others have run.

    Attributes:
        shared: bits of the dimensions of cores that running actions share: when those end is not known.
        sharers: units of each dimension that they have: for a policy, these are not there.
        refused: why the policy is not asked any more, or None.
    """

    def __init__(  # noqa: PLR0917 - the parts of one core
        self,
        topology: Topology,
        policy: Policy,
        durations: Durations,
        queue: WaitingQueue,
        ledger: Ledger,
        kept: Sequence[int],
    ) -> None:
        self.shared = 0
        self.sharers = [0] * len(topology.dimensions)
        self.refused: str | None = None
        self.completions = [Completions() for _ in topology.dimensions]
        self.arrivals: list[deque[tuple[float, PendingAction]]] = [
            deque(maxlen=_MOST_ARRIVALS) for _ in topology.dimensions
        ]
        self.arrived = [0] * len(topology.dimensions)
        self.topology = topology
        self.policy = policy
        self._durations = durations
        self._queue = queue
        self._target = ledger.target
        self._kept = kept
        self._plans: dict[int, Plan] = {}
        self._cached: dict[tuple[int, str], tuple[Demand, tuple[float, ...], Candidate]] = {}

    def arrive(self, action: PendingAction, at_s: float) -> None:
        """Take note that an action, one that a policy hands out units to, competes from now on."""
        dimension = action.demand.elastic
        assert dimension is not None
        if self.shared >> dimension & 1 and shares(action.demand):
            return
        self.arrivals[dimension].append((at_s, action))
        self.arrived[dimension] += 1

    def expect(self, running: RunningAction, away_s: float = 0.0) -> None:
        """Expect the end of an action that runs, and has waited for others for `away_s` seconds."""
        dimension = running.pending.demand.elastic
        if dimension is not None and not (self.shared >> dimension & 1 and shares(running.pending.demand)):
            self.completions[dimension].add(*self._expectation(dimension, running, away_s))

    def expect_no_more(self, running: RunningAction, away_s: float = 0.0) -> None:
        """Forget what `expect` was given."""
        dimension = running.pending.demand.elastic
        if dimension is not None and not (self.shared >> dimension & 1 and shares(running.pending.demand)):
            self.completions[dimension].remove(*self._expectation(dimension, running, away_s))

    def _expectation(self, dimension: int, running: RunningAction, away_s: float) -> tuple[float, int, int]:
        units = running.units // self.topology.dimensions[dimension].scale
        return running.started_at_s + running.expected_s + away_s, running.pending.id, units

    def capacity(self, dimension: int) -> int:
        """Return the integer units of a dimension that are free or return when what runs has ended."""
        return self._target[dimension] - self._kept[dimension] - self.sharers[dimension]

    def resize(self) -> None:
        """A dimension has another capacity."""
        self._cached.clear()

    def plan(self, dimension: int, members: Sequence[PendingAction], free: int, now_s: float) -> list[int]:
        """Return integer units for the first of the candidates; the rest is to be deferred.

        Args:
            dimension: its index.
            members: the candidates, in order.
            free: integer units of the dimension that they may share.
            now_s: the time.
        """
        if self.refused is None and any(len(action.demand.options) > 1 for action in members):
            scale = self.topology.dimensions[dimension].scale
            group = cast(Group, _Group(self, dimension, members, free // scale, now_s))
            try:
                units = _checked(self._planner(dimension)(group), members, free, scale)
                self._check_progress(units, dimension, free)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - a policy may be anybody's
                self.refused = told(error)
            else:
                return units
        return [action.demand.options[0] for action in members]

    def candidate(self, action: PendingAction, scale: int) -> Candidate:
        """Return what a policy sees of an action; the same object as long as no estimate changes."""
        demand = action.demand
        curve = self._durations.curve(demand, action.key)
        cached = self._cached.get((id(demand), action.key))
        if cached is not None and cached[0] is demand and cached[1] is curve:
            return cached[2]
        candidate = _candidate(demand, curve, self._target[demand.elastic or 0], scale)
        if len(self._cached) >= _MOST_CACHED:
            self._cached.clear()
        self._cached[id(demand), action.key] = (demand, curve, candidate)
        return candidate

    def waiting(self, dimension: int, scale: int) -> tuple[Candidate, ...]:
        """Return who comes next for a dimension, in order."""
        waiting = self._queue.behind(dimension, _DEPTH)
        return tuple([self.candidate(action, scale) for action in waiting if action.demand.elastic == dimension])

    def backlog(self, dimension: int) -> int:
        """Return how many wait for a dimension."""
        return self._queue.count(dimension)

    def _planner(self, dimension: int) -> Plan:
        plan = self._plans.get(dimension)
        if plan is None:
            plan = self._plans[dimension] = self.policy.planner()
        return plan

    def _check_progress(self, units: list[int], dimension: int, free: int) -> None:
        if not units and free == self.capacity(dimension):
            raise ValueError(f"starts nobody, though nothing else holds {self.topology.dimensions[dimension].name}")


class _Group:
    """A `Group` that works out what a policy looks at."""

    def __init__(
        self, planning: Planning, dimension: int, members: Sequence[PendingAction], free: int, now_s: float
    ) -> None:
        self._now_s = now_s
        self._free = free
        self._planning = planning
        self._dimension = dimension
        self._members = members
        self._resource = planning.topology.dimensions[dimension]

    @property
    def now_s(self) -> float:
        return self._now_s

    @property
    def free(self) -> int:
        return self._free

    @property
    def capacity(self) -> int:
        return self._planning.capacity(self._dimension) // self._resource.scale

    @cached_property
    def candidates(self) -> Sequence[Candidate]:
        return tuple([self._planning.candidate(action, self._resource.scale) for action in self._members])

    @cached_property
    def waiting(self) -> Sequence[Candidate]:
        return self._planning.waiting(self._dimension, self._resource.scale)

    @cached_property
    def backlog(self) -> int:
        return self._planning.backlog(self._dimension)

    @cached_property
    def running(self) -> Sequence[tuple[float, int]]:
        return self._planning.completions[self._dimension].upcoming(self._now_s)

    @cached_property
    def arrivals(self) -> Sequence[tuple[float, Candidate]]:
        scale, came = self._resource.scale, self._planning.arrivals[self._dimension]
        return tuple([(at_s, self._planning.candidate(action, scale)) for at_s, action in came])

    @property
    def arrived(self) -> int:
        return self._planning.arrived[self._dimension]


def _candidate(demand: Demand, curve: tuple[float, ...], capacity: int, scale: int) -> Candidate:
    """Return what a policy sees of a demand where there are so many integer units in all."""
    admitted = max(1, sum([units <= capacity for units in demand.options]))
    return Candidate(tuple([units // scale for units in demand.options[:admitted]]), curve[:admitted])


def _checked(plan: object, members: Sequence[PendingAction], free: int, scale: int) -> list[int]:
    """Return a plan in integer units if it is possible; what the policy was shown may have been changed by it.

    Raises:
        ValueError: it is not.
        TypeError: it is no plan at all.
    """
    is_sequence = hasattr(plan, "__iter__") and not isinstance(plan, (str, bytes))
    if not is_sequence:
        raise TypeError(f"planned {plan!r}, which is no sequence of units")
    planned_units = list(islice(cast(Iterable[Any], plan), len(members) + 1))
    if len(planned_units) > len(members):
        raise ValueError(f"planned for more actions than the {len(members)} candidates")
    units: list[int] = []
    for planned, action in zip(planned_units, members, strict=False):
        options = action.demand.options
        admitted = next((option for option in options if option == planned * scale), None)
        if admitted is None:
            shown = tuple([option // scale for option in options])
            raise ValueError(f"planned {planned!r} units for an action that admits {shown}")
        units.append(admitted)
    if sum(units) > free:
        raise ValueError(f"planned {sum(units) // scale} units, {free // scale} are free")
    return units


def told(error: BaseException) -> str:
    """Say what somebody's own code raised."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - its text is anybody's, too
        return type(error).__name__
