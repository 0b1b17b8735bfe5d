"""Ranges of bytes beside a plain set of them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.managers.gpu.devices.cpu.ranges import Ranges

BYTES = st.integers(0, 30)


@given(st.lists(st.tuples(st.booleans(), BYTES, BYTES), max_size=20))
def test_ranges_are_a_set_of_bytes(steps: list[tuple[bool, int, int]]) -> None:
    ranges, model = Ranges(), set[int]()
    for adds, start, stop in steps:
        if adds:
            ranges.add(start, stop)
            model |= set(range(start, stop))
        else:
            ranges.remove(start, stop)
            model -= set(range(start, stop))
        found = list(ranges)
        assert {byte for first, last in found for byte in range(first, last)} == model
        assert ranges.total == len(model)
        assert bool(ranges) == bool(model)
        assert all(first < last for first, last in found)
        assert all(one[1] < other[0] for one, other in pairwise(found)), "sorted, never touching"
