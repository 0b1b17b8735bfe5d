"""All figures of `simulate`, as JSON can have them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import cast

from arl_tangram.studies.rows import Row
from arl_tangram.studies.tasks import Outcomes


def of_rows(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return the rows of the table."""
    return [_known(row._asdict()) for row in rows]


def of_outcomes(outcomes: Outcomes) -> dict[str, object]:
    """Return what was run, each with all its parameters and what it came to."""
    return {
        "runs": [
            {"kind": type(task).__name__.lower(), **_known(asdict(task)), "found": _known(outcome._asdict())}
            for task, outcome in outcomes.items()
        ]
    }


def _known(values: dict[str, object]) -> dict[str, object]:
    """Return values in which what is no number or without a bound is none: JSON has neither."""
    return {name: _json(value) for name, value in values.items()}


def _json(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return _known(cast("dict[str, object]", value))
    if isinstance(value, list | tuple):
        return [_json(one) for one in cast("Sequence[object]", value)]
    return value
