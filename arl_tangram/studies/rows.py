"""A row of the table: what was published, and what the simulations come to on each seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple, Protocol

from arl_tangram.studies.tasks import Outcomes, Task


class Unit(StrEnum):
    """What a figure is."""

    TIMES = "x"
    PERCENT = "%"


class Row(NamedTuple):
    """One figure.

    Attributes:
        what: it is.
        published: the figure, as it was published; empty if there is none.
        unit: of the figures.
        ours: one for each seed, or for each step of each; NaN where what was to be kept is not kept with all there is.
        detail: what it was made of.
        took_s: CPU seconds that it took to compute.
    """

    what: str
    published: str
    unit: Unit
    ours: tuple[float, ...]
    detail: str = ""
    took_s: float = 0.0

    @property
    def kept(self) -> tuple[float, ...]:
        """The figures without those that are none."""
        return tuple([value for value in self.ours if not math.isnan(value)])

    @property
    def mean(self) -> float:
        """Their mean; NaN if one of them is none."""
        return fmean(self.ours)


class Section(Protocol):
    """A part of the table: what is to be run for it, and its rows."""

    def tasks(self) -> Sequence[Task]:
        """Return what is to be run first."""
        ...

    def further(self, outcomes: Outcomes) -> Sequence[Task]:
        """Return what is to be run when these are known; nothing, for most sections."""
        ...

    def rows(self, outcomes: Outcomes) -> Sequence[Row]:
        """Return the rows, when all is known."""
        ...


def saved(needed: int | None, there: int) -> float:
    """Return how many percent of what there is are not needed; NaN if all of it is not enough."""
    return math.nan if needed is None else 100 * (1 - needed / there)


def told_s(values: Sequence[float]) -> str:
    """Return the mean of seconds, as details tell it."""
    mean_s = fmean(values)
    return f"{mean_s:,.0f} s" if mean_s >= 100 else f"{mean_s:.3g} s"


def counts(needed: Sequence[int | None]) -> str:
    """Return from how few to how many are needed, as details tell it."""
    known = [count for count in needed if count is not None]
    missing = f"with all of them not kept on {len(needed) - len(known)} of {len(needed)} seeds"
    if not known:
        return missing
    text = f"{min(known):,}" if min(known) == max(known) else f"{min(known):,} to {max(known):,}"
    return text if len(known) == len(needed) else f"{text}, {missing}"
