"""What a rollout that does not count is given so that the mean of its group is that of the others; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["neutral_scores", "reward_columns"]


def neutral_scores(scores: Sequence[float], masked: Sequence[bool], groups: Sequence[Any]) -> dict[int, float]:
    """Return of each masked row the mean score of those of its group that are not; 0 if all are.

    With it, the mean of the group is that of the others, and the row's own advantage is 0.
    """
    counted: dict[Any, list[float]] = {}
    for score, is_masked, group in zip(scores, masked, groups, strict=True):
        if not is_masked:
            counted.setdefault(group, []).append(score)
    rows = [row for row, is_masked in enumerate(masked) if is_masked]
    return {row: _mean(counted.get(groups[row], [])) for row in rows}


def reward_columns(told: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return what the rows were told beside their scores as columns, in the order of first appearance.

    A row that was not told of a column has the mean of the others there if those are numbers, else None.
    """
    keys = list(dict.fromkeys(key for row in told for key in row))
    columns: dict[str, list[Any]] = {}
    for key in keys:
        known = [row[key] for row in told if key in row]
        lacking = _mean(known) if all(isinstance(value, int | float) for value in known) else None
        columns[key] = [row.get(key, lacking) for row in told]
    return columns


def _mean(scores: Sequence[float]) -> float:
    return math.fsum(scores) / len(scores) if scores else 0.0
