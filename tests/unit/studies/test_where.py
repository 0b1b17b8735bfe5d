"""Where the results hold: what is varied, and what is made of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from arl_tangram.simulate.workloads import CODING_BATCH, Mopd, Testbed
from arl_tangram.studies.needs import Found, Need, Of
from arl_tangram.studies.runs import Figures, Run
from arl_tangram.studies.tasks import Outcomes
from arl_tangram.studies.where import Point, WhereCoding, WhereMopd, coding_points, where_coding, where_mopd

BASE = replace(CODING_BATCH, rollouts=10)
MACHINES = Testbed(nodes=2, cores=8)


def figures(act_s: float, step_s: float = 100.0) -> Figures:
    return Figures(10, act_s, 0.0, act_s, 0.0, act_s, 1.0, 1.0, step_s)


def test_a_point_has_its_ratios_and_what_is_saved() -> None:
    """One core suits the time of the baseline best, and two its step. What is told is told to the scheduler alone."""
    point = Point("told", 3.0, BASE, told=3.0)
    study = WhereCoding((point,), MACHINES, (1, 2), (4,), (1, 2))
    found = {
        "elastic": (figures(1.0, 100), figures(2.0, 100)),
        "reserved(1)": (figures(2.0, 150), figures(3.0, 170)),
        "reserved(2)": (figures(4.0, 120), figures(8.0, 140)),
        "fixed(4)": (figures(1.5), figures(1.0)),
    }
    runs = {
        Run(BASE, seed, name, MACHINES, told=3.0 if name == "elastic" else None): found[name][seed - 1]
        for name in found
        for seed in (1, 2)
    }
    assert set(study.tasks()) == set(runs)
    first, second = study.further(Outcomes(runs))
    assert first == Need(Run(BASE, 1, machines=MACHINES, told=3.0), Of.CORES, (pytest.approx(2.2),))
    (place,) = study.places(Outcomes({**runs, first: Found((2,), ()), second: Found((None,), ())}))
    assert (place.point, place.cores) == (point, 1)
    assert place.act == (2.0, 1.5)
    assert place.step == (1.2, 1.4)
    assert place.fixed == ((1.5, 0.5),)
    assert place.saved[0] == 75.0
    assert math.isnan(place.saved[1])


def test_static_services_are_left_out_where_they_have_no_room() -> None:
    """Three teachers on four GPUs each have room on 12 and not on 8."""
    mopd = Mopd(shares=(0.5, 0.3, 0.2))
    study = WhereMopd(mopd, Testbed(gpu_nodes=2), ((10, 12), (20, 8)), (1,))
    acts_s = {"elastic": 1.0, "static": 2.0, "serverless": 3.0}
    names = {(run.gpus, run.contender) for run in study.tasks() if isinstance(run, Run)}
    assert names == {(12, "elastic"), (12, "static"), (12, "serverless"), (8, "elastic"), (8, "serverless")}
    outcomes = Outcomes({run: figures(acts_s[run.contender]) for run in study.tasks() if isinstance(run, Run)})
    first, second = study.found(outcomes)
    assert (first.batch, first.gpus, first.static, first.serverless) == (10, 12, (2.0,), (3.0,))
    assert (second.batch, second.gpus, second.static, second.serverless) == (20, 8, None, (3.0,))


def test_what_is_varied_is_what_was_asked_for() -> None:
    points = coding_points(BASE, (5, 10))
    axes: dict[str, list[float]] = {}
    for point in points:
        axes.setdefault(point.axis, []).append(point.value)
    assert list(axes.values()) == [
        [0.1, 0.25, 0.47, 0.7, 0.86],
        [0.5, 1.0, 1.5, 2.0],
        [0, 0.28, 0.6, 1],
        [0.1, 1.0, 10.0],
        [0.1, 0.3, 3.0, 10.0],
        [5, 10],
    ]
    same = [point for point in points if point.workload == BASE and point.told is None]
    assert [point.axis for point in same] == [axis for axis in axes if "told" not in axis]
    uneven = next(point for point in points if point.told == (("testing", 10.0), ("suite", 0.1)))
    assert uneven.value == 10.0


def test_the_study_is_a_quarter_of_the_published_batch_and_its_cores() -> None:
    study = where_coding((6,))
    assert study.machines.nodes * study.machines.cores * 4 == Testbed().nodes * Testbed().cores
    assert {point.workload.rollouts for point in study.points if point.axis != "batch"} == {CODING_BATCH.rollouts // 4}
    assert (2048, 40) in where_mopd((6,)).places


def test_a_quick_study_can_be_run() -> None:
    coding, mopd = where_coding((1,), quick=True), where_mopd((1,), quick=True)
    small = replace(coding, points=coding.points[:2])
    outcomes = Outcomes()
    outcomes.run([*small.tasks(), *mopd.tasks()], 1, lambda *_: None)
    outcomes.run(small.further(outcomes), 1, lambda *_: None)
    assert len(small.places(outcomes)) == 2
    assert [place.static is None for place in mopd.found(outcomes)] == [False, True]
