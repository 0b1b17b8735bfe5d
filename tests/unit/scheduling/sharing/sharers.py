"""Sharers for tests of the policies that share cores."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

SIZES = (1, 2, 4, 8, 16)


@dataclass(slots=True)
class Given:
    """A `Sharer` of which everything is said."""

    sizes: tuple[int, ...] = SIZES
    rates: tuple[float, ...] = SIZES
    least: int = 0
    cores: int = 0
    attained_s: float = 0.0
    remaining_s: float = 1.0
    next_s: float = inf
    order: int = 0
    resizable: bool = True


def scaling(exponent: float, sizes: tuple[int, ...] = SIZES, *, least: int = 0, cores: int = 0) -> Given:
    return Given(sizes, tuple([size**exponent for size in sizes]), least=least, cores=cores)


def single(*, least: int = 0) -> Given:
    return Given((1,), (1.0,), least=least, cores=least)
