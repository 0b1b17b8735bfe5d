"""A run in the runtime, its trace, and the replay of the trace: the replay predicts what the run took."""

from __future__ import annotations

from pathlib import Path

import pytest

from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import Amdahl, Elastic
from arl_tangram.model.events import Event
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.replay import show
from arl_tangram.replay.predicted import events_of
from arl_tangram.replay.source import Source, read_source
from arl_tangram.replay.variants import Variant, of_batch, policy_named, predict, with_cores, with_memory
from arl_tangram.scheduling.order import Order
from arl_tangram.simulate.calls import Arrival, Call, Rollout, Turn, Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.trace.encode import EventEncoder, footer_line, header_line
from arl_tangram.trace.figures import Figures
from arl_tangram.trace.format import Footer, Header
from arl_tangram.trace.summary import Summary
from unit.simulate.drawn import SEARCH, pools
from unit.simulate.in_runtime import told_by_runtime

CORES, MEMORY_GIB = 4, 8
LOOK = ActionSpec("look", Cost(cpu=MILLI))
SUITE = ActionSpec("suite", Cost(cpu=Elastic.of(1, 2, 4, speedup=Amdahl(0.9))))
ASK = ActionSpec("ask", Cost(quota=(("search", MILLI),)))
SCORE = ActionSpec("score", Cost(cpu=MILLI, memory_bytes=GIB))


def rollout(number: int) -> Rollout:
    """Return a trajectory of three turns, unlike all others."""
    look, ask = Call(LOOK, 0.37 + 0.11 * number), Call(ASK, 0.2 + 0.01 * number)
    suite = Call(SUITE, 5.3 + 0.7 * number, Amdahl(0.9))
    turns = (Turn(0.5 + 0.13 * number, (look,)), Turn(0.31, (ask,)), Turn(0.7, (suite,)), Turn(0.1))
    return Rollout(turns, 0.05 * number, 2 * GIB, "all")


WORKLOAD = Workload(
    tuple(Arrival(0.7 * number, Call(SCORE, 0.9 + 0.03 * number)) for number in range(6)),
    tuple(rollout(number) for number in range(7)),
)


def trace_of(events: list[Event], policy: str, topology: Topology, folder: Path) -> Path:
    encoder = EventEncoder(topology)
    file = folder / "run.jsonl"
    lines = [header_line(Header("0.1.0", policy, "virtual", 0.0, topology)), *map(encoder.line, events)]
    file.write_text("".join([*lines, footer_line(Footer(len(events), 0, 0))]))
    return file


def recorded(workload: Workload, policy: str, folder: Path, order: Order = "fcfs") -> Source:
    """Run a workload in the runtime, and read its trace."""
    events = told_by_runtime(
        workload, policy_named(policy), cores=CORES, memory_gib=MEMORY_GIB, quotas=[SEARCH], order=order
    )
    return read_source([trace_of(events, policy, pools(CORES, MEMORY_GIB, SEARCH), folder)])


def alike(one: Figures, other: Figures) -> None:
    """Check that all that is printed of two runs is the same, up to the rounding of times in a trace."""
    close = {"rel": 1e-3, "abs": 1e-4}
    assert one.elapsed_s == pytest.approx(other.elapsed_s, **close)
    assert one.admitted_act_mean_s == pytest.approx(other.admitted_act_mean_s, **close)
    assert one.trajectories.waited_mean_s == pytest.approx(other.trajectories.waited_mean_s, **close)
    for part in ("calls", "act_mean_s", "queueing_mean_s", "execution_mean_s", "overhead_mean_s", "core_s"):
        assert getattr(one.total, part) == pytest.approx(getattr(other.total, part), **close), part
    held = [row.held_unit_s for row in other.dimensions]
    assert [row.held_unit_s for row in one.dimensions] == pytest.approx(held, **close)


