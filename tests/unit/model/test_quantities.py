"""Numbers at the border: what is taken, what is refused, and that integers neither drift nor round away."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.errors import ConfigurationError, DefinitionError
from arl_tangram.model.quantities import GIB, bytes_of_gib, seconds, thousandths, whole

NO_NUMBERS = [True, False, np.True_, "1", None, 1j, Decimal(1), [1]]
NO_AMOUNTS = [-1, -0.001, math.nan, math.inf, -math.inf, 10**400, np.float64("nan"), np.float32("inf")]


@given(st.integers(0, 10**9))
def test_every_thousandth_is_exact(count: int) -> None:
    assert thousandths(count / 1000, "x", DefinitionError) == count


def test_sums_of_decimals_are_what_they_are_on_paper() -> None:
    assert thousandths(0.1 + 0.2, "x", DefinitionError) == thousandths(0.3, "x", DefinitionError) == 300
    assert thousandths(0.1, "x", DefinitionError) + thousandths(0.2, "x", DefinitionError) == 300


@pytest.mark.parametrize(
    "value", [np.int64(2), np.int8(2), np.float32(2), np.float64(2), Fraction(2), 2, 2.0], ids=repr
)
def test_numbers_of_any_type_are_taken_as_plain_ones(value: float) -> None:
    taken = thousandths(value, "x", DefinitionError)
    assert taken == 2000
    assert type(taken) is int
    assert bytes_of_gib(value, "x", DefinitionError) == 2 * GIB
    assert type(seconds(value, "x", DefinitionError)) is float


@pytest.mark.parametrize("value", [0.0001, 1.00005, 1e-9, 5e-324, 0.3335], ids=repr)
def test_what_is_finer_than_a_thousandth_is_refused(value: float) -> None:
    with pytest.raises(DefinitionError, match=r"here = .* is finer than a thousandth"):
        thousandths(value, "here", DefinitionError)


@pytest.mark.parametrize("value", [*NO_NUMBERS, *NO_AMOUNTS], ids=repr)
def test_what_is_no_amount_is_refused_with_its_value(value: object) -> None:
    for check in (thousandths, bytes_of_gib, seconds):
        with pytest.raises(DefinitionError) as caught:
            check(value, "here", DefinitionError)
        assert "here" in str(caught.value)
        assert repr(value) in str(caught.value)


def test_huge_finite_amounts_are_numbers_too() -> None:
    assert thousandths(1e306, "x", DefinitionError) == int(1e306) * 1000
    assert bytes_of_gib(1e300, "x", DefinitionError) == int(1e300) * GIB


def test_bytes_are_rounded_down_but_not_to_nothing() -> None:
    assert bytes_of_gib(1e-12, "x", DefinitionError) == 1
    assert bytes_of_gib(0.5, "x", DefinitionError) == GIB // 2
    assert bytes_of_gib(0.1, "x", DefinitionError) == math.floor(Fraction(0.1) * GIB)
    assert bytes_of_gib(0, "x", DefinitionError) == 0


@pytest.mark.parametrize("parts", [[0.1] * 10, [0.1, 0.2, 0.7], [0.15, 0.15, 0.7], [0.001] * 1000, [1 / 3] * 3])
def test_bytes_of_parts_fit_in_the_whole(parts: list[float]) -> None:
    assert sum(bytes_of_gib(part, "x", DefinitionError) for part in parts) <= GIB


@pytest.mark.parametrize("value", [0, 0.0, -1.0])
def test_seconds_are_above_zero(value: float) -> None:
    with pytest.raises(ConfigurationError, match="above 0"):
        seconds(value, "timeout", ConfigurationError)


@pytest.mark.parametrize("value", [0, 9, 1.0, True, "3", np.float64(3), 10**30], ids=repr)
def test_whole_numbers_stay_within_their_range(value: object) -> None:
    with pytest.raises(ConfigurationError, match="from 1 to 8"):
        whole(value, "n", ConfigurationError, least=1, most=8)


def test_whole_numbers_of_numpy_become_plain_ones() -> None:
    assert type(whole(np.int32(8), "n", ConfigurationError, least=1, most=8)) is int
