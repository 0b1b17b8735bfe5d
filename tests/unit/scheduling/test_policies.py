"""The policies: what each starts, on groups small enough to work out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.errors import ConfigurationError
from arl_tangram.scheduling.arrange import Arrangement
from arl_tangram.scheduling.lookahead import waiting_cost_s
from arl_tangram.scheduling.policies import Candidate, Policy, Snapshot, fixed, paper, reserved


def group(
    free: int,
    *candidates: Candidate,
    waiting: tuple[Candidate, ...] = (),
    running: tuple[tuple[float, int], ...] = (),
) -> Snapshot:
    return Snapshot(100.0, free, candidates, waiting, running)


def scaling(duration_s: float, *units: int, exponent: float = 1.0) -> Candidate:
    return Candidate(units, tuple(duration_s / u**exponent for u in units))


RIGID = Candidate((1,), (5.0,))


def test_look_ahead_serves_who_waits_in_order_at_its_least_units() -> None:
    two, one = Candidate((2, 4), (3.0, 1.0)), Candidate((1,), (2.0,))
    # At 104 both units are back: 4 + 3 s. The second has to wait for the first's: until 107, 7 + 2 s.
    assert waiting_cost_s((two, one), 0, [(102.0, 1), (104.0, 1)], 100.0) == pytest.approx(7 + 9)
    # With one unit free, nothing else running: at once.
    assert waiting_cost_s((one,), 1, [], 100.0) == 2
    # An end that has passed counts as now.
    assert waiting_cost_s((one,), 0, [(50.0, 1)], 100.0) == 2
    assert waiting_cost_s((), 0, [(102.0, 1)], 100.0) == 0


def test_paper_splits_evenly_what_scales_alike() -> None:
    alike = scaling(10, *range(1, 9), exponent=0.8)
    assert tuple(paper().plan(group(8, alike, alike))) == (4, 4)


def test_paper_gives_units_to_who_gains_most() -> None:
    assert tuple(paper().plan(group(5, RIGID, scaling(10, 1, 2, 3, 4)))) == (1, 4)


def test_a_deferral_pays_when_the_group_has_fewer_good_options_than_members() -> None:
    """Alone on both units 1 s each, together on one unit 10 s each: one after the other is better."""
    superlinear = Candidate((1, 2), (10.0, 1.0))
    assert tuple(paper().plan(group(2, superlinear, superlinear))) == (2,)


def test_strict_stops_at_the_first_deferral_that_does_not_help_and_best_prefix_goes_on() -> None:
    """The first gains only from four units: one deferral frees too little for it, two free enough."""
    needs_four = Candidate((2, 4), (100.0, 1.0))
    wanted = group(4, needs_four, Candidate((1,), (10.0,)), Candidate((1,), (10.0,)))
    assert tuple(paper().plan(wanted)) == (2, 1, 1)
    assert tuple(paper(best_prefix=True).plan(wanted)) == (4,)


def test_without_look_ahead_the_candidates_get_more_than_is_good_for_those_behind() -> None:
    first = scaling(10, 1, 2, exponent=0.1)
    behind = tuple(Candidate((1,), (1.0,)) for _ in range(5))
    superlinear = Candidate((1, 2), (10.0, 4.5))
    with_rest = group(2, superlinear, Candidate((1,), (1.0,)), waiting=behind)
    assert len(paper(best_prefix=True, depth=64).plan(with_rest)) == 2
    assert len(paper(best_prefix=True, depth=0).plan(with_rest)) == 1
    assert tuple(paper(depth=0).plan(group(2, first))) == (2,)


def test_completions_of_what_runs_make_waiting_cheap_or_dear() -> None:
    gains = Candidate((1, 2), (10.0, 4.0))
    short = Candidate((1,), (1.0,))
    soon, late = ((100.5, 1),), ((1000.0, 1),)
    assert tuple(paper().plan(group(2, gains, short, running=soon))) == (2,)
    lone = Candidate((1, 2), (10.0, 9.5))
    assert tuple(paper().plan(group(2, lone, short, running=late))) == (1, 1)


@st.composite
def groups(draw: st.DrawFn) -> Snapshot:
    def candidate() -> Candidate:
        units = tuple(sorted(draw(st.sets(st.integers(1, 8), min_size=1, max_size=4))))
        return Candidate(units, tuple(draw(st.floats(1e-6, 1e7)) for _ in units))

    candidates = tuple(candidate() for _ in range(draw(st.integers(1, 30))))
    waiting = tuple(candidate() for _ in range(draw(st.integers(0, 5))))
    running = tuple(sorted((draw(st.floats(0, 1e6)), draw(st.integers(1, 4))) for _ in range(draw(st.integers(0, 5)))))
    free = sum(c.units[0] for c in candidates) + draw(st.integers(0, 12))
    return Snapshot(100.0, free, candidates, waiting, running)


PAPERS = [paper(), paper(best_prefix=True), paper(best_prefix=True, depth=0)]
POLICIES: list[Policy] = [*PAPERS, fixed(1), fixed(3), reserved(2)]


@given(groups(), st.sampled_from(POLICIES))
def test_every_plan_is_a_prefix_of_admitted_units_that_fit(wanted: Snapshot, policy: Policy) -> None:
    plan = list(policy.planner()(wanted))
    assert len(plan) <= len(wanted.candidates)
    assert sum(plan) <= wanted.free
    assert all(u in c.units for u, c in zip(plan, wanted.candidates, strict=False))
    assert list(policy.planner()(wanted)) == plan
    if policy.name.startswith("paper"):
        assert plan, "the first always starts"


@given(groups())
def test_best_prefix_is_never_worse_by_its_own_objective(wanted: Snapshot) -> None:
    def objective(units: tuple[int, ...]) -> float:
        started = len(units)
        durations = [c.durations_s[c.units.index(u)] for c, u in zip(wanted.candidates, units, strict=False)]
        ends = [*wanted.running, *((wanted.now_s + d, u) for d, u in zip(durations, units, strict=True))]
        rest = (*wanted.candidates[started:], *wanted.waiting)
        return math.fsum(durations) + waiting_cost_s(rest, wanted.free - sum(units), ends, wanted.now_s)

    best, strict = objective(paper(best_prefix=True).plan(wanted)), objective(paper().plan(wanted))
    if len(wanted.candidates) <= 24:
        arrangement = Arrangement(wanted.candidates, wanted.free)
        everything = min(objective(arrangement.units(j)) for j in range(1, len(wanted.candidates) + 1))
        assert best <= everything * (1 + 1e-6) + 1e-6
        assert best <= strict * (1 + 1e-6) + 1e-6


def test_fixed_gives_everybody_the_nearest_admitted_below_in_order() -> None:
    wanted = group(10, scaling(10, *range(1, 9)), scaling(10, 1, 2, 4, 8), scaling(10, 4, 8), RIGID)
    assert fixed(3).plan(wanted) == [3, 2, 4, 1]
    assert fixed(1).plan(wanted) == [1, 1, 4, 1]
    assert fixed(8).plan(wanted) == [8], "who does not fit holds up those behind it"
    assert fixed(8).plan(group(7, scaling(10, *range(1, 9)))) == []


def test_reserved_holds_cores_per_trajectory_and_the_others_none() -> None:
    assert reserved(3).reserved_cores == 3
    assert (paper().reserved_cores, fixed(3).reserved_cores) == (0, 0)
    assert reserved(2).plan(group(3, scaling(10, 1, 2, 3), RIGID)) == [2, 1]


def test_names_tell_the_policies_apart() -> None:
    names = [p.name for p in (*POLICIES, fixed(2), reserved(1))]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2", None], ids=repr)
def test_what_is_no_number_of_units_is_refused(wrong: int) -> None:
    for make in (fixed, reserved):
        with pytest.raises(ConfigurationError, match="whole number from 1"):
            make(wrong)


@pytest.mark.parametrize("wrong", [-1, 65, 1.5, None], ids=repr)
def test_a_depth_is_from_0_to_64(wrong: int) -> None:
    with pytest.raises(ConfigurationError, match="from 0 to 64"):
        paper(depth=wrong)
