"""DeepSearch is as its sources tell, and keeps its quotas."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.policies import elastic
from arl_tangram.simulate.calls import Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.workloads import DeepSearch, Testbed, deepsearch_rollouts

ANSWERED = DeepSearch(refused=0.0)


@pytest.fixture(scope="module")
def batch() -> Workload:
    return deepsearch_rollouts(ANSWERED, seed=1)


def seconds_of(workload: Workload, name: str) -> np.ndarray:
    return np.array(
        [
            call.work_s
            for one in workload.rollouts
            for turn in one.turns
            for call in turn.calls
            if call.spec.name == name
        ]
    )


def test_latencies_are_as_measured(batch: Workload) -> None:
    for name, median_s, sigma in (("search", 0.457, 1.02), ("page", 2.99, 0.73), ("judge", 2.99, 0.73)):
        seconds = seconds_of(batch, name)
        assert np.median(seconds) == pytest.approx(median_s, rel=0.06)
        assert np.log(seconds).std() == pytest.approx(sigma, rel=0.05)
    searches = np.sort(seconds_of(batch, "search"))
    assert searches[-len(searches) // 20 :].sum() / searches.sum() == pytest.approx(0.27, abs=0.03)
    pages = np.sort(seconds_of(batch, "page"))
    assert pages[-len(pages) // 20 :].sum() / pages.sum() == pytest.approx(0.18, abs=0.02)


def test_turns_are_as_stated(batch: Workload) -> None:
    asked = [turn.calls for one in batch.rollouts for turn in one.turns[:-1]]
    assert len(batch.rollouts) == 2048
    assert np.median([len(one.turns) - 1 for one in batch.rollouts]) == pytest.approx(8, abs=0.5)
    assert max(len(one.turns) for one in batch.rollouts) <= 65
    assert np.mean([calls[0].spec.name == "page" for calls in asked]) == pytest.approx(0.5, abs=0.02)
    searches = Counter(len(calls) for calls in asked if calls[0].spec.name == "search")
    assert sorted(searches) == [1, 2, 3]
    assert max(searches.values()) / min(searches.values()) < 1.1
    tools_s = sum(max(call.work_s for call in calls) for calls in asked)
    thinking_s = sum(turn.thinking_s for one in batch.rollouts for turn in one.turns)
    assert tools_s / (tools_s + thinking_s) == pytest.approx(0.47)


def test_each_answer_is_judged_and_sixteen_have_one_question(batch: Workload) -> None:
    for one in batch.rollouts:
        *_, last = one.turns
        assert [call.spec.cost.service for call in last.calls] == ["judge"]
        assert last.thinking_s == 0
        assert one.at_s == one.memory_bytes == 0
    assert set(Counter(one.group for one in batch.rollouts).values()) == {16}


def test_what_is_refused_is_asked_for_once_more(batch: Workload) -> None:
    refusing = deepsearch_rollouts(replace(ANSWERED, refused=0.1), seed=1)
    calls = refused = 0
    for one in refusing.rollouts:
        for turn, following in zip(one.turns[:-1], one.turns[1:], strict=True):
            no = [call for call in turn.calls if call.work_s == 0.2]
            calls += len(turn.calls)
            refused += len(no)
            if no:
                assert following.thinking_s == 1.0
                assert [call.spec for call in following.calls] == [call.spec for call in no]
    assert refused / (calls - refused) == pytest.approx(0.1, abs=0.01)
    assert not (seconds_of(batch, "search") == 0.2).any()
    everything_twice = deepsearch_rollouts(replace(ANSWERED, rollouts=8, refused=1.0), seed=1)
    answered = deepsearch_rollouts(replace(ANSWERED, rollouts=8), seed=1)
    for twice, once in zip(everything_twice.rollouts, answered.rollouts, strict=True):
        assert len(twice.turns) - 1 == 2 * (len(once.turns) - 1)


def test_the_quotas_stand_where_they_are_said_to(batch: Workload) -> None:
    calls, pages = ANSWERED.quotas()
    assert (calls.name, calls.capacity, calls.window_s) == ("quota:search/calls", 200 * MILLI, 1.0)
    assert (pages.name, pages.capacity, pages.window_s) == ("quota:pages/concurrency", 512 * MILLI, None)
    starts: list[float] = []
    for one in batch.rollouts:
        at_s = 0.0
        for turn in one.turns:
            at_s += turn.thinking_s
            starts += [at_s] * sum(call.spec.name == "search" for call in turn.calls)
            at_s += max(call.work_s for call in turn.calls)
    assert len(starts) / max(starts) < 200
    assert sum(at_s < 1 for at_s in starts) > 200


def test_the_judge_fits_on_one_gpu() -> None:
    (judge,) = DeepSearch().services()
    (gpu, *_) = Testbed().devices()[0].devices
    assert judge.dops == (1, 2, 4, 8)
    assert all(footprint.peak_bytes <= gpu.capacity_bytes for _, footprint in judge.footprints)
    assert dict(judge.restore_s)[1] == pytest.approx(60.8 * 1.0737 / 53 + 1.5, rel=0.001)
    assert judge.max_concurrency == 32


def test_it_runs_within_its_quotas() -> None:
    deepsearch = DeepSearch(rollouts=40, searches_per_s=5, pages_at_once=3)
    drawn = deepsearch_rollouts(deepsearch, seed=6)
    unjudged = replace(drawn, rollouts=tuple(replace(one, turns=one.turns[:-1]) for one in drawn.rollouts))
    result = simulate(unjudged, Topology(deepsearch.quotas()), elastic())
    starts = sorted(call.started_at_s for call in result.calls if call.name == "search")
    assert all(later - at >= 1 - 1e-9 for at, later in zip(starts, starts[5:], strict=False))
    changes = [(call.ended_at_s, -1) for call in result.calls if call.name == "page"]
    changes += [(call.started_at_s, 1) for call in result.calls if call.name == "page"]
    assert np.cumsum([change for _, change in sorted(changes)]).max() == 3


def test_a_seed_draws_the_same_batch() -> None:
    small = DeepSearch(rollouts=8)
    assert deepsearch_rollouts(small, 6) == deepsearch_rollouts(small, 6)
    assert deepsearch_rollouts(small, 6) != deepsearch_rollouts(small, 7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queries": 0}, "queries.*whole number from 1, not 0"),
        ({"memory_gib": 0.5}, "memory_gib.*whole number from 0, not 0.5"),
        ({"searches_per_s": 0.5}, "searches_per_s.*0.5"),
        ({"refused": -0.1}, "refused.*from 0 to 1"),
        ({"tool_share": 1.0}, "tool_share"),
        ({"retry_after_s": float("inf")}, "retry_after_s.*inf"),
        ({"judge_exponent": 1.2}, "judge_exponent.*1.2"),
        ({"judge_dops": (3,)}, "dops.*3"),
        ({"judge_concurrency": 0}, "max_concurrency"),
        ({"copy_gb_per_s": 0.0}, "copy_gb_per_s"),
    ],
)
def test_what_is_not_possible_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        DeepSearch(**options)  # type: ignore[arg-type]
