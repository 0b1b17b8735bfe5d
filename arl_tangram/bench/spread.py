"""How far measurements of one thing lie apart, in the cells of a row: the best, the median and the worst."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

HEADS = ("best", "median", "worst")


def cells(values: Sequence[float], form: str, width: int) -> str:
    """Return a cell for each head; the least is the best."""
    return "".join(f"{format(value, form):>{width}}" for value in (min(values), median(values), max(values)))
