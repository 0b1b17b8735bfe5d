"""What is learned about durations: it converges, forgets, is bounded, and no input spoils it."""

from __future__ import annotations

import gc
import math
import random
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arl_tangram.model.elasticity import Elastic, Linear
from arl_tangram.model.estimates import Learned
from arl_tangram.model.lifecycle import Demand
from arl_tangram.scheduling import durations as scheduling_durations
from arl_tangram.scheduling.completions import Completions
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.relative import LONGEST_S
from property.worlds import make_demand, make_topology

TOPOLOGY = make_topology(cores=8)
UNKNOWN = make_demand(TOPOLOGY, "unknown", cpu=Elastic(1, 8, speedup=Linear()))
LEARNS = make_demand(TOPOLOGY, "learns", cpu=Elastic(1, 8))
TESTS = make_demand(TOPOLOGY, "tests", cpu=Elastic(1, 8, speedup=Linear()), duration_s=100)
PLAIN = make_demand(TOPOLOGY, "plain", search=1)


def test_a_prior_then_what_was_seen_then_the_mean_of_all_then_one_second() -> None:
    durations = Durations()
    assert durations.expected_s(PLAIN, "") == 1
    assert durations.expected_s(TESTS, "") == 100
    durations.observe(UNKNOWN, "", 4000, 2.0)
    assert durations.expected_s(UNKNOWN, "") == pytest.approx(8), "2 s on 4 cores are 8 s on one"
    assert durations.expected_s(PLAIN, "") == pytest.approx(8)
    durations.observe(PLAIN, "", 0, 3.0)
    assert durations.expected_s(PLAIN, "") == 3
    assert durations.at(PLAIN, "", 0) == 3


def test_a_guess_follows_what_other_actions_are_found_to_take() -> None:
    durations = Durations()
    durations.observe(TESTS, "", 1000, 1e300)
    for _ in range(300):
        durations.observe(TESTS, "", 1000, 2.0)
    assert durations.expected_s(PLAIN, "") == pytest.approx(2, rel=0.05)


def test_a_declared_duration_weighs_as_much_as_three_runs() -> None:
    durations = Durations()
    durations.observe(TESTS, "", 1000, 6.25)
    assert durations.expected_s(TESTS, "") == pytest.approx(6.25 * 16**0.75), "one run of four"


@pytest.mark.parametrize("wrong", [3.0, 1 / 3, 100.0, 0.01])
def test_a_wrong_declared_duration_is_overruled(wrong: float) -> None:
    for seed in range(20):
        durations, chance = Durations(), random.Random(seed)
        for _ in range(60):
            durations.observe(TESTS, "", 1000, 100 / wrong * chance.lognormvariate(-0.045, 0.3))
        assert durations.expected_s(TESTS, "") == pytest.approx(100 / wrong, rel=0.2)


def test_keys_are_learned_apart_and_a_new_one_is_expected_to_be_like_them() -> None:
    durations = Durations()
    for _ in range(20):
        durations.observe(TESTS, "small", 1000, 1.0)
        durations.observe(TESTS, "big", 1000, 50.0)
    assert durations.expected_s(TESTS, "small") == pytest.approx(1, rel=0.05)
    assert durations.expected_s(TESTS, "big") == pytest.approx(50, rel=0.05)
    assert durations.expected_s(TESTS, "new") == pytest.approx(25.5, rel=0.05), (
        "what is declared does not count any more"
    )


@pytest.mark.parametrize("place", [0, 5, 9])
def test_one_absurd_key_does_not_spoil_what_new_ones_are_expected_to_take(place: int) -> None:
    durations = Durations()
    for i in range(10):
        durations.observe(UNKNOWN, str(i), 1000, 1e7 if i == place else 2.0)
    assert 2 <= durations.expected_s(UNKNOWN, "new") < 20


def test_the_curve_projects_to_every_option() -> None:
    durations = Durations()
    assert durations.curve(TESTS, "") == pytest.approx([100 / units for units in range(1, 9)])
    assert durations.at(TESTS, "", 4000) == pytest.approx(25)


