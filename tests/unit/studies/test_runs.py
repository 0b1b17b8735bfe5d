"""What one simulation is, and what its figures are made of: by hand, on a few calls."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.cost import Cost
from arl_tangram.model.elasticity import Elastic, PowerLaw
from arl_tangram.model.gpu import chunks_of
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.simulate.calls import Call, Rollout, Turn, Workload
from arl_tangram.simulate.workloads import CODING_BATCH, Coding, DeepSearch, Mopd, Testbed, coding_rollouts
from arl_tangram.studies.contenders import on_cores
from arl_tangram.studies.overheads import COMMAND_S, with_overhead
from arl_tangram.studies.runs import Run, figures_of, first_gpus, rewards_of

COMMAND = ActionSpec("command", Cost(cpu=MILLI))
SUITE = ActionSpec("suite", Cost(cpu=Elastic.of(1, 2)))
MACHINE = Testbed(nodes=1, cores=2, gpu_nodes=1)
SMALL = replace(CODING_BATCH, rollouts=12, turns=3, group=4)
QUICK = (
    SMALL,
    DeepSearch(rollouts=12, turns=2, searches_per_s=8, pages_at_once=8),
    Mopd(rollouts=12, shares=(0.6, 0.4)),
)


def one_command_and_a_suite() -> Workload:
    """Three trajectories, each with a command of 10 s and a suite of 4 s that is twice as fast on two cores."""
    turns = (Turn(0.0, (Call(COMMAND, 10.0),)), Turn(0.0, (Call(SUITE, 4.0, PowerLaw(1.0)),)))
    return Workload(rollouts=tuple([Rollout(turns, memory_bytes=GIB) for _ in range(3)]))


def test_who_waits_for_reserved_cores_waits_for_its_first_call() -> None:
    """Two cores, both of them for one trajectory: it takes 10 and 2 s, and the others wait for 12 and 24 s."""
    workload = one_command_and_a_suite()
    figures = figures_of(on_cores(workload, MACHINE, "reserved(2)").run(), rewards_of(workload))
    assert (figures.calls, figures.step_s) == (6, 36)
    assert figures.act_s == pytest.approx((3 * 12 + 12 + 24) / 6)
    assert figures.queueing_s == pytest.approx((12 + 24) / 6)
    assert figures.execution_s == pytest.approx(3 * 12 / 6)
    assert figures.environment_s == pytest.approx((3 * 10 + 12 + 24) / 3)
    assert figures.reward_s == pytest.approx(2)
    assert figures.overhead_s == 0
    assert figures.act_p99_s == pytest.approx(10)


def test_with_one_core_each_two_go_on_at_once() -> None:
    workload = one_command_and_a_suite()
    figures = figures_of(on_cores(workload, MACHINE, "reserved(1)").run(), rewards_of(workload))
    assert figures.step_s == 28
    assert figures.act_s == pytest.approx((3 * 14 + 14) / 6)


def test_only_calls_of_the_scheduler_have_its_overhead() -> None:
    """The third command waits for the first two, while these have their suites: 10, 14 and 24 s, with some overhead."""
    workload = one_command_and_a_suite()
    calls = on_cores(workload, MACHINE, "fixed(1)").run().calls
    assert [call.execution_s for call in calls] == pytest.approx([10 + COMMAND_S] * 3 + [4 + COMMAND_S] * 3)
    calls = on_cores(workload, MACHINE, "reserved(1)").run().calls
    assert {round(call.execution_s, 9) for call in calls} == {10, 4}


def test_the_overhead_does_not_go_away_on_more_cores() -> None:
    slowed = with_overhead(one_command_and_a_suite(), 0.5).rollouts[0].turns[1].calls[0]
    assert [slowed.duration_s(cores) for cores in (1, 2)] == [4.5, 2.5]


def test_what_is_no_call_on_cores_has_no_overhead() -> None:
    searching = Run(DeepSearch(rollouts=4), 1).workload
    assert isinstance(searching, DeepSearch)
    search = Call(ActionSpec("search", Cost(quota=(("search", MILLI),))), 1.0)
    workload = Workload(rollouts=(Rollout((Turn(0.0, (search,)),)),))
    assert with_overhead(workload) == workload


def test_without_calls_of_a_kind_there_is_no_figure() -> None:
    workload = Workload(rollouts=(Rollout((Turn(0.0, (Call(COMMAND, 1.0),)),), memory_bytes=GIB),))
    figures = figures_of(on_cores(workload, MACHINE, "reserved(1)").run(), rewards_of(workload))
    assert math.isnan(figures.environment_s)
    assert figures.reward_s == 1


@pytest.mark.parametrize("workload", QUICK, ids=lambda workload: type(workload).__name__)
def test_the_same_run_is_the_same(workload: Coding | DeepSearch | Mopd) -> None:
    run = Run(workload, 1, machines=MACHINE)
    again = pickle.loads(pickle.dumps(run))
    assert (again, hash(again)) == (run, hash(run))
    assert again.outcome()._replace(took_s=0) == pytest.approx(run.outcome()._replace(took_s=0), rel=0, nan_ok=True)
    assert replace(run, seed=2).outcome().act_s != run.outcome().act_s


@pytest.mark.parametrize(
    ("workload", "contender", "there"),
    [
        (QUICK[0], "static", r"elastic, paper, fixed\(N\) and reserved\(N\)"),
        (QUICK[0], "reserved(2), resize", "is not shared"),
        (QUICK[1], "serverless", r"elastic, static\(N\) and reserved"),
        (QUICK[1], "static(0)", r"elastic, static\(N\) and reserved"),
        (QUICK[2], "fixed(4)", "elastic, static and serverless"),
    ],
)
def test_a_contender_that_there_is_not(workload: Coding | DeepSearch | Mopd, contender: str, there: str) -> None:
    with pytest.raises(ConfigurationError, match=there):
        Run(workload, 1, contender, MACHINE).outcome()


@pytest.mark.parametrize(
    ("workload", "contenders"),
    [
        (QUICK[0], ("elastic", "elastic, resize", "paper", "fixed(1)", "reserved(2)")),
        (QUICK[1], ("elastic", "static(2)", "static(4)", "reserved")),
        (QUICK[2], ("elastic", "static")),
        (QUICK[2], ("static", "serverless")),
    ],
    ids=["coding", "deepsearch", "mopd", "mopd-serverless"],
)
def test_each_contender_serves_the_same_calls_otherwise(
    workload: Coding | DeepSearch | Mopd, contenders: tuple[str, ...]
) -> None:
    found = [Run(workload, 1, name, MACHINE).outcome() for name in contenders]
    assert len({figures.calls for figures in found}) == 1
    assert len({figures.act_s for figures in found}) == len(contenders)


def test_what_is_told_changes_what_the_scheduler_does_and_nothing_else() -> None:
    """With everything told ten times too long it decides as with the truth, or learns; with the reverse it does not."""
    run = Run(replace(SMALL, testing=1.0, rollouts=24), 1, machines=Testbed(nodes=1, cores=16))
    told = [run, replace(run, told=(("testing", 10.0), ("suite", 0.1)))]
    assert len({one.outcome().act_s for one in told}) == 2
    assert len({one.outcome().calls for one in told}) == 1
    with pytest.raises(ConfigurationError, match="no action 'tests'"):
        replace(run, told=(("tests", 10.0),)).outcome()


def test_the_first_gpus_are_whole_machines_and_a_part_of_one() -> None:
    machines = Testbed(gpu_nodes=3, gpus=8)
    assert first_gpus(machines, None) == machines.devices()
    assert [len(node.devices) for node in first_gpus(machines, 20)] == [8, 8, 4]
    assert [len(node.devices) for node in first_gpus(machines, 16)] == [8, 8]
    assert [len(node.devices) for node in first_gpus(machines, 4)] == [4]
    assert [chunk.first for chunk in chunks_of(first_gpus(machines, 20), 4)] == [0, 4, 8, 12, 16]


def test_rewards_are_what_trajectories_end_with() -> None:
    assert rewards_of(coding_rollouts(SMALL, 1)) == {"suite"}
