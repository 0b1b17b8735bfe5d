"""An arena beside a plain model of its bytes: regions, holes, moves, and the plans that make room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from arl_tangram.managers.gpu.devices.arena import ALIGNMENT, Arena, end, rounded
from arl_tangram.managers.gpu.devices.compaction import plan_moves
from arl_tangram.managers.gpu.devices.device import Region

BLOCKS = 40
SIZES = st.integers(0, 12 * ALIGNMENT)


class ArenaMachine(RuleBasedStateMachine):
    """Blocks of 512 bytes, each with the number of its owner."""

    taken = Bundle("taken")

    def __init__(self) -> None:
        super().__init__()
        self.arena = Arena(BLOCKS * ALIGNMENT + 100)
        self.blocks: list[int | None] = [None] * BLOCKS
        self.owners: dict[Region, int] = {}
        self.next = 0

    def fill(self, region: Region, owner: int | None) -> None:
        for block in range(region.offset // ALIGNMENT, (region.offset + rounded(region.size)) // ALIGNMENT):
            self.blocks[block] = owner

    def holes(self) -> list[Region]:
        found, start = [], None
        for number, owner in enumerate([*self.blocks, -1]):
            if owner is None and start is None:
                start = number
            elif owner is not None and start is not None:
                found.append(Region(start * ALIGNMENT, (number - start) * ALIGNMENT))
                start = None
        return found

    @rule(target=taken, size=SIZES)
    def allocate(self, size: int) -> Region:
        fitting = [hole for hole in self.holes() if hole.size >= rounded(size)]
        region = self.arena.allocate(size)
        if not size:
            assert region == Region(0, 0)
            return region
        if not fitting:
            assert region is None
            return Region(0, 0)
        assert region is not None
        best = min(fitting, key=lambda hole: (hole.size, hole.offset))
        assert region == Region(best.offset, size)
        self.fill(region, self.next)
        self.owners[region] = self.next
        self.next += 1
        return region

    @rule(region=consumes(taken))
    def free(self, region: Region) -> None:
        self.arena.free(region)
        if region.size:
            self.fill(region, None)
            del self.owners[region]
            with pytest.raises(ValueError, match="no region that is taken"):
                self.arena.free(region)

    @rule(target=taken, region=consumes(taken), to=st.integers(0, BLOCKS), stays=st.booleans())
    def move(self, region: Region, to: int, stays: bool) -> Region:
        target = Region(to * ALIGNMENT if region.size else 0, region.size)
        own = self.owners.get(region)
        wanted = self.blocks[to : to + rounded(region.size) // ALIGNMENT]
        if end(target) > BLOCKS * ALIGNMENT or any(owner not in {None, own} for owner in wanted):
            with pytest.raises(ValueError, match="not free"):
                self.arena.begin_move(region, target)
            return region
        self.arena.begin_move(region, target)
        union = {
            number
            for place in (region, target)
            for number in range(place.offset // ALIGNMENT, (place.offset + rounded(place.size)) // ALIGNMENT)
        }
        elsewhere = sum(owner is None and number not in union for number, owner in enumerate(self.blocks))
        assert self.arena.free_bytes == elsewhere * ALIGNMENT, "both places are taken while it moves"
        self.arena.end_move(region, target, stays=stays)
        if region.size and not stays:
            self.fill(region, None)
            self.fill(target, self.owners.pop(region))
            self.owners[target] = self.blocks[target.offset // ALIGNMENT]  # type: ignore[assignment]
        return region if stays else target

    @rule(size=SIZES, still=st.sets(st.integers(0, 100)))
    def plan(self, size: int, still: set[int]) -> None:
        """A plan, executed on the model, makes room, and moves nothing that must stay."""
        movable = [region for region, owner in self.owners.items() if owner not in still]
        moves = plan_moves(self.arena, size, movable)
        if rounded(size) > self.arena.free_bytes:
            assert moves is None
            return
        if not still.intersection(self.owners.values()):
            assert moves is not None, "if everything may move, all holes can become one"
        if moves is None:
            return
        copy = Arena(BLOCKS * ALIGNMENT)
        for region in self.owners:
            copy.take(region)
        for source, target in moves:
            assert source in movable, "each region moves once, from where it is"
            copy.begin_move(source, target)
            copy.end_move(source, target)
        assert copy.allocate(size) is not None
        assert bool(moves) == (rounded(size) > self.arena.largest_hole)

    @invariant()
    def counts(self) -> None:
        assert self.arena.free_bytes == self.blocks.count(None) * ALIGNMENT
        assert list(self.arena.holes) == self.holes()
        assert list(self.arena.regions) == sorted(self.owners)
        assert self.arena.largest_hole == max((hole.size for hole in self.holes()), default=0)
        assert self.arena.capacity_bytes == BLOCKS * ALIGNMENT


TestArena = ArenaMachine.TestCase


@given(sizes=st.lists(st.tuples(st.integers(1, 8), st.booleans()), min_size=1, max_size=12), need=st.integers(1, 30))
def test_a_plan_moves_no_more_than_the_best_that_only_pushes_together(sizes: list[tuple[int, bool]], need: int) -> None:
    arena = Arena(sum(size for size, _ in sizes) * ALIGNMENT)
    parts, offset = [], 0
    for size, is_hole in sizes:
        region = Region(offset, size * ALIGNMENT)
        if not is_hole:
            arena.take(region)
        parts.append((region, is_hole))
        offset = end(region)
    moves = plan_moves(arena, need * ALIGNMENT, arena.regions)
    costs = [
        sum(region.size for region, is_hole in parts[first:last] if not is_hole)
        for first in range(len(parts))
        for last in range(first + 1, len(parts) + 1)
        if sum(region.size for region, is_hole in parts[first:last] if is_hole) >= need * ALIGNMENT
    ]
    assert (moves is None) == (not costs)
    if moves is not None:
        assert sum(move.source.size for move in moves) <= min(costs)


def laid_out(*parts: tuple[str, int]) -> tuple[Arena, dict[str, Region]]:
    """Return an arena with parts one behind the other; those without a name are holes."""
    arena = Arena(sum(blocks for _, blocks in parts) * ALIGNMENT)
    regions, offset = {}, 0
    for name, blocks in parts:
        if name:
            regions[name] = Region(offset, blocks * ALIGNMENT)
            arena.take(regions[name])
        offset += blocks * ALIGNMENT
    return arena, regions


def test_a_region_goes_over_one_that_must_stay() -> None:
    arena, regions = laid_out(("a", 5), ("", 3), ("wall", 1), ("", 5), ("end", 1))
    assert plan_moves(arena, 8 * ALIGNMENT, [regions["a"]]) == ((regions["a"], Region(9 * ALIGNMENT, 5 * ALIGNMENT)),)
    assert plan_moves(arena, 8 * ALIGNMENT, []) is None
    assert plan_moves(arena, 8 * ALIGNMENT + 1, [regions["a"]]) is None, "8 are free, but not in one piece of 9"


def test_of_two_ways_the_one_with_fewer_bytes_is_taken() -> None:
    arena, regions = laid_out(("", 2), ("big", 9), ("", 2), ("small", 1), ("", 2), ("end", 1))
    moves = plan_moves(arena, 4 * ALIGNMENT, regions.values())
    assert moves == ((regions["small"], Region(11 * ALIGNMENT, ALIGNMENT)),)


def test_what_is_no_region_is_refused() -> None:
    arena = Arena(10 * ALIGNMENT)
    region = arena.allocate(3 * ALIGNMENT - 5)
    assert region is not None
    for wrong in (Region(0, 3 * ALIGNMENT), Region(ALIGNMENT, ALIGNMENT), Region(5 * ALIGNMENT, ALIGNMENT)):
        with pytest.raises(ValueError, match="no region that is taken"):
            arena.free(wrong)
    for wrong in (Region(100, 10), Region(2 * ALIGNMENT, 10), Region(9 * ALIGNMENT, ALIGNMENT + 1)):
        with pytest.raises(ValueError, match="not free"):
            arena.take(wrong)
    with pytest.raises(ValueError, match="cannot begin at 100"):
        arena.begin_move(region, Region(100, region.size))
    with pytest.raises(ValueError, match="cannot move to one of 512"):
        arena.begin_move(region, Region(0, 512))
    with pytest.raises(ValueError, match="-1 bytes"):
        arena.allocate(-1)
    assert (arena.regions, arena.free_bytes) == ((region,), 7 * ALIGNMENT)
