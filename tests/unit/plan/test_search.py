"""The smallest capacity that will do: exact where more is better, above each edge that is found where it is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.plan.search import smallest


class Asked:
    """Says whether a capacity will do, and remembers what it was asked."""

    def __init__(self, failing: set[int]) -> None:
        self.failing = failing
        self.capacities: list[int] = []

    def __call__(self, capacity: int) -> bool:
        self.capacities.append(capacity)
        return capacity not in self.failing


@pytest.mark.parametrize(("least", "edge", "most"), [(1, 1, 1), (1, 1, 64), (1, 37, 64), (1, 64, 64), (3, 5, 4000)])
def test_where_more_is_better_it_is_exact(least: int, edge: int, most: int) -> None:
    asked = Asked(set(range(edge)))
    assert smallest(asked, least, most) == edge
    assert len(asked.capacities) == len(set(asked.capacities)) <= 24


def test_an_edge_below_capacities_that_will_not_do_is_passed_over() -> None:
    """Bisection goes 32, 16, 8, 4 and would end with 4, above which 20 to 27 are too few again."""
    asked = Asked({1, 2, 3, *range(20, 28)})
    assert smallest(asked, 1, 64) == 28


def test_the_least_is_not_undercut() -> None:
    asked = Asked(set())
    assert smallest(asked, 6, 50) == 6
    assert min(asked.capacities) == 6


@given(st.sets(st.integers(1, 59)), st.integers(1, 20))
def test_all_that_were_tried_above_it_will_do_and_one_less_will_not(failing: set[int], least: int) -> None:
    asked = Asked(failing)
    found = smallest(asked, least, 60)
    assert all(capacity not in failing for capacity in asked.capacities if capacity >= found)
    assert found == least or found - 1 in failing
    assert len(asked.capacities) == len(set(asked.capacities))
