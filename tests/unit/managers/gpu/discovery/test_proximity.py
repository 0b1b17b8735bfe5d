"""Aligned chunks are made of devices that are near each other."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.managers.gpu.discovery.proximity import nearest_first


def test_equally_near_devices_stay_as_they_came() -> None:
    for count in range(17):
        assert nearest_first(list(range(count)), lambda one, other: 1.0) == list(range(count))


def test_pairs_with_a_link_become_neighbours() -> None:
    linked = {frozenset(pair) for pair in [(0, 3), (1, 2)]}
    found = nearest_first([0, 1, 2, 3], lambda one, other: 0.0 if {one, other} in linked else 1.0)
    assert found == [0, 3, 1, 2]


def test_two_sockets_become_two_halves() -> None:
    found = nearest_first(list(range(8)), lambda one, other: 0.0 if one % 2 == other % 2 else 1.0)
    assert [{device % 2 for device in half} for half in (found[:4], found[4:])] == [{0}, {1}]


def test_what_is_left_over_comes_last() -> None:
    linked = {frozenset(pair) for pair in [(1, 2), (3, 4), (5, 6)]}
    found = nearest_first(list(range(7)), lambda one, other: 0.0 if {one, other} in linked else 1.0)
    assert found == [1, 2, 3, 4, 5, 6, 0]


@given(st.permutations(range(8)))
def test_a_tree_of_distances_is_found_however_it_is_mixed(order: list[int]) -> None:
    """Devices of a machine are near by switch, by socket, by machine; each group of a size becomes one chunk."""

    def distance(one: int, other: int) -> float:
        return next(float(level) for level in (1, 2, 3) if one >> level == other >> level)

    found = nearest_first(order, distance)
    assert sorted(found) == list(range(8))
    for level in (1, 2):
        size = 1 << level
        for first in range(0, 8, size):
            assert len({device >> level for device in found[first : first + size]}) == 1


@given(st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_the_nearest_pair_is_always_one_chunk(drawn: list[int]) -> None:
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    far = dict(zip(map(frozenset, pairs), drawn, strict=True))
    found = nearest_first([0, 1, 2, 3], lambda one, other: float(far[frozenset({one, other})]))
    least = min(drawn)
    assert any(far[frozenset(chunk)] == least for chunk in (found[:2], found[2:]))
    assert tuple(found) in set(permutations(range(4)))
