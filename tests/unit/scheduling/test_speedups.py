"""Speed-ups that nobody declared: found from the runs, explored a little, found again when they change.

The runs come from a world whose law is known; a chooser stands for a policy, and sees only the curve that it is shown.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.model.elasticity import Elastic, PowerLaw
from arl_tangram.model.estimates import SpeedupSource
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.relative import LONGEST_S
from arl_tangram.scheduling.speedups import SpeedupFit
from property.worlds import make_demand, make_topology

TOPOLOGY = make_topology(cores=64)
SUITE = make_demand(TOPOLOGY, "suite", cpu=Elastic(1, 16))
OPTIONS = SUITE.options

Chooser = Callable[[random.Random, Sequence[float]], int]
"""Returns the place of an option."""


def at_random(chance: random.Random, curve: Sequence[float]) -> int:
    return chance.randrange(len(curve))


def fastest(_: random.Random, curve: Sequence[float]) -> int:
    return min(range(len(curve)), key=curve.__getitem__)


def thrifty(chance: random.Random, curve: Sequence[float]) -> int:
    """As many units as pay at a price that changes, as under a load that changes."""
    price = chance.lognormvariate(-3, 1.5)
    return min(range(len(curve)), key=lambda i: curve[i] * (1 + price * OPTIONS[i] / 1000))


def law(exponent: float) -> Callable[[int], float]:
    return lambda cores: cores**-exponent


SQUARE_ROOT = law(0.5)


def slower_beyond_four(cores: int) -> float:
    """A suite of four files that get in each other's way on more cores than four."""
    return cores**-0.9 if cores <= 4 else 4**-0.9 * (cores / 4) ** 0.5


@dataclass
class World:
    """Runs of one action, one after the other."""

    sigma: float = 0.3
    seed: int = 0
    keys: int = 1
    chooser: Chooser = thrifty
    takes: Callable[[int], float] = SQUARE_ROOT
    work_s: float = 1.0
    durations: Durations = field(default_factory=Durations)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.works = [self.chance.lognormvariate(0, 1) for _ in range(self.keys)] if self.keys > 1 else [1.0]

    def run(self, times: int) -> World:
        for _ in range(times):
            key = self.chance.randrange(self.keys)
            curve = self.durations.curve(SUITE, str(key))
            units = OPTIONS[self.chooser(self.chance, curve)]
            self.durations.at(SUITE, str(key), units)
            noise = self.chance.lognormvariate(-(self.sigma**2) / 2, self.sigma)
            took_s = self.work_s * self.works[key] * self.takes(units // 1000) * noise
            self.durations.observe(SUITE, str(key), units, took_s)
        return self

    @property
    def exponent(self) -> float:
        exponent = self.durations.learned(1).estimates[0].exponent
        assert exponent is not None
        return exponent

    def chosen_when_idle(self) -> int:
        return OPTIONS[fastest(self.chance, self.durations.curve(SUITE, "0"))] // 1000


def explored(world: World) -> int:
    return world.durations._actions["suite"].fit._explored


def error(worlds: Sequence[World], exponent: float) -> float:
    """Root mean square of what the exponents are off."""
    return math.sqrt(sum((world.exponent - exponent) ** 2 for world in worlds) / len(worlds))


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.95])
@pytest.mark.parametrize(
    ("sigma", "runs", "off"), [(0.1, 20, 0.09), (0.1, 50, 0.03), (0.3, 50, 0.08), (0.3, 200, 0.05), (1.2, 400, 0.16)]
)
def test_the_exponent_is_found(exponent: float, sigma: float, runs: int, off: float) -> None:
    worlds = [World(sigma, seed, takes=law(exponent)).run(runs) for seed in range(20)]
    assert error(worlds, exponent) < off


@pytest.mark.parametrize("chooser", [at_random, fastest, thrifty])
def test_it_is_found_whatever_the_policy_is(chooser: Chooser) -> None:
    worlds = [World(0.3, seed, chooser=chooser, takes=law(0.6)).run(100) for seed in range(20)]
    assert error(worlds, 0.6) < 0.1


