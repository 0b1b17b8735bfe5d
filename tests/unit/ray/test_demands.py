"""Demands cross once, without anything of the user's, and their numbers do not run out."""

from __future__ import annotations

import math
import pickle

import pytest

from arl_tangram.integrations.ray.client.demands import Demands, portable
from arl_tangram.model.elasticity import Amdahl, Measured
from arl_tangram.model.lifecycle import Demand


class Own:
    """A speed-up of the user's, which no other process can load."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, units: int) -> float:
        return units * self.factor

    def __reduce__(self) -> str:
        raise AssertionError("it stays here")


def demand(name: str = "f", speedup: object = None) -> Demand:
    return Demand(name, (), elastic=0, options=(1000, 2000, 4000), speedup=speedup)  # type: ignore[arg-type]


def test_a_demand_is_declared_once() -> None:
    demands, one = Demands(), demand()
    told = demands.declare(one, lambda: [one])
    assert told is not None
    assert told.demand == one
    assert demands.declare(one, lambda: [one]) is None
    assert demands.number(one) == told.number
    other = demands.declare(demand("g"), list)
    assert other is not None
    assert other.number != told.number


def test_numbers_of_what_nothing_uses_are_given_out_again() -> None:
    demands, used = Demands(most=10), demand("used")
    first = demands.declare(used, list)
    assert first is not None
    numbers = set()
    for number in range(1000):
        told = demands.declare(demand(f"f{number}"), lambda: [used])
        assert told is not None
        assert told.number != first.number, "that is in use"
        numbers.add(told.number)
    assert max(numbers) <= 11
    assert demands.number(used) == first.number


def test_what_is_resumed_is_all_that_the_owner_knows() -> None:
    demands, used, unused = Demands(), demand("used"), demand("unused")
    demands.declare(used, list)
    demands.declare(unused, list)
    assert [told.demand.name for told in demands.declared([used])] == ["used"]
    assert demands.declare(unused, list) is not None, "it is declared anew"


def test_a_speedup_of_the_users_becomes_what_it_says() -> None:
    told = portable(demand(speedup=Own(0.5)))
    assert pickle.loads(pickle.dumps(told)) == told
    assert told.speedup is not None
    assert [told.speedup(units) for units in (1, 2, 4)] == [0.5, 1.0, 2.0]
    assert isinstance(told.speedup, Measured)
    assert portable(demand(speedup=Amdahl(0.9))).speedup == Amdahl(0.9)


@pytest.mark.parametrize("factor", [math.nan, math.inf, -1.0, 0.0])
def test_one_that_makes_no_sense_can_cross(factor: float) -> None:
    told = portable(demand(speedup=Own(factor)))
    assert told.speedup is not None
    assert all(math.isfinite(told.speedup(units)) and told.speedup(units) > 0 for units in (1, 2, 4))


def test_places_are_portable_too() -> None:
    whole = Demand("f", (), places=(demand(speedup=Own(1.0)), demand(speedup=Own(2.0))))
    pickle.dumps(portable(whole))
