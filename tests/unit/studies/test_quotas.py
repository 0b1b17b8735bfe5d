"""Quotas as others keep them: split over workers, or a place for each trajectory."""

from __future__ import annotations

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.cost import Cost
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.topology import Dimension, Topology, quota_concurrency
from arl_tangram.scheduling.policies import elastic
from arl_tangram.simulate.calls import Call, Rollout, Turn, Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.workloads import DeepSearch, deepsearch_rollouts
from arl_tangram.studies.quotas import places_for_trajectories, split_quotas

PAGE = ActionSpec("page", Cost(quota=(("pages", MILLI),)))
PAGES = Dimension(quota_concurrency("pages"), 2 * MILLI, MILLI)


def reading(*pages_s: float) -> Rollout:
    """A trajectory that reads pages, one after the other."""
    return Rollout(tuple([Turn(0.0, (Call(PAGE, page_s),)) for page_s in pages_s]))


def test_a_worker_does_not_use_what_another_leaves() -> None:
    """Two pages at once. The first half of the trajectories, two of 10 s, wait for each other; the others do not."""
    workload = Workload(rollouts=(reading(10), reading(10), reading(1), reading(0)))
    together = simulate(workload, Topology([PAGES]), elastic())
    assert [call.ended_at_s for call in together.calls] == [10, 10, 11, 10]
    split, parts = split_quotas(workload, [PAGES], 2)
    apart = simulate(split, Topology(parts), elastic())
    assert [part.capacity for part in parts] == [MILLI, MILLI]
    assert [call.ended_at_s for call in apart.calls] == [10, 20, 1, 1]


def test_nothing_but_the_quotas_is_changed() -> None:
    deepsearch = DeepSearch(rollouts=24, turns=3)
    workload = deepsearch_rollouts(deepsearch, 1)
    split, parts = split_quotas(workload, deepsearch.quotas(), 8)
    assert len(parts) == 16
    assert sum(part.capacity for part in parts) == sum(quota.capacity for quota in deepsearch.quotas())
    assert {part.window_s for part in parts} == {None, 1.0}
    for number, (before, after) in enumerate(zip(workload.rollouts, split.rollouts, strict=True)):
        assert (before.at_s, before.group) == (after.at_s, after.group)
        for turn, its in zip(before.turns, after.turns, strict=True):
            assert turn.thinking_s == its.thinking_s
            assert [call.work_s for call in turn.calls] == [call.work_s for call in its.calls]
            for call, told in zip(turn.calls, its.calls, strict=True):
                assert told.spec.name == call.spec.name
                assert told.spec.cost.quota == tuple((f"{name}.{number // 3}", n) for name, n in call.spec.cost.quota)


def test_a_worker_has_at_least_one_call() -> None:
    with pytest.raises(ConfigurationError, match="quota:pages/concurrency has 2 calls, less than one for each of 3"):
        split_quotas(Workload(rollouts=(reading(1),)), [PAGES], 3)


def test_a_part_is_rounded_down() -> None:
    five = Dimension(quota_concurrency("pages"), 5 * MILLI, MILLI)
    _, parts = split_quotas(Workload(rollouts=(reading(1),)), [five], 2)
    assert [part.capacity for part in parts] == [2 * MILLI, 2 * MILLI]


def test_a_place_is_held_from_the_first_turn_to_the_last() -> None:
    workload = Workload(rollouts=(reading(3, 3), reading(2), reading(1)))
    placed, places = places_for_trajectories(workload, 2)
    result = simulate(placed, Topology([PAGES, places]), elastic())
    assert [(one.opened_at_s, one.closed_at_s) for one in result.rollouts] == [(0, 6), (0, 2), (2, 3)]
