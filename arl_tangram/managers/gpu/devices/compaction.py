"""Which regions to move so that the holes of an arena become one that is large enough. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from arl_tangram.managers.gpu.devices.arena import Arena, rounded
from arl_tangram.managers.gpu.devices.device import Move, Region


@dataclass(frozen=True, slots=True)
class _Window:
    """Neighbouring parts of an arena; if all its regions go to its beginning or elsewhere, one hole is left.

    Attributes:
        offset: of its first byte.
        holes: that are in it.
        blocks: the regions that are in it, by address; all of them can be moved.
    """

    offset: int
    holes: tuple[Region, ...]
    blocks: tuple[Region, ...]

    @property
    def free(self) -> int:
        return sum(hole.size for hole in self.holes)

    @property
    def cost(self) -> int:
        """Bytes to move."""
        return sum(block.size for block in self.blocks)


def plan_moves(arena: Arena, size: int, movable: Collection[Region]) -> tuple[Move, ...] | None:
    """Return moves, one after the other, after which a region of this size can be taken.

    In a stretch without a region that must stay, regions go to holes elsewhere as far as that is needed, and the others
    are pushed together. Of all stretches where that is enough, the one with the fewest bytes to move is taken. Which
    regions go elsewhere is decided greedily (largest first, best fit), so that a way may be missed in rare cases.

    Returns:
        No moves if there is room; None if no way was found.
    """
    need = rounded(size)
    if need <= arena.largest_hole:
        return ()
    if need > arena.free_bytes:
        return None
    for window in sorted(_windows(arena, frozenset(movable)), key=lambda one: one.cost):
        outside = [hole for hole in arena.holes if hole not in window.holes]
        moves = _clear(window, need, outside)
        if moves is not None:
            return moves
    return None


def _windows(arena: Arena, movable: frozenset[Region]) -> list[_Window]:
    """Return every run of neighbouring holes and movable regions."""
    holes = frozenset(arena.holes)
    parts = sorted([*arena.holes, *arena.regions])
    found: list[_Window] = []
    for first, part in enumerate(parts):
        run: list[Region] = []
        for other in parts[first:]:
            if other not in holes and other not in movable:
                break
            run.append(other)
            blocks = tuple(one for one in run if one not in holes)
            found.append(_Window(part.offset, tuple(one for one in run if one in holes), blocks))
    return found


def _clear(window: _Window, need: int, outside: Sequence[Region]) -> tuple[Move, ...] | None:
    """Return the moves that leave a hole of the needed size in the window, or None."""
    free, stay, holes = window.free, list(window.blocks), list(outside)
    moves: list[Move] = []
    for block in sorted(window.blocks, key=lambda one: one.size, reverse=True):
        if free >= need:
            break
        taken = rounded(block.size)
        fitting = [hole for hole in holes if hole.size >= taken]
        if fitting:
            hole = min(fitting, key=lambda one: one.size)
            moves.append(Move(block, Region(hole.offset, block.size)))
            holes[holes.index(hole)] = Region(hole.offset + taken, hole.size - taken)
            stay.remove(block)
            free += taken
    return (*moves, *_pushed_together(window.offset, stay)) if free >= need else None


def _pushed_together(offset: int, blocks: Sequence[Region]) -> list[Move]:
    """Return the moves that put regions, given by address, one behind the other from an offset on."""
    moves: list[Move] = []
    for block in blocks:
        target = Region(offset, block.size)
        if target != block:
            moves.append(Move(block, target))
        offset += rounded(block.size)
    return moves
