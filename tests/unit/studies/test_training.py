"""Steps of a training: one after the other, and each counts its own calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arl_tangram.model.cost import Cost
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import MILLI
from arl_tangram.simulate.calls import Call, Rollout, Turn, Workload
from arl_tangram.simulate.workloads import CODING_BATCH, Testbed, coding_rollouts
from arl_tangram.studies import training
from arl_tangram.studies.runs import Run
from arl_tangram.studies.training import Training, one_after_the_other

SMALL = replace(CODING_BATCH, rollouts=8, turns=3, group=4)
MACHINE = Testbed(nodes=1, cores=4)
COMMAND = ActionSpec("command", Cost(cpu=MILLI))


def batch(*work_s: float) -> Workload:
    return Workload(
        rollouts=tuple([Rollout((Turn(0.0, (Call(COMMAND, lasts_s, key="task0"),)),)) for lasts_s in work_s])
    )


def test_a_step_begins_after_the_one_before_and_has_tasks_of_its_own() -> None:
    joined = one_after_the_other([batch(1, 2), batch(3, 4)], 10.0)
    assert [rollout.at_s for rollout in joined.rollouts] == [0, 0, 10, 10]
    assert [rollout.turns[0].calls[0].key for rollout in joined.rollouts] == [
        "0.task0",
        "0.task0",
        "1.task0",
        "1.task0",
    ]
    assert [rollout.turns[0].calls[0].work_s for rollout in joined.rollouts] == [1, 2, 3, 4]


def test_under_a_policy_that_learns_nothing_steps_are_as_batches_by_themselves() -> None:
    steps = Training(SMALL, 3, 1, "reserved(1)", MACHINE).outcome()
    alone = [Run(SMALL, seed, "reserved(1)", MACHINE).outcome().act_s for seed in (1000, 1001, 1002)]
    assert steps.act_s == pytest.approx(alone)


def test_steps_that_would_overlap_get_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four calls of 10 s on one core take 40 s, and 20 s are left at first: twice what the longest takes alone."""
    gaps_s: list[float] = []

    def joined(batches: list[Workload], gap_s: float) -> Workload:
        gaps_s.append(gap_s)
        return one_after_the_other(batches, gap_s)

    monkeypatch.setattr(training, "coding_rollouts", lambda *_: batch(10, 10, 10, 10))
    monkeypatch.setattr(training, "one_after_the_other", joined)
    small = replace(SMALL, rollouts=4)
    steps = Training(small, 2, 1, "reserved(1)", Testbed(nodes=1, cores=1)).outcome()
    assert gaps_s == [20, 40, 80]
    assert steps.act_s == pytest.approx((25.0, 25.0))


def test_what_is_learned_of_one_step_is_known_in_the_next() -> None:
    """The last step by itself is served otherwise than after the others."""
    steps = Training(replace(SMALL, testing=1.0), 3, 1, "elastic", Testbed(nodes=1, cores=16)).outcome()
    alone = Run(replace(SMALL, testing=1.0), 1002, "elastic", Testbed(nodes=1, cores=16)).outcome()
    assert steps.act_s[2] != pytest.approx(alone.act_s, rel=1e-6)
    assert len(coding_rollouts(SMALL, 1000).rollouts) == 8