@pytest.mark.parametrize(("keys", "runs", "off"), [(10, 100, 0.1), (200, 400, 0.1)])
def test_keys_with_a_few_runs_each_share_what_they_tell(keys: int, runs: int, off: float) -> None:
    worlds = [World(0.3, seed, keys=keys, chooser=at_random, takes=law(0.5)).run(runs) for seed in range(20)]
    assert error(worlds, 0.5) < off


def test_keys_that_run_once_each_tell_something_too() -> None:
    worlds = [World(0.3, seed, keys=100_000, chooser=at_random, takes=law(0.2)).run(1000) for seed in range(10)]
    assert error(worlds, 0.2) < 0.25


def test_a_key_with_a_speedup_of_its_own_gets_it_when_it_has_shown_it() -> None:
    durations, chance = Durations(), random.Random(5)
    for i in range(1200):
        key, exponent = (("good", 0.9), ("good too", 0.9), ("bad", 0.3))[i % 3]
        units = chance.choice(OPTIONS)
        durations.observe(SUITE, key, units, (units / 1000) ** -exponent * chance.lognormvariate(0, 0.1))
    found = {estimate.key: estimate.exponent or 0 for estimate in durations.learned().estimates}
    assert found["good"] == pytest.approx(0.9, abs=0.08)
    assert found["bad"] == pytest.approx(0.3, abs=0.08)
    durations.observe(SUITE, "new", 1000, 1.0)
    durations.curve(SUITE, "new")
    new = next(estimate for estimate in durations.learned().estimates if estimate.key == "new")
    assert 0.5 < (new.exponent or 0) < 0.85, "that of the action"


def test_long_keys_that_get_more_cores_do_not_look_as_if_cores_did_not_help() -> None:
    durations, chance = Durations(), random.Random(1)
    for i in range(400):
        key, work_s, units = (
            ("short", 1.0, chance.choice((1000, 2000))),
            ("long", 50.0, chance.choice((8000, 16000))),
        )[i % 2]
        durations.observe(SUITE, key, units, work_s * (units / 1000) ** -0.9 * chance.lognormvariate(0, 0.1))
    assert durations.learned(1).estimates[0].exponent == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("chooser", [fastest, thrifty])
@pytest.mark.parametrize("sigma", [0.1, 0.3])
def test_a_curve_that_rises_again_is_found(chooser: Chooser, sigma: float) -> None:
    found: list[int] = []
    for seed in range(10):
        world = World(sigma, seed, chooser=chooser, takes=slower_beyond_four)
        found += [world.run(200).chosen_when_idle(), world.run(400).chosen_when_idle()]
    assert sum(3 <= cores <= 5 for cores in found) >= 15, "it is found, and stays so while only four cores are tried"


@pytest.mark.parametrize("sigma", [0.3, 1.2])
def test_noise_makes_no_units_look_better_than_the_law(sigma: float) -> None:
    believed = 0
    for seed in range(40):
        world = World(sigma, seed, chooser=fastest, takes=law(0.9)).run(12)
        world.chooser = lambda _, __: 0
        world.run(100)
        curve = world.durations.curve(SUITE, "0")
        law_s = [curve[0] * (units / 1000) ** -world.exponent for units in OPTIONS]
        believed += sum(off != pytest.approx(on, rel=0.05) for off, on in zip(curve, law_s, strict=True))
    assert believed <= 2, "of 400"


@pytest.mark.parametrize("sigma", [0.1, 0.3, 1.2])
@pytest.mark.parametrize("chooser", [at_random, fastest, thrifty])
@pytest.mark.parametrize("keys", [1, 50])
def test_at_most_sixteen_runs_are_explored_and_none_later(sigma: float, chooser: Chooser, keys: int) -> None:
    world = World(sigma, chooser=chooser, keys=keys).run(250)
    assert explored(world) <= 16
    assert not world.durations._actions["suite"].fit.exploring
    shown = [world.durations.curve(SUITE, str(key)) for key in range(keys)]
    assert all(curve.index(min(curve)) > 0 for curve in shown)


