"""The figures of a simulated run, made by what makes those of a measured one: from its events, as a trace has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from arl_tangram.model.events import ActionEnded, ActionStarted, Event, UnitsReturned
from arl_tangram.model.lifecycle import FinishedAction
from arl_tangram.model.topology import Topology
from arl_tangram.replay.calls import MeasuredCall, calls_of
from arl_tangram.simulate.calls import Call, Workload
from arl_tangram.simulate.results import Result, SimulatedCall
from arl_tangram.trace.figures import Figures
from arl_tangram.trace.summary import Summary


def figures_of(result: Result, workload: Workload, topology: Topology) -> Figures:
    """Return the figures of a run whose events were recorded."""
    summary = Summary(topology)
    for event in events_of(result, workload, topology):
        summary.add(event)
    return summary.figures()


def events_of(result: Result, workload: Workload, topology: Topology) -> Iterator[Event]:
    """Yield the events of a run, with the ends of its calls, which the core does not tell of.

    Overhead and waits that were kept as measured count as such.
    """
    waiting: dict[int | None, Iterator[Call]] = {}
    by_rollout: dict[int | None, list[Call]] = defaultdict(list)
    for number, call in calls_of(workload):
        by_rollout[number].append(call)
    ended: dict[int, tuple[SimulatedCall, Call]] = {}
    for simulated in result.calls:
        calls = waiting.setdefault(simulated.rollout, iter(by_rollout[simulated.rollout]))
        ended[simulated.id] = simulated, next(calls)
    nodes: dict[int, int | None] = {}
    several = len(topology.nodes) > 1
    for event in result.events:
        yield event
        if isinstance(event, ActionStarted) and several:
            nodes[event.action.pending.id] = event.action.pending.demand.node
        elif isinstance(event, UnitsReturned) and event.id in ended:
            simulated, call = ended.pop(event.id)
            yield _ended(simulated, call, _id_of(simulated, result), nodes.pop(event.id, None))
    for simulated, call in ended.values():  # these gave up
        yield _ended(simulated, call, _id_of(simulated, result), None)


def _id_of(simulated: SimulatedCall, result: Result) -> int | None:
    """Return the id of the trajectory of a call, as it is in the events."""
    return None if simulated.rollout is None else result.rollouts[simulated.rollout].id


def _ended(simulated: SimulatedCall, call: Call, trajectory: int | None, node: int | None) -> ActionEnded:
    busy_s = simulated.execution_s - simulated.suspended_s
    waited_s = overhead_s = cpu_s = 0.0
    if isinstance(call, MeasuredCall):
        waited_s, cpu_s = min(call.waited_s, busy_s), call.cpu_s
        overhead_s = min(call.overhead_s, busy_s - waited_s)
    action = FinishedAction(
        simulated.id,
        simulated.name,
        simulated.key,
        trajectory,
        simulated.outcome,
        None,
        simulated.submitted_at_s,
        simulated.queueing_s + waited_s,
        max(0.0, busy_s - waited_s - overhead_s),
        overhead_s,
        cpu_s,
        simulated.units / 1000,
        node,
        simulated.suspended_s,
        simulated.switches,
    )
    return ActionEnded(simulated.ended_at_s, action)
