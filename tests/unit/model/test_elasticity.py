"""`Elastic` ranges and speed-up curves, as the design's table says."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.errors import DefinitionError
from arl_tangram.model.elasticity import ASSUMED_SPEEDUP, Amdahl, Elastic, Linear, Measured, PowerLaw, Speedup


@pytest.mark.parametrize(
    ("bounds", "options"),
    [
        ((1, 1), (1,)),
        ((1, 8), (1, 2, 3, 4, 5, 6, 7, 8)),
        ((3, 5), (3, 4, 5)),
        ((1, 10), (1, 2, 3, 4, 5, 6, 7, 8, 10)),
        ((1, 64), (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)),
        ((7, 100), (7, 8, 12, 16, 24, 32, 48, 64, 96, 100)),
        ((9, 11), (9, 11)),
        ((9, 12), (9, 12)),
        ((13, 13), (13,)),
        ((20, 40), (20, 24, 32, 40)),
    ],
)
def test_a_range_admits_the_steps_of_the_design(bounds: tuple[int, int], options: tuple[int, ...]) -> None:
    assert Elastic(*bounds).options == options


@given(st.integers(1, 3000), st.integers(0, 3000))
def test_a_range_keeps_its_ends_and_its_order(minimum: int, more: int) -> None:
    elastic = Elastic(minimum, minimum + more)
    assert elastic.minimum == elastic.options[0] == minimum
    assert elastic.maximum == elastic.options[-1] == minimum + more
    assert list(elastic.options) == sorted(set(elastic.options))
    assert len(elastic.options) <= 8 + 2 * 10


def test_of_admits_exactly_its_units() -> None:
    assert Elastic.of(8, 1, 4, 4).options == (1, 4, 8)
    assert Elastic.of(3).options == (3,)
    assert Elastic.of(1, 2, speedup=Linear()).speedup == Linear()


def test_of_is_exact_and_equals_a_range_with_the_same_units() -> None:
    exact, admitted = Elastic.of(1, 2, 3), Elastic(1, 3)
    assert exact == admitted
    assert hash(exact) == hash(admitted)
    for elastic in (exact, copy.copy(exact), pickle.loads(pickle.dumps(exact))):
        assert elastic.exact
    assert not pickle.loads(pickle.dumps(admitted)).exact


def test_numbers_of_numpy_become_plain_units() -> None:
    for elastic in (Elastic(np.int64(1), np.int64(4)), Elastic.of(np.int64(2), np.int32(4))):  # type: ignore[arg-type]
        assert {type(units) for units in elastic.options} == {int}


@pytest.mark.parametrize(
    "units", [(0, 4), (-1, 4), (1.0, 4), (1, 2.5), (True, 4), ("1", 4), (1, math.inf), (1, 1 << 21)]
)
def test_units_are_whole_and_positive(units: tuple[int, int]) -> None:
    with pytest.raises(DefinitionError, match="whole number from 1"):
        Elastic(*units)
    with pytest.raises(DefinitionError, match="whole number from 1"):
        Elastic.of(*units)


def test_other_nonsense_is_refused() -> None:
    with pytest.raises(DefinitionError, match="4 > 1"):
        Elastic(4, 1)
    with pytest.raises(DefinitionError, match="at least one"):
        Elastic.of()
    with pytest.raises(DefinitionError, match=r"function of the units, not 0\.9"):
        Elastic(1, 4, speedup=0.9)  # type: ignore[arg-type]


def test_values_compare_hash_copy_and_pickle() -> None:
    elastic = Elastic(1, 8, speedup=Measured({1: 1, 4: 3.1}))
    assert elastic == Elastic(1, 8, speedup=Measured({4: 3.1, 1: 1}))
    assert elastic != Elastic(1, 8)
    assert hash(elastic) == hash(copy.deepcopy(elastic))
    assert pickle.loads(pickle.dumps(elastic)) == elastic
    with pytest.raises(AttributeError):
        elastic.options = (1,)  # type: ignore[misc]


def test_the_curves() -> None:
    assert Linear()(7) == 7
    assert Amdahl(0.9)(1) == pytest.approx(1)
    assert Amdahl(0.9)(10) == pytest.approx(1 / 0.19)
    assert Amdahl(1)(8) == pytest.approx(8)
    assert Amdahl(0)(8) == 1
    assert PowerLaw(0.8)(8) == pytest.approx(8**0.8)
    assert PowerLaw(0)(8) == 1
    assert PowerLaw(0.8) == ASSUMED_SPEEDUP


def test_measured_is_linear_between_its_points_and_flat_outside() -> None:
    curve = Measured({2: 1.5, 4: 3.5, 8: 4})
    assert [curve(u) for u in (1, 2, 3, 4, 6, 8, 100)] == [1.5, 1.5, 2.5, 3.5, 3.75, 4, 4]
    assert Measured({1: 1})(64) == 1


@pytest.mark.parametrize("curve", [Linear(), Amdahl(0.3), PowerLaw(0.8), Measured({1: 1, 16: 9})], ids=repr)
def test_a_speed_up_lies_between_one_and_the_units(curve: Speedup) -> None:
    assert isinstance(curve, Speedup)
    speedups = [curve(units) for units in range(1, 65)]
    assert all(0 < s <= units * (1 + 1e-12) for units, s in enumerate(speedups, 1))
    assert speedups == sorted(speedups)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, math.inf])
def test_shares_and_exponents_are_from_0_to_1(share: float) -> None:
    with pytest.raises(DefinitionError, match="0 to 1"):
        Amdahl(share)
    with pytest.raises(DefinitionError, match="0 to 1"):
        PowerLaw(share)


@pytest.mark.parametrize("points", [{}, {0: 1}, {1.5: 1}, {1: 0}, {1: -1}, {1: math.nan}, {2: math.inf}], ids=repr)
def test_measured_points_are_finite_and_positive(points: dict[int, float]) -> None:
    with pytest.raises(DefinitionError, match=r"Measured\(\)"):
        Measured(points)
