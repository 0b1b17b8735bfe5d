"""How little is needed: what is reduced, by what steps, and that the answer keeps the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from arl_tangram.simulate.workloads import CODING_BATCH, DeepSearch, Mopd, Testbed
from arl_tangram.studies import needs
from arl_tangram.studies.needs import Need, Of
from arl_tangram.studies.runs import Figures, Run

CODING = Run(replace(CODING_BATCH, rollouts=12, turns=3, group=4), 1, machines=Testbed(nodes=2, cores=100))
SEARCHING = Run(DeepSearch(rollouts=12, turns=2, searches_per_s=50, pages_at_once=10), 1)
TEACHERS = Run(Mopd(rollouts=12, shares=(0.6, 0.4)), 1, machines=Testbed(gpu_nodes=2))


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Run], float]], list[Run]]:
    """Let runs take what a function says; what it returns lists those that were run."""

    def take(time_s: Callable[[Run], float]) -> list[Run]:
        ran: list[Run] = []

        def outcome(run: Run) -> Figures:
            ran.append(run)
            return Figures(1, time_s(run), 0, 0, 0, 0, 0, 0, 0)

        monkeypatch.setattr(needs.Run, "outcome", outcome)
        return ran

    return take


def test_each_time_has_its_own_answer_and_no_run_is_made_twice(times: Callable[..., list[Run]]) -> None:
    ran = times(lambda run: 100 / run.machines.cores)
    found = Need(CODING, Of.CORES, (2.0, 4.0, 0.5)).outcome()
    assert found.least == (50, 25, None)
    assert len(ran) == len(set(ran)) == len(found.tried)
    assert dict(found.tried)[50] == 2.0
    assert [capacity for capacity, _ in found.tried] == sorted(capacity for capacity, _ in found.tried)
    assert {run.machines.nodes for run in ran} == {2}


def test_a_search_takes_few_runs(times: Callable[..., list[Run]]) -> None:
    """One with all of it, seven for the bisection of a hundred, and three above the answer."""
    ran = times(lambda run: 100 / run.machines.cores)
    assert Need(CODING, Of.CORES, (7.0,)).outcome().least == (15,)
    assert len(ran) <= 11


def test_what_was_tried_for_another_time_counts(times: Callable[..., list[Run]]) -> None:
    """With 50 cores it takes long again, which only the search for the first time comes by."""
    times(lambda run: 5.0 if run.machines.cores == 50 else 100 / run.machines.cores)
    found = Need(CODING, Of.CORES, (2.0, 4.0)).outcome()
    assert found.least == (51, 51)
    assert all(act_s <= 4.0 for capacity, act_s in found.tried if capacity >= 51)


def test_gpus_go_by_the_smallest_instance(times: Callable[..., list[Run]]) -> None:
    ran = times(lambda run: 100 / (16 if run.gpus is None else run.gpus))
    assert Need(TEACHERS, Of.GPUS, (9.0,)).outcome().least == (12,)
    assert {run.gpus for run in ran} <= {4, 8, 12, 16}


def test_both_quotas_are_reduced_together(times: Callable[..., list[Run]]) -> None:
    ran = times(lambda run: 1.0 if isinstance(run.workload, DeepSearch) and run.workload.pages_at_once >= 4 else 2.0)
    assert Need(SEARCHING, Of.QUOTAS, (1.0,)).outcome().least == (40,)
    quotas = {
        (run.workload.searches_per_s, run.workload.pages_at_once) for run in ran if isinstance(run.workload, DeepSearch)
    }
    assert {(50, 10), (20, 4)} <= quotas


def test_the_answer_keeps_the_time_and_a_little_less_does_not() -> None:
    run = replace(CODING, machines=Testbed(nodes=1, cores=16))
    at_most_s = 1.2 * run.outcome().act_s
    (cores,) = Need(run, Of.CORES, (at_most_s,)).outcome().least
    assert cores is not None
    assert 1 < cores < 16
    assert replace(run, machines=Testbed(nodes=1, cores=cores)).outcome().act_s <= at_most_s
    assert replace(run, machines=Testbed(nodes=1, cores=cores - 1)).outcome().act_s > at_most_s
