"""How many rollouts are worth having at once, and how many calls that makes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from arl_tangram.model.topology import SANDBOXES, Dimension, Topology, on_node
from arl_tangram.plan.search import smallest
from arl_tangram.replay.variants import Variant, simulated
from arl_tangram.simulate.calls import Workload

GAIN = 0.02
"""A step that is longer by this share or less counts as no longer."""


class AtOnce(NamedTuple):
    """A run with a bound on its rollouts.

    Attributes:
        rollouts: how many may be open at once.
        act_s: mean ACT; the wait for admission is not counted, as the trainer makes the rollouts wait.
        step_s: from the beginning to the end.
    """

    rollouts: int
    act_s: float
    step_s: float


@dataclass(frozen=True, slots=True)
class InFlight:
    """How many rollouts and calls there are at once.

    Attributes:
        enough: rollouts at once from which on more do not shorten the step; 0 if there are none.
        unbounded: the run without a bound; its rollouts are the most that are open at once.
        tried: runs with a bound, and the one without, in the order of the bounds.
        calls: the most calls that wait or run at once, without a bound.
        calls_of_rollout: the most calls that a rollout makes at once.
    """

    enough: int
    unbounded: AtOnce
    tried: tuple[AtOnce, ...]
    calls: int
    calls_of_rollout: int


def in_flight(workload: Workload, topology: Topology, variant: Variant, *, host: int = 0) -> InFlight:
    """Return how many rollouts are worth having at once: the fewest with which the step is as short as with all.

    A rollout that waits for its turn begins when one before it ends. With several nodes, the bound is the same on each.
    """
    free = simulated(workload, topology, variant, host=host)
    open_ = _peak((rollout.opened_at_s, rollout.closed_at_s) for rollout in free.rollouts)
    calls_of_rollout = max((len(turn.calls) for rollout in workload.rollouts for turn in rollout.turns), default=0)
    calls = _peak((call.submitted_at_s, call.ended_at_s) for call in free.calls)
    unbounded = AtOnce(open_, free.mean_act_s, free.step_s)
    if not open_:
        return InFlight(0, unbounded, (unbounded,), calls, calls_of_rollout)
    nodes = max(1, len(topology.nodes))
    most = -(-open_ // nodes)
    tried: list[AtOnce] = []

    def keeps(bound: int) -> bool:
        run = simulated(workload, _bounded(topology, bound), variant, host=host)
        tried.append(AtOnce(bound * nodes, run.mean_act_s, run.step_s))
        return run.step_s <= (1 + GAIN) * free.step_s

    enough = min(open_, nodes * smallest(keeps, 1, most))
    return InFlight(enough, unbounded, (*sorted(tried), unbounded), calls, calls_of_rollout)


def _bounded(topology: Topology, rollouts: int) -> Topology:
    """Return the same with a bound on the sandboxes of each node, of which a rollout has one."""
    dimensions = list(topology.dimensions)
    for node in topology.nodes:
        if node.sandboxes is None:
            dimensions.append(Dimension(on_node(SANDBOXES, node.name), rollouts))
        else:
            was = dimensions[node.sandboxes]
            dimensions[node.sandboxes] = replace(was, capacity=min(was.capacity, rollouts))
    return Topology(dimensions)


def _peak(spans: Iterable[tuple[float, float]]) -> int:
    """Return how many spans there are at once; one that ends as another begins is not beside it."""
    changes = sorted(change for begin_s, end_s in spans for change in ((begin_s, 1), (end_s, -1)))
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most