def test_it_converges_to_the_mean_whatever_the_units_are() -> None:
    durations, chance = Durations(), random.Random(1)
    for _ in range(400):
        units = chance.randint(1, 8)
        durations.observe(TESTS, "", units * 1000, chance.uniform(15, 25) / units)
    assert durations.expected_s(TESTS, "") == pytest.approx(20, rel=0.05)


def test_the_first_runs_weigh_the_same_and_then_the_old_ones_fade() -> None:
    durations = Durations()
    for seen_s in (1.0, 2.0, 6.0):
        durations.observe(PLAIN, "", 0, seen_s)
    assert durations.expected_s(PLAIN, "") == pytest.approx(3)
    for _ in range(200):
        durations.observe(PLAIN, "", 0, 50.0)
    assert durations.expected_s(PLAIN, "") == pytest.approx(50, rel=0.03)


def test_an_absurd_run_is_forgotten_too() -> None:
    durations = Durations()
    durations.observe(TESTS, "", 8000, 1e308)
    for _ in range(600):
        durations.observe(TESTS, "", 1000, 2.0)
    assert durations.expected_s(TESTS, "") == pytest.approx(2, rel=0.02)


def test_at_most_ten_thousand_keys_are_known_and_the_oldest_goes_first() -> None:
    durations = Durations()
    durations.observe(PLAIN, "first", 0, 7.0)
    durations.observe(TESTS, "second", 1000, 8.0)
    for i in range(9_998):
        durations.observe(PLAIN, f"k{i}", 0, 1.0)
    first_s = durations.expected_s(PLAIN, "first")
    assert first_s == 7
    durations.observe(PLAIN, "first", 0, 7.0)
    durations.observe(PLAIN, "one more", 0, 1.0)
    assert durations.expected_s(PLAIN, "first") == pytest.approx(7), "it was seen again"
    assert durations.expected_s(TESTS, "second") == 100, "forgotten: the prior counts again"
    assert len(durations._known) == 10_000
    assert list(durations._actions) == ["plain"]


def test_actions_that_never_ran_are_not_remembered_without_bound() -> None:
    durations = Durations()
    demands = [replace(TESTS, name=f"a{i}") for i in range(10_100)]
    curve = durations.curve(demands[0], "")
    assert durations.curve(demands[0], "x") is curve
    for demand in demands:
        durations.curve(demand, "")
    assert len(durations._unseen) <= 10_000
    assert durations.curve(demands[0], "") == curve


def test_memory_is_bounded_where_every_call_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling_durations, "_MOST_KEYS", 500)
    tracemalloc.start()
    durations = Durations()
    sizes: list[int] = []
    for i in range(3000):
        durations.curve(LEARNS, str(i))
        durations.observe(LEARNS, str(i), 2000, 1.0)
        durations.curve(LEARNS, str(i))
        if i in (600, 2999):
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[1] < 1.25 * sizes[0] < 500 * 5000


@pytest.mark.parametrize(
    "demand", [TESTS, UNKNOWN, LEARNS, replace(PLAIN, elastic=0, options=(1000,), relative=(1.0,))]
)
def test_a_curve_stays_the_same_object_while_little_changes(demand: Demand) -> None:
    durations = Durations()
    units = demand.options[0]
    curve = durations.curve(demand, "")
    assert durations.curve(demand, "") is curve
    assert durations.curve(replace(demand), "") is curve, "an equal demand of another node"
    for _ in range(100):
        durations.observe(demand, "", units, 5.0)
    curve = durations.curve(demand, "")
    assert curve[0] == pytest.approx(5.0, rel=0.05)
    durations.observe(demand, "other", units, 70.0)
    assert durations.curve(demand, "") is curve, "other keys do not matter at once"
    drawn = {id(curve): curve}
    for i in range(64):
        durations.observe(demand, "", units, 5.0 + 0.02 * (i % 2))
        drawn.setdefault(id(shown := durations.curve(demand, "")), shown)
    assert len(drawn) <= 5
    for _ in range(200):
        durations.observe(demand, "", units, 50.0)
    assert durations.curve(demand, "")[0] == pytest.approx(50, rel=0.1)