@pytest.mark.parametrize("order", ["fcfs", "shortest", "trajectory"])
@pytest.mark.parametrize("policy", ["elastic", "paper", "fixed(2)", "reserved(1)"])
def test_a_run_is_predicted_from_its_own_trace(policy: str, order: Order, tmp_path: Path) -> None:
    source = recorded(WORKLOAD, policy, tmp_path, order)
    assert source.measured is not None
    assert source.topology == pools(CORES, MEMORY_GIB, SEARCH)
    assert source.measured.total.queueing_mean_s
    assert source.measured.total.queueing_mean_s > 0.05, "nobody waits: nothing would be predicted"
    found = predict(source.workload, source.topology, Variant(policy_named(policy), order))
    alike(found.figures, source.measured)


@pytest.mark.parametrize("policy", ["paper", "fixed(1)", "reserved(1)", "reserved(2)"])
def test_a_run_is_predicted_from_the_trace_of_another_policy(policy: str, tmp_path: Path) -> None:
    source = recorded(WORKLOAD, "elastic", tmp_path)
    other = recorded(WORKLOAD, policy, tmp_path)
    assert source.measured is not None
    assert other.measured is not None
    assert source.topology is not None
    assert abs(source.measured.elapsed_s - other.measured.elapsed_s) > 0.1, "both take as long"
    alike(predict(source.workload, source.topology, Variant(policy_named(policy))).figures, other.measured)


def test_other_pools_and_batches(tmp_path: Path) -> None:
    """What the runtime takes with two cores less, half the memory and more trajectories is what is predicted."""
    workload = Workload(rollouts=WORKLOAD.rollouts)
    source = recorded(workload, "elastic", tmp_path)
    assert source.topology is not None
    smaller = with_memory(with_cores(source.topology, 2), 4)
    again = Workload(rollouts=(*workload.rollouts, *workload.rollouts[:3]))
    events = told_by_runtime(again, policy_named("elastic"), cores=2, memory_gib=4, quotas=[SEARCH])
    summary = Summary(smaller)
    summary.add_all(events)
    found = predict(of_batch(source.workload, 10), smaller, Variant(policy_named("elastic")))
    alike(found.figures, summary.figures())


def test_several_nodes(tmp_path: Path) -> None:
    """What runs outside of sandboxes waits for the cores of the node where it did, and trajectories go to both."""
    nodes = Topology(
        [
            dimension
            for name in ("far", "near")
            for dimension in (Dimension(f"cpu@{name}", 2000, MILLI), Dimension(f"memory@{name}", 4 * GIB, GIB))
        ]
    )
    workload = Workload(
        WORKLOAD.arrivals,
        tuple(Rollout((one.turns[0], *one.turns[2:]), one.at_s, one.memory_bytes) for one in WORKLOAD.rollouts),
    )
    first = simulate(workload, nodes, policy_named("elastic"), record=True, host=1)
    events = list(events_of(first, workload, nodes))
    source = read_source([trace_of(events, "elastic", nodes, tmp_path)])
    assert (source.host, source.topology) == (1, nodes)
    assert source.measured is not None
    alike(predict(source.workload, nodes, Variant(policy_named("elastic")), host=source.host).figures, source.measured)
    printed = show.table([("measured", source.measured, source.topology)])
    assert printed.splitlines()[1].split() == ["cores", "4"]


def test_shared_cores_switch_and_suspend(tmp_path: Path) -> None:
    source = recorded(Workload(rollouts=WORKLOAD.rollouts), "elastic", tmp_path)
    assert source.topology is not None
    kept, shared, apart = (
        predict(source.workload, source.topology, Variant(policy_named(name), share=share))
        for name, share in (("elastic", False), ("elastic", True), ("reserved(1)", True))
    )
    assert (kept.variant.name, shared.variant.name, apart.variant.name) == ("elastic", "elastic, resize", "reserved(1)")
    assert kept.figures.total.switches == apart.figures.total.switches == 0
    assert shared.figures.total.switches > 0
    assert shared.figures.total.suspended_s > 0
    assert shared.figures.total.calls == kept.figures.total.calls
