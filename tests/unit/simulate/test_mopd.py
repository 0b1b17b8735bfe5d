"""MOPD is as its sources tell, and its teachers fit where they have to."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.events import ServiceRestored
from arl_tangram.model.quantities import GIB
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.policies import elastic
from arl_tangram.simulate.baselines import static_services
from arl_tangram.simulate.calls import Call, Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.gpus import Gpus
from arl_tangram.simulate.workloads import Mopd, Testbed, mopd_rollouts


@pytest.fixture(scope="module")
def batch() -> Workload:
    return mopd_rollouts(Mopd(), seed=1)


def scorings_of(workload: Workload) -> list[Call]:
    return [call for one in workload.rollouts for turn in one.turns for call in turn.calls]


def test_each_answer_is_scored_once_by_one_of_nine_teachers(batch: Workload) -> None:
    assert len(batch.rollouts) == 2048
    assert all(len(one.turns) == 1 and len(one.turns[0].calls) == 1 and one.at_s == 0 for one in batch.rollouts)
    asked = Counter(call.spec.cost.service for call in scorings_of(batch))
    assert set(asked) == {service.name for service in Mopd().services()}
    assert len(asked) == 9
    for number, share in enumerate((0.366, 0.178, 0.112, 0.094, 0.090, 0.051, 0.043, 0.036, 0.032)):
        assert asked[f"teacher{number}"] / 2048 == pytest.approx(share, abs=0.02)


def test_scoring_takes_what_the_paper_tells_on_the_least_gpus(batch: Workload) -> None:
    seconds = np.array([call.duration_s(4) for call in scorings_of(batch)])
    assert seconds.mean() == pytest.approx(0.621, rel=0.03)
    assert np.log(seconds).std() == pytest.approx(0.40, rel=0.05)
    eight = np.array([call.duration_s(8) for call in scorings_of(batch)])
    assert seconds / eight == pytest.approx(2**0.8)


def test_what_is_longer_to_generate_is_longer_to_score(batch: Workload) -> None:
    generation = np.array([one.turns[0].thinking_s for one in batch.rollouts])
    assert np.median(generation) == pytest.approx(120, rel=0.06)
    assert generation.max() == pytest.approx(600)
    assert 0.02 < (generation > 599).mean() < 0.05
    scoring = [call.work_s for call in scorings_of(batch)]
    assert np.corrcoef(np.log(generation), np.log(scoring))[0, 1] == pytest.approx(1)


def test_answers_of_one_length_are_alike() -> None:
    workload = mopd_rollouts(Mopd(rollouts=10, generation_sigma=0.0, scoring_sigma=0.0), seed=1)
    assert {one.turns[0].thinking_s for one in workload.rollouts} == {120.0}
    assert [call.duration_s(4) for call in scorings_of(workload)] == pytest.approx([0.621] * 10)


def test_teachers_fit_on_their_gpus_on_no_fewer_and_in_the_memory_of_a_machine() -> None:
    machines = Testbed()
    teachers = Mopd().services()
    (gpu, *_) = machines.devices()[0].devices
    for teacher in teachers:
        assert teacher.dops == (4, 8)
        assert all(footprint.peak_bytes <= gpu.capacity_bytes for _, footprint in teacher.footprints)
        assert dict(teacher.restore_s)[4] == pytest.approx(77.3 / 53 + 1.5, rel=0.001)
        assert dict(teacher.restore_s)[8] == pytest.approx(38.65 / 53 + 1.5, rel=0.001)
    assert Mopd().weights_gib / 2 > gpu.capacity_bytes / GIB
    assert len(teachers) * Mopd().weights_gib < machines.host_gib
    assert Mopd().weights_gib * GIB == pytest.approx(309e9, rel=0.001)
    assert sum(len(node.devices) for node in machines.devices()) == 40


def test_teachers_that_all_fit_are_restored_once_each_though_they_are_faster_on_more_gpus() -> None:
    mopd = Mopd(rollouts=512)
    gpus = Gpus(Testbed().devices(), mopd.services())
    workload = mopd_rollouts(mopd, seed=1)
    swapped = simulate(workload, Topology([]), elastic(), gpus=gpus, record=True)
    assert sum(isinstance(event, ServiceRestored) for event in swapped.events) <= 10
    static = simulate(workload, Topology([]), elastic(), gpus=static_services(gpus))
    assert swapped.mean_act_s < 1.25 * static.mean_act_s


def test_a_seed_draws_the_same_batch(batch: Workload) -> None:
    assert mopd_rollouts(Mopd(), 1) == batch
    assert mopd_rollouts(Mopd(), 2) != batch


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shares": ()}, "shares"),
        ({"shares": (1.0, 0.0)}, "shares.*above 0"),
        ({"scoring_s": 0.0}, "scoring_s.*above 0"),
        ({"longest_generation_s": 60.0}, "longest_generation_s=60.0.*generation_s=120.0"),
        ({"exponent": 1.5}, "exponent.*1.5"),
        ({"dops": ()}, "dops"),
        ({"weights_gib": -1.0}, "weights_gib"),
    ],
)
def test_what_is_not_possible_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Mopd(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"nodes": 0}, {"gpus": 1.5}, {"gpu_gib": -1.0}])
def test_machines_are_whole_and_have_memory(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        Testbed(**options)  # type: ignore[arg-type]
