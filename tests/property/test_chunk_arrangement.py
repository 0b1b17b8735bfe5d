"""DPArrange over chunks is exact: for every prefix, its sum is that of a brute force, and its chunks are free."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arl_tangram.model.gpu import CHUNK_SIZES, Chunk
from arl_tangram.scheduling.gpu.arrangement import ChunkArrangement
from arl_tangram.scheduling.gpu.chunks import Chunks, halves, within
from property.gpu_rooms import nodes_of

COSTS = st.integers(0, 5).map(float) | st.floats(0, 1e7)
Costs = dict[Chunk, float]


@st.composite
def unlike_candidates(draw: st.DrawFn, chunks: Chunks) -> Costs:
    """What a candidate pays differs from chunk to chunk."""
    costs: Costs = {}
    for size in draw(st.sets(st.sampled_from(CHUNK_SIZES), min_size=1, max_size=2)):
        for chunk in chunks.of_size(size):
            if draw(st.integers(0, 3)):
                costs[chunk] = draw(COSTS)
    return costs


@st.composite
def alike_candidates(draw: st.DrawFn, chunks: Chunks) -> Costs:
    """What a candidate pays depends on the size only, as durations do."""
    sizes = draw(st.sets(st.sampled_from(CHUNK_SIZES), min_size=1))
    return {chunk: cost for size in sorted(sizes) for cost in [draw(COSTS)] for chunk in chunks.of_size(size)}


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Costs], tuple[Chunk, ...]]:
    chunks = Chunks(nodes_of(*draw(st.sampled_from([(1,), (2,), (3,), (4,), (6,), (8,), (2, 2), (4, 3), (1, 1, 1)]))))
    devices = range(len(chunks.capacities))
    busy = draw(st.sets(st.sampled_from(list(devices)), max_size=4))
    kind = draw(st.sampled_from([unlike_candidates, alike_candidates]))
    candidates = draw(st.lists(kind(chunks), min_size=1, max_size=4))
    return candidates, chunks.free(set(devices) - busy)


def brute_force(candidates: list[Costs], free: tuple[Chunk, ...]) -> float:
    """Return the least sum over every choice of disjoint chunks inside the free ones; infinite if there is none."""
    there = {chunk for whole in free for chunk in within(whole)}
    least = math.inf
    for choice in itertools.product(*([c for c in costs if c in there] for costs in candidates)):
        devices = [device for chunk in choice for device in chunk.devices]
        if len(devices) == len(set(devices)):
            least = min(least, math.fsum(costs[c] for costs, c in zip(candidates, choice, strict=True)))
    return least


@given(problems())
@settings(max_examples=300)
def test_it_equals_brute_force_for_every_prefix(problem: tuple[list[Costs], tuple[Chunk, ...]]) -> None:
    candidates, free = problem
    arrangement = ChunkArrangement(candidates, free)
    assert arrangement.cost_s(0) == 0
    assert arrangement.chunks(0) == ()
    for prefix in range(1, len(candidates) + 1):
        least_s = brute_force(candidates[:prefix], free)
        if math.isinf(least_s):
            assert math.isinf(arrangement.cost_s(prefix))
            with pytest.raises(ValueError, match="do not fit"):
                arrangement.chunks(prefix)
            continue
        assert arrangement.cost_s(prefix) == pytest.approx(least_s, rel=1e-12)
        chosen = arrangement.chunks(prefix)
        costs = [costs[chunk] for costs, chunk in zip(candidates, chosen, strict=False)]
        assert len(chosen) == prefix
        assert math.fsum(costs) == pytest.approx(least_s, rel=1e-12)
        devices = [device for chunk in chosen for device in chunk.devices]
        assert len(devices) == len(set(devices))
        assert set(devices) <= {device for chunk in free for device in chunk.devices}


def over_sets(candidates: list[Costs], free: tuple[Chunk, ...]) -> list[float]:
    """Return the least sum for each prefix, by a table over all sets of devices: for more than a brute force can do."""
    there = [chunk for whole in free for chunk in within(whole)]
    best = {0: 0.0}
    least_s = [0.0]
    for costs in candidates:
        after: dict[int, float] = {}
        for taken, sum_s in best.items():
            for chunk in there:
                mask = ((1 << chunk.size) - 1) << chunk.first
                if chunk in costs and not taken & mask:
                    after[taken | mask] = min(after.get(taken | mask, math.inf), sum_s + costs[chunk])
        best = after
        least_s.append(min(best.values(), default=math.inf))
    return least_s


@given(st.lists(st.lists(st.integers(0, 1000), min_size=15, max_size=15), min_size=8, max_size=8), st.booleans())
@settings(max_examples=40)
def test_a_node_of_eight_is_exact_however_unlike_its_devices_are(rows: list[list[int]], single: bool) -> None:
    chunks = Chunks(nodes_of(8))
    sizes = (1,) if single else CHUNK_SIZES
    everything = [chunk for size in sizes for chunk in chunks.of_size(size)]
    candidates = [dict(zip(everything, map(float, row), strict=False)) for row in rows]
    free = chunks.free(range(8))
    arrangement = ChunkArrangement(candidates, free)
    assert [arrangement.cost_s(prefix) for prefix in range(9)] == over_sets(candidates, free)


@given(st.lists(st.tuples(*[st.integers(1, 9) | st.just(math.inf)] * 4), min_size=1, max_size=12))
@settings(max_examples=40)
def test_nodes_that_are_alike_are_exact(rows: list[tuple[float, ...]]) -> None:
    """What matters is how many chunks of each size are free: 18 devices on three nodes are few states."""
    chunks = Chunks(nodes_of(8, 8, 2))
    candidates = [
        {
            chunk: cost
            for size, cost in zip(CHUNK_SIZES, row, strict=True)
            if cost < math.inf
            for chunk in chunks.of_size(size)
        }
        for row in rows
    ]
    free = chunks.free(range(18))
    arrangement = ChunkArrangement(candidates, free)
    assert [arrangement.cost_s(prefix) for prefix in range(len(rows) + 1)] == by_counts(candidates, chunks)


def by_counts(candidates: list[Costs], chunks: Chunks) -> list[float]:
    """Return the least sums by choosing sizes only: chunks that are taken in order of size, largest first, always fit
    if any do."""
    by_size = [{chunk.size: cost for chunk, cost in costs.items()} for costs in candidates]
    capacity = len(chunks.capacities)
    most = {size: len(chunks.of_size(size)) for size in CHUNK_SIZES}
    states = {(0, 0, 0, 0): 0.0}
    least_s = [0.0]
    for costs in by_size:
        after: dict[tuple[int, ...], float] = {}
        for counts, sum_s in states.items():
            for index, size in enumerate(CHUNK_SIZES):
                if size in costs:
                    taken = tuple(count + (i == index) for i, count in enumerate(counts))
                    if fits(taken, capacity, most):
                        after[taken] = min(after.get(taken, math.inf), sum_s + costs[size])
        states = after  # type: ignore[assignment]
        least_s.append(min(states.values(), default=math.inf))
    return least_s


def fits(counts: tuple[int, ...], capacity: int, most: dict[int, int]) -> bool:
    """Whether so many chunks of each size fit: those of at least one size must not be more than there are of it."""
    devices = 0
    for count, size in reversed(list(zip(counts, CHUNK_SIZES, strict=True))):
        devices += count * size
        if devices > most[size] * size:
            return False
    return devices <= capacity


@given(st.integers(0, 2**32))
@settings(max_examples=10)
def test_many_unlike_nodes_take_bounded_work_and_the_chunks_are_valid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chunks = Chunks(nodes_of(*[8] * 6))
    candidates = [
        {chunk: float(rng.random()) for size in (1, 2, 4) for chunk in chunks.of_size(size)} for _ in range(12)
    ]
    arrangement = ChunkArrangement(candidates, chunks.free(range(48)))
    chosen = arrangement.chunks(12)
    devices = [device for chunk in chosen for device in chunk.devices]
    assert len(devices) == len(set(devices))
    costs = [costs[chunk] for costs, chunk in zip(candidates, chosen, strict=True)]
    assert math.fsum(costs) == pytest.approx(arrangement.cost_s(12))
    # Each candidate's own best is a bound from below; what was kept is near it, where chunks abound.
    assert arrangement.cost_s(12) <= 2 * math.fsum(min(costs.values()) for costs in candidates) + 0.1


@given(problems())
def test_whatever_is_free_more_never_costs_more(problem: tuple[list[Costs], tuple[Chunk, ...]]) -> None:
    candidates, free = problem
    if not free:
        return
    fewer = ChunkArrangement(candidates, free[1:])
    more = ChunkArrangement(candidates, free)
    for prefix in range(len(candidates) + 1):
        assert more.cost_s(prefix) <= fewer.cost_s(prefix) * (1 + 1e-12)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.data())
def test_chunks_are_aligned_inside_their_nodes_and_nested(sizes: list[int], data: st.DataObject) -> None:
    chunks = Chunks(nodes_of(*sizes))
    begins = list(itertools.accumulate(sizes, initial=0))
    everything = [chunk for size in CHUNK_SIZES for chunk in chunks.of_size(size)]
    for chunk in everything:
        node = bisect_right(begins, chunk.first) - 1
        assert chunk.first + chunk.size <= begins[node + 1]
        assert (chunk.first - begins[node]) % chunk.size == 0
        if chunk.size > 1:
            assert set(halves(chunk)) <= set(everything)
    for size in CHUNK_SIZES:
        assert len(chunks.of_size(size)) == sum(devices // size for devices in sizes)

    free = data.draw(st.sets(st.sampled_from(range(sum(sizes)))))
    found = chunks.free(free)
    assert sorted(device for chunk in found for device in chunk.devices) == sorted(free)
    whole = [chunk for chunk in everything if free.issuperset(chunk.devices)]
    assert set(found) == {c for c in whole if not any(c != o and set(c.devices) < set(o.devices) for o in whole)}