def test_the_same_runs_teach_the_same() -> None:
    def taught() -> tuple[Learned, list[tuple[float, ...]]]:
        durations, chance = Durations(), random.Random(4)
        for _ in range(2000):
            demand = chance.choice((TESTS, LEARNS, UNKNOWN))
            durations.curve(demand, "a")
            durations.observe(
                demand, chance.choice("abcdefgh"), chance.choice(demand.options), chance.lognormvariate(0, 1)
            )
        return durations.learned(), [durations.curve(demand, key) for demand in (TESTS, LEARNS) for key in "abcxyz"]

    assert taught() == taught()


def test_a_report_shows_the_keys_with_the_most_runs() -> None:
    durations = Durations()
    for i in range(30):
        for _ in range(i + 1):
            durations.observe(TESTS, f"k{i}", 1000, 5.0)
    learned = durations.learned(4)
    assert [(estimate.key, estimate.runs) for estimate in learned.estimates] == [
        ("k29", 30), ("k28", 29), ("k27", 28), ("k26", 27)
    ]  # fmt: skip
    assert learned.more == 26
    assert Durations().learned() == Learned()


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -math.inf, -1.0])
def test_what_is_no_duration_is_ignored(nonsense: float) -> None:
    durations = Durations()
    durations.observe(PLAIN, "", 0, 2.0)
    durations.observe(PLAIN, "", 0, nonsense)
    assert durations.expected_s(PLAIN, "") == 2


ANY = st.floats() | st.sampled_from([0.0, 1e308, 5e-324, 1e-300])


@example(speedups=[1.0] * 8, prior_s=math.nan, seen=[])
@example(speedups=[1.0] * 8, prior_s=math.inf, seen=[])
@example(speedups=[1e308] * 8, prior_s=None, seen=[(8, 100.0), (8, 1.0), (8, 1.0)])
@given(
    speedups=st.lists(ANY, min_size=8, max_size=8),
    prior_s=st.none() | ANY,
    seen=st.lists(st.tuples(st.integers(1, 8), ANY)),
)
def test_estimates_are_finite_and_positive_whatever_was_declared_or_seen(
    speedups: list[float], prior_s: float | None, seen: list[tuple[int, float]]
) -> None:
    elastic = Elastic(1, 8, speedup=lambda units: speedups[units - 1])
    demand = make_demand(TOPOLOGY, "garbage", cpu=elastic, duration_s=prior_s)
    durations = Durations()
    for run in [None, *seen]:
        if run is not None:
            durations.observe(demand, "", run[0] * 1000, run[1])
        for other in (demand, PLAIN):
            assert all(math.isfinite(s) and 0 < s <= LONGEST_S for s in durations.curve(other, ""))
        assert durations.curve(demand, "") == tuple(durations.at(demand, "", u) for u in demand.options)


def test_completions_are_told_in_order_and_the_overdue_are_put_off_as_long_as_they_are_late() -> None:
    completions = Completions()
    for end_s, action_id, units in ((5.0, 1, 2), (1.0, 2, 1), (9.0, 3, 4), (8.0, 4, 1)):
        completions.add(end_s, action_id, units)
    assert completions.upcoming(0.0) == ((1.0, 1), (5.0, 2), (8.0, 1), (9.0, 4))
    assert completions.upcoming(6.0) == ((7.0, 2), (8.0, 1), (9.0, 4), (11.0, 1))
    completions.remove(5.0, 1, 2)
    assert completions.upcoming(0.0) == ((1.0, 1), (8.0, 1), (9.0, 4))


def test_of_very_many_completions_the_next_1024_count() -> None:
    completions = Completions()
    for i in range(3000):
        completions.add(float(i), i, 1)
    assert len(completions.upcoming(0.0)) == 1024
    assert len(completions.upcoming(2999.5)) == 1024
