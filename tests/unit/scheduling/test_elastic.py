"""The default policy: prices, looking ahead, and what every plan keeps to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arl_tangram.scheduling.policies import Candidate, Policy, Snapshot, elastic, fixed, paper
from arl_tangram.scheduling.pricing import NEVER, Curve, Curves, Pricing, Supply
from arl_tangram.scheduling.rollout import Outcome, outlook
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.workloads import Mix, open_calls, pool

UNITS = (1, 2, 4, 8, 16)


def scaling(duration_s: float, exponent: float, units: Sequence[int] = UNITS) -> Candidate:
    return Candidate(tuple(units), tuple(duration_s / u**exponent for u in units))


RIGID = Candidate((1,), (5.0,))
GOOD, POOR = scaling(16.0, 1.0), scaling(16.0, 0.5)


# Prices.

durations = st.floats(min_value=1e-6, max_value=1e7)


@st.composite
def candidates(draw: st.DrawFn, most_units: int = 64) -> Candidate:
    """Any options; durations that fall unevenly, or any durations: not falling, far apart."""
    units = sorted(draw(st.sets(st.integers(1, most_units), min_size=1, max_size=20)))
    if draw(st.booleans()):
        exponent, work = draw(st.floats(0, 1)), draw(durations)
        return Candidate(tuple(units), tuple(work / u**exponent * draw(st.floats(0.5, 2.0)) for u in units))
    return Candidate(tuple(units), tuple(draw(durations) for _ in units))


@example(candidate=Candidate((1, 2, 4), (10.0, 7.9, 4.0)), price=0.5)  # the one between is never the cheapest
@given(candidate=candidates(), price=st.just(0.0) | st.floats(-4, 4).map(lambda power: 10**power))
def test_the_envelope_finds_the_cheapest_option(candidate: Candidate, price: float) -> None:
    curve = Curve(candidate)
    costs = [d * (1 + price * u) for u, d in zip(curve.units, curve.durations_s, strict=True)]
    assert costs[curve.at(price)] == pytest.approx(min(costs))
    assert set(zip(curve.units, curve.durations_s, strict=True)) <= set(
        zip(candidate.units, candidate.durations_s, strict=True)
    )


def test_of_many_options_a_selection_is_looked_at() -> None:
    curve = Curve(scaling(10.0, 0.8, range(1, 10_001)))
    assert (curve.units[0], curve.units[-1]) == (1, 10_000)
    assert len(curve.units) < 30


def test_a_price_tells_apart_who_scales() -> None:
    """At 1/16 of a second per unit-second, 16 units halve what scales linearly, and do not pay for the square root."""
    assert UNITS[Curve(GOOD).at(1 / 16)] == 16
    assert UNITS[Curve(POOR).at(1.0)] == 1
    assert UNITS[Curve(POOR).at(0.0)] == 16


def test_an_action_waits_for_units_only_if_that_pays() -> None:
    """On one unit at once 10 s, on two 1 s: both are worth it if the second is back in 8 s, in 20 s not."""
    curve = Curve(Candidate((1, 2), (10.0, 1.0)))
    soon, late = [(108.0, 1)], [(120.0, 1)]
    assert curve.affordable(0.0, Supply(100.0, 1, soon), 2.0) == -2
    assert curve.affordable(0.0, Supply(100.0, 1, late), 2.0) == 0
    # What lies idle has its price as well, and who never waits takes what there is.
    assert curve.affordable(10.0, Supply(100.0, 1, soon), 2.0) == 0
    assert curve.affordable(0.0, Supply(100.0, 1, soon), NEVER) == 0
    # What is over is not counted again; what will never be there is not waited for.
    assert curve.affordable(0.0, Supply(100.0, 1, soon, over=1), 2.0) == 0


# Looking ahead.


def test_a_roll_serves_in_order_and_adds_up_what_everybody_takes() -> None:
    group = Snapshot(100.0, 1, (RIGID,), (RIGID, RIGID), ((103.0, 1),), capacity=2, backlog=2)
    outcome = outlook(group, Curves(), 0.0).roll(Pricing(1, 0, NEVER))
    # At once until 105; from 103 to 108; from 105 to 110, when the second has 3 s left: 5 + 3 / 2 s of both units.
    assert outcome.total_s == 5 + 8 + 10
    assert outcome.backlog_s == pytest.approx(5 + (3 + 5) / 2)


def test_who_is_not_seen_counts() -> None:
    group = Snapshot(0.0, 1, (RIGID,), (), (), capacity=1, backlog=7)
    expected = outlook(group, Curves(), 0.0)
    assert expected.costs_s([expected.roll(Pricing(1, 0, NEVER))]) == [5 + 7 * 5]


def test_what_is_usually_in_progress_costs_nobody_who_comes_later() -> None:
    group = Snapshot(0.0, 1, (RIGID,), capacity=1, arrived=1000)
    expected = outlook(group, Curves(), rate=2.0)
    calm, behind = Outcome(10.0, 3.0, 0.5, 3.0), Outcome(10.0, 7.0, 0.5, 5.0)
    # 4 s behind at half load: gone after 8 s, in which 16 come who wait 2 s on average.
    assert expected.costs_s([calm, behind]) == [10.0, 10.0 + 4 * (2.0 * 4 / (2 * 0.5))]


def test_bursts_come_again_as_bursts_after_their_gap() -> None:
    past = [(at_s, RIGID) for at_s in (0.0, 0.0, 0.0, 60.0, 60.0, 60.0)]
    group = Snapshot(60.0, 1, (RIGID,), capacity=1, arrivals=past, arrived=6)
    assert outlook(group, Curves(), 0.1).times_s == [60.0, *[120.0] * 3, *[180.0] * 3]
    # Later than ever: as long again.
    late = Snapshot(160.0, 1, (RIGID,), capacity=1, arrivals=past, arrived=6)
    assert outlook(late, Curves(), 0.1).times_s[1] == 260.0


def test_looking_ahead_is_bounded() -> None:
    many = [scaling(1.0 + i, 0.7) for i in range(300)]
    past = [(float(i), candidate) for i, candidate in enumerate(many)]
    group = Snapshot(400.0, 64, many[:64], many[64:128], capacity=64, backlog=64, arrivals=past, arrived=300)
    assert len(outlook(group, Curves(), 1.0).curves) == 192


# Plans.


def test_who_does_not_fit_any_more_waits() -> None:
    """Nobody else waits, so the first takes all; the second fitted only beside its least."""
    group = Snapshot(0.0, 16, (GOOD, GOOD), capacity=16, arrived=2)
    plan = elastic().planner()(group)
    assert sum(plan) <= 16
    assert list(elastic().planner()(Snapshot(0.0, 2, (Candidate((1, 2), (10.0, 0.1)), RIGID), capacity=2))) == [2]


def test_alone_an_action_takes_what_makes_it_fastest() -> None:
    assert elastic().planner()(Snapshot(0.0, 64, (POOR,), capacity=64, arrived=1)) == [16]
    slower = Candidate((1, 2, 4), (3.0, 2.0, 9.0))
    assert elastic().planner()(Snapshot(0.0, 64, (slower,), capacity=64, arrived=1)) == [2]


def test_with_many_waiting_units_go_where_they_are_worth_it() -> None:
    perfect = Candidate((1, 4), (8.0, 1.0))
    group = Snapshot(0.0, 64, (perfect, POOR) * 8, (POOR,) * 64, capacity=64, backlog=5_000, arrived=5_016)
    assert elastic().planner()(group) == [4, 1] * 8


def test_the_first_waits_no_longer_than_what_ran_was_expected_to_run() -> None:
    """What it waits for is late, and late again."""
    plan = elastic().planner()
    superlinear = Candidate((1, 8), (1_000.0, 1.0))

    def ask(now_s: float) -> Sequence[int]:
        return plan(Snapshot(now_s, 1, (superlinear,), running=((now_s + 5.0, 7),), capacity=8, arrived=1))

    assert [list(ask(now_s)) for now_s in (0.0, 4.0, 5.0, 6.0)] == [[], [], [], [1]]


class Watched:
    """A group that counts which of its attributes are worked out."""

    def __init__(self, group: Snapshot, read: Counter[str]) -> None:
        self._group = group
        self._read = read
        self.now_s, self.free, self.capacity = group.now_s, group.free, group.capacity
        self.candidates, self.backlog, self.arrived = group.candidates, group.backlog, group.arrived

    @property
    def waiting(self) -> Sequence[Candidate]:
        self._read["waiting"] += 1
        return self._group.waiting

    @property
    def running(self) -> Sequence[tuple[float, int]]:
        self._read["running"] += 1
        return self._group.running

    @property
    def arrivals(self) -> Sequence[tuple[float, Candidate]]:
        self._read["arrivals"] += 1
        return self._group.arrivals


def test_an_ordinary_call_looks_at_the_candidates_only() -> None:
    """A completion a round with ten thousand waiting: the rest is read for a review, every 64 calls, and not else."""
    read: Counter[str] = Counter()
    plan = elastic().planner()
    past = [(0.01 * i, POOR) for i in range(128)]
    for call in range(650):
        running = tuple((call + 0.1 * i, 1) for i in range(256))
        group = Snapshot(float(call), 1, (POOR,), (POOR,) * 64, running, 256, 10_000, past, 10_001)
        assert plan(Watched(group, read)) == [1]
    assert 0 < max(read.values()) < 40


# What every plan keeps to, whatever it is shown.


@st.composite
def shown(draw: st.DrawFn) -> list[Snapshot]:
    """Groups as the core shows them one after the other; the past and what runs need not make sense."""
    capacity = draw(st.sampled_from((1, 7, 64, 10_000)))
    kinds = draw(st.lists(candidates(min(capacity, 64)), min_size=1, max_size=6))
    groups: list[Snapshot] = []
    now_s, arrived = 0.0, 0
    for _ in range(draw(st.integers(1, 12))):
        now_s += draw(st.sampled_from((0.0, 1e-3, 1.0, 1e6)))
        free = draw(st.integers(1, capacity))
        present = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=64))
        fitting: list[Candidate] = []
        left = free
        for candidate in present:
            left -= candidate.units[0]
            if left < 0:
                break
            fitting.append(candidate)
        if not fitting:
            continue
        waiting = draw(st.lists(st.sampled_from(kinds), max_size=64))
        backlog = len(waiting) + (draw(st.sampled_from((0, 100, 100_000))) if len(waiting) == 64 else 0)
        arrived += draw(st.integers(0, 200))
        times_s = sorted(draw(st.lists(st.floats(0, now_s), max_size=min(arrived, 128))))
        arrivals = [(at_s, draw(st.sampled_from(kinds))) for at_s in times_s]
        ends = draw(st.lists(st.tuples(st.floats(now_s, now_s + 1e7), st.integers(1, 64)), max_size=20))
        running = () if free == capacity else tuple(sorted(ends))
        groups.append(Snapshot(now_s, free, fitting, waiting, running, capacity, backlog, arrivals, arrived))
    return groups


@given(groups=shown())
def test_every_plan_is_possible_and_the_same_again(groups: list[Snapshot]) -> None:
    plan, again = elastic().planner(), elastic().planner()
    for group in groups:
        units = plan(group)
        assert len(units) <= len(group.candidates)
        assert all(u in c.units for u, c in zip(units, group.candidates, strict=False))
        assert sum(units) <= group.free
        if not group.running:
            assert units, "nothing runs, so nothing will come back to wait for"
        assert list(again(group)) == list(units)


@given(groups=shown())
def test_dimensions_do_not_learn_from_each_other(groups: list[Snapshot]) -> None:
    policy = elastic()
    plan, other = policy.planner(), policy.planner()
    for group in groups[:-1]:
        other(group)
    for group in groups[-1:]:
        assert list(plan(group)) == list(elastic().planner()(group))


# What it is for.


@pytest.mark.parametrize(("load", "burst", "share"), [(0.9, 1, 1.0), (1.1, 1, 0.3), (0.5, 16, 1.0), (0.5, 64, 1.0)])
def test_it_is_not_worse_than_any_fixed_dop_in_hindsight_nor_than_paper(load: float, burst: int, share: float) -> None:
    """On small workloads, with a margin for what chance does to them; `bench schedule` judges on large ones."""
    calls = [open_calls(Mix(512, load, burst, share, (0.9, 1.0), 64), seed) for seed in (1, 2)]

    def act_s(policy: Policy) -> float:
        return math.fsum(simulate(c, pool(64), policy, known=True).mean_act_s for c in calls)

    mine = act_s(elastic())
    assert mine <= 1.05 * min(act_s(fixed(dop)) for dop in UNITS)
    assert mine <= 1.05 * act_s(paper(best_prefix=True))