def test_nothing_more_is_explored_when_the_exponent_is_known() -> None:
    tame, wild = World(0.1, chooser=fastest).run(100), World(1.2, chooser=fastest).run(100)
    assert explored(tame) < 12
    assert explored(wild) == 16


def test_exploring_shows_most_least_and_middle_units_in_turn() -> None:
    durations = Durations()
    curve = durations.curve(SUITE, "")
    assert curve == pytest.approx([(units / 1000) ** -0.8 for units in OPTIONS]), "nothing is explored before a run"
    durations.observe(SUITE, "", 1000, 1.0)
    best: list[int] = []
    for _ in range(6):
        curve = durations.curve(SUITE, "")
        assert durations.curve(SUITE, "") is curve, "the same object until a run starts"
        best.append(OPTIONS[curve.index(min(curve))] // 1000)
        durations.at(SUITE, "", 2000)
    assert best == [16, 1, 4, 16, 2, 4]


def test_what_a_run_is_expected_to_take_is_not_what_exploring_shows() -> None:
    durations = Durations()
    durations.observe(SUITE, "", 1000, 1.0)
    assert durations.curve(SUITE, "")[-1] == pytest.approx(1 / 16)
    assert durations.at(SUITE, "", 16000) == pytest.approx(16**-0.8)


def test_keys_that_never_ran_are_explored_with() -> None:
    durations = Durations()
    durations.observe(SUITE, "seen", 1000, 4.0)
    assert durations.curve(SUITE, "new") == pytest.approx(durations.curve(SUITE, "seen"))
    assert durations.at(SUITE, "new", 1000) == pytest.approx(4)
    curve = durations.curve(SUITE, "new")
    assert curve.index(min(curve)) == 0, "the turn of the least units"


@pytest.mark.parametrize("sigma", [0.1, 0.3])
def test_another_speedup_later_on_is_found_with_little_exploring(sigma: float) -> None:
    for seed in range(10):
        world = World(sigma, seed, takes=law(0.9)).run(400)
        before = explored(world)
        world.takes = law(0.3)
        world.run(400)
        assert world.exponent == pytest.approx(0.3, abs=0.15)
        assert explored(world) <= before + 8


def test_steps_without_end_cost_few_explored_runs() -> None:
    world = World(0.3).run(100)
    for i in range(100):
        world.work_s = 10.0 if i % 2 else 1.0
        world.run(40)
    assert explored(world) <= 16 + 4 * (4000 // 256)


def test_longer_work_later_on_leaves_the_speedup_alone() -> None:
    for seed in range(10):
        world = World(0.3, seed, takes=law(0.6)).run(400)
        world.work_s = 5.0
        world.run(60)
        assert world.exponent == pytest.approx(0.6, abs=0.12)
        assert world.durations.expected_s(SUITE, "0") == pytest.approx(5.0, rel=0.3)


@pytest.mark.parametrize("outlier", [1000.0, 1e308, 0.0])
def test_an_outlier_hardly_moves_the_exponent(outlier: float) -> None:
    world = World(0.3, takes=law(0.6)).run(300)
    exponent, curve = world.exponent, world.durations.curve(SUITE, "0")
    for units in (1000, 16000):
        world.durations.observe(SUITE, "0", units, outlier)
        world.run(30)
    assert world.exponent == pytest.approx(exponent, abs=0.04)
    assert world.durations.curve(SUITE, "0") == pytest.approx(curve, rel=0.25)


def test_the_same_runs_teach_the_same() -> None:
    one, other = World(1.2, 7, keys=20).run(500), World(1.2, 7, keys=20).run(500)
    assert one.durations.learned() == other.durations.learned()
    assert [one.durations.curve(SUITE, str(key)) for key in range(25)] == [
        other.durations.curve(SUITE, str(key)) for key in range(25)
    ]


def test_reading_a_report_teaches_nothing() -> None:
    one, other = World(1.2, 7).run(77), World(1.2, 7)
    for _ in range(77):
        other.run(1).durations.learned()
    assert one.durations.curve(SUITE, "0") == other.durations.curve(SUITE, "0")


def test_what_is_reported_is_where_the_speedup_comes_from() -> None:
    durations = Durations()
    declared = make_demand(TOPOLOGY, "declared", cpu=Elastic(1, 4, speedup=PowerLaw(0.3)))
    single = make_demand(TOPOLOGY, "single", cpu=1)
    for demand in (declared, single, SUITE):
        durations.observe(demand, "k", 1000, 2.0)
    found = {estimate.name: estimate for estimate in durations.learned().estimates}
    assert {name: (e.source, e.exponent, e.runs, e.duration_s) for name, e in found.items()} == {
        "declared": (SpeedupSource.DECLARED, None, 1, 2.0),
        "single": (SpeedupSource.NONE, None, 1, 2.0),
        "suite": (SpeedupSource.ASSUMED, 0.8, 1, 2.0),
    }
    # The last seven are taken in with the eighth.
    learned = World(0.3).run(200).durations.learned(1).estimates[0]
    assert (learned.source, learned.runs, learned.speedup_runs) == (SpeedupSource.LEARNED, 200, 193)


def test_no_choice_or_a_declared_speedup_is_nothing_to_learn() -> None:
    assert SUITE.learns
    assert not make_demand(TOPOLOGY, cpu=Elastic(1, 4, speedup=PowerLaw(0.3))).learns
    assert not make_demand(TOPOLOGY, cpu=Elastic.of(4)).learns
    assert not make_demand(TOPOLOGY, cpu=2).learns
    assert not make_demand(TOPOLOGY, search=1).learns


def test_a_declaration_later_on_is_believed_at_once() -> None:
    world = World(0.1, takes=law(0.9)).run(100)
    declared = make_demand(TOPOLOGY, "suite", cpu=Elastic(1, 16, speedup=PowerLaw(0.2)))
    curve = world.durations.curve(declared, "0")
    assert [seconds / curve[0] for seconds in curve] == pytest.approx(
        [u**-0.2 for u in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)]
    )
    world.durations.observe(declared, "0", 4000, 0.5)
    world.run(50)
    assert all(math.isfinite(seconds) for seconds in world.durations.curve(SUITE, "0"))


ANY = st.floats() | st.sampled_from([0.0, 1e308, 5e-324, 1e-300, 1e7, 1e-6]) | st.floats(0.1, 10)


@given(
    runs=st.lists(
        st.tuples(st.sampled_from(OPTIONS), ANY, st.integers(1, 12), st.sampled_from("ab"), st.booleans()), max_size=60
    ),
    prior_s=st.none() | ANY,
)
def test_curves_are_finite_and_positive_whatever_was_seen(
    runs: list[tuple[int, float, int, str, bool]], prior_s: float | None
) -> None:
    durations = Durations()
    suite = make_demand(TOPOLOGY, "suite", cpu=Elastic(1, 16), duration_s=prior_s)
    for units, duration_s, times, key, other in runs:
        demand = SUITE if other else suite
        for _ in range(times):
            durations.observe(demand, key, units, duration_s)
        for shown in (durations.curve(demand, key), durations.curve(suite, "new")):
            assert all(math.isfinite(seconds) and 0 < seconds <= LONGEST_S for seconds in shown)
        assert 0 < durations.at(demand, key, units) <= LONGEST_S
    for estimate in durations.learned().estimates:
        assert estimate.exponent is not None
        assert 0 <= estimate.exponent <= 1


def test_a_speed_up_can_be_doubted_for_ever() -> None:
    """Each step of the durations quarters what the runs at some units weigh; that must not come to nothing."""
    fit = SpeedupFit()
    deviation = fit.deviation(2000)
    deviation.runs = 10.0
    for _ in range(1000):
        fit.runs += 256
        fit.doubt()
    assert deviation.runs > 0
    fit._refit_if_due()
