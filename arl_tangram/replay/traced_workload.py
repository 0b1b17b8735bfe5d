"""A workload made of a trace: trajectories that think as long as they did, and calls that take what they took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from arl_tangram.model.topology import MEMORY, Topology, resource_of
from arl_tangram.replay.calls import MeasuredCall
from arl_tangram.replay.costs import Costs
from arl_tangram.replay.traced import TracedCall, TracedRun, TracedTrajectory
from arl_tangram.simulate.calls import Arrival, Rollout, Turn, Workload

_AT_ONCE_S = 1e-3
_ROUNDING_S = 2e-6


@dataclass(slots=True)
class _Counts:
    """What is not as it was recorded, in calls and trajectories."""

    unfinished: int = 0
    never_ran: int = 0
    together: int = 0
    nested: int = 0
    homeless: int = 0
    open: int = 0


@dataclass(slots=True)
class _Node:
    """A call of a trajectory that has ended, and the calls that it made."""

    traced: TracedCall
    children: list[_Node] = field(default_factory=list["_Node"])

    @property
    def submitted_at_s(self) -> float:
        return self.traced.pending.submitted_at_s

    def children_s(self) -> float:
        """Return for how long any of the calls ran that it made."""
        total_s, until_s = 0.0, self.submitted_at_s
        for child in self.children:
            total_s += max(0.0, child.traced.ended_at_s - max(until_s, child.submitted_at_s))
            until_s = max(until_s, child.traced.ended_at_s)
        return total_s


class Replayable(NamedTuple):
    """What is made of a trace.

    Attributes:
        workload: what happened.
        topology: what there was to share, without GPUs.
        host: the number of the node where what is outside of sandboxes had its cores and memory, if there are several.
        notes: what is not as it was recorded, or not known.
    """

    workload: Workload
    topology: Topology
    host: int
    notes: tuple[str, ...]


def workload_of(run: TracedRun) -> Replayable:
    """Return what happened, and what of it is not as it was recorded.

    A trajectory wishes to open when it did. It thinks from the end of a call to the submission of the next one; calls
    of it that overlap are made at once. What is outside of trajectories is made when it was.
    """
    return _Making(run).made()


class _Making:
    """Makes one workload."""

    def __init__(self, run: TracedRun) -> None:
        self._run = run
        self._topology = run.header.topology
        self._costs = Costs(self._topology, run.header.version, run.calls)
        self._counts = _Counts()
        wishes_s = [one.opened.at_s - one.opened.waited_s for one in run.trajectories.values()]
        self._begun_s = min([*wishes_s, *(call.pending.submitted_at_s for call in run.calls)], default=0.0)

    def made(self) -> Replayable:
        """Return all that is known."""
        run = self._run
        inside: dict[int, list[TracedCall]] = {id_: [] for id_ in run.trajectories}
        arrivals: list[Arrival] = []
        for traced in run.calls:
            id_ = traced.pending.trajectory
            if id_ is not None:
                inside.setdefault(id_, []).append(traced)
            elif (call := self._call(traced)) is not None:
                arrivals.append(Arrival(max(0.0, traced.pending.submitted_at_s - self._begun_s), call))
        rollouts = tuple(self._rollout(run.trajectories.get(id_), calls) for id_, calls in inside.items())
        seats = self._topology.seats
        shared = Topology(d for index, d in enumerate(self._topology.dimensions) if not seats >> index & 1)
        notes = tuple(notes_of(run, self._costs, self._counts))
        return Replayable(Workload(tuple(arrivals), rollouts), shared, self._host(), notes)

    def _host(self) -> int:
        nodes = (call.pending.demand.node for call in self._run.calls if not call.pending.turn)
        return next((node for node in nodes if node is not None), 0)

    def _call(self, traced: TracedCall, others_s: float = 0.0) -> MeasuredCall | None:
        call = self._costs.call(traced, others_s)
        if call is None:
            self._counts.unfinished += traced.ended is None
            self._counts.never_ran += traced.ended is not None
        return call

    def _rollout(self, trajectory: TracedTrajectory | None, calls: Sequence[TracedCall]) -> Rollout:
        nodes = self._nodes(calls)
        if trajectory is None:
            self._counts.homeless += 1
            at_s = calls[0].pending.submitted_at_s
            return Rollout(tuple(self._turns(nodes, at_s)), max(0.0, at_s - self._begun_s))
        opened = trajectory.opened
        turns = list(self._turns(nodes, opened.at_s))
        if trajectory.closed_at_s is None:
            self._counts.open += 1
        else:
            last_s = max([opened.at_s, *(node.traced.ended_at_s for node in nodes)])
            turns.append(Turn(max(0.0, trajectory.closed_at_s - last_s)))
        names = {index: self._topology.dimensions[index].name for index, _ in opened.held}
        memory = sum(units for index, units in opened.held if resource_of(names[index]) == MEMORY)
        wished_s = max(0.0, opened.at_s - opened.waited_s - self._begun_s)
        return Rollout(tuple(turns), wished_s, memory, opened.group)

    def _nodes(self, calls: Sequence[TracedCall]) -> list[_Node]:
        """Return the calls that a trajectory made by itself, each with those that it made."""
        known: dict[int, _Node] = {}
        roots: list[_Node] = []
        for traced in calls:
            if traced.ended is None:
                self._counts.unfinished += 1
                continue
            node = known[traced.pending.id] = _Node(traced)
            parent = None if traced.pending.parent is None else known.get(traced.pending.parent)
            self._counts.nested += parent is not None
            (roots if parent is None else parent.children).append(node)
        return roots

    def _turns(self, nodes: Sequence[_Node], begin_s: float) -> Iterator[Turn]:
        """Yield the turns of calls that begin at some time: in one turn are those that overlap."""
        free_s, place = begin_s, 0
        while place < len(nodes):
            first = nodes[place]
            thinking_s = max(0.0, first.submitted_at_s - free_s)
            together: list[_Node] = []
            while place < len(nodes) and (not together or nodes[place].submitted_at_s < free_s - _ROUNDING_S):
                node = nodes[place]
                self._counts.together += node.submitted_at_s > first.submitted_at_s + _AT_ONCE_S
                together.append(node)
                free_s = max(free_s, node.traced.ended_at_s)
                place += 1
            calls = [self._call(node.traced, node.children_s()) for node in together]
            yield Turn(thinking_s, tuple(call for call in calls if call is not None))
            for node in together:
                if node.children:
                    yield from self._turns(node.children, node.children[0].submitted_at_s)


def notes_of(run: TracedRun, costs: Costs, counts: _Counts) -> Iterator[str]:
    """Say what of a run is not as it was recorded, or not known."""
    footer = run.ending.footer
    if footer is None:
        yield "The trace has no end: the run was killed or still goes on."
    elif footer.dropped or footer.lost:
        yield f"{footer.dropped + footer.lost:,} events are not in the trace: what they tell of is not replayed."
    if run.ending.missing:
        yield run.ending.told_missing()
    if run.ending.unknown:
        yield f"Fields that are not looked at: {', '.join(run.ending.unknown)}."
    said = (
        (run.ending.truncated, "The last line is cut off and left out"),
        (run.ending.unmatched, "Starts of calls whose submission is not in the file, which are left out"),
        (run.orphans, "Ends of calls whose submission is not in the file, which are left out"),
        (run.strays, "Other lines about calls or trajectories whose beginning is not in the file, which are left out"),
        (
            run.unreturned,
            "Calls that have ended and never gave back their units, which count as held in what was measured",
        ),
        (counts.unfinished, "Calls that had not ended when the trace does, which are left out"),
        (counts.never_ran, "Calls that gave up or were cancelled before they started, which are left out"),
        (counts.together, "Calls made while others of their trajectory ran, which are made together with these"),
        (counts.nested, "Calls made by other calls, which are made after these, whose own time is without theirs"),
        (
            counts.homeless,
            "Trajectories whose opening is not in the file, which hold no memory",
        ),
        (counts.open, "Trajectories that had not closed when the trace ends, and close after their last call"),
        (
            costs.seated,
            "Calls with GPUs, which wait and take as long as they did, whoever else wants these",
        ),
        (run.changes, "Changes of a capacity, which are not replayed: there is what there was at the beginning"),
        (run.pauses, "Pauses, which are not replayed: what waited for their end waits for what it needs only"),
    )
    yield from (f"{what}: {int(count):,}." for count, what in said if count)
    if costs.reserved:
        yield (
            f"Recorded with {costs.reserved} core{'s' * (costs.reserved > 1)} reserved for each trajectory: the trace "
            "does not say how many its calls can use, so each takes as many under every policy."
        )
    if costs.limited:
        yield (
            f"The recorded pool had {costs.limited} cores: the trace does not say whether elastic calls can use more, "
            "so they do not."
        )
    if costs.assumed:
        yield (
            f"How {', '.join(sorted(costs.assumed))} scales is neither declared nor told by its runs: taken to be "
            "n ** 0.8 times as fast on n cores."
        )
