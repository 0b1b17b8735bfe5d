"""Say how long a run takes on several units, relative to one, by the speed-up that was declared for it."""

from __future__ import annotations

import math

from arl_tangram.model.elasticity import Speedup

LONGEST_S = 1e7
"""What an estimate that is not finite, or absurd, is taken to be: worse than any real duration."""


def relative_duration(speedup: Speedup | None, units: int) -> float:
    """Return the duration at `units` relative to one unit; a useless speed-up costs time, never a wrong allocation."""
    if speedup is None:
        return 1.0
    faster = speedup(units)
    if not (math.isfinite(faster) and faster > 1 / LONGEST_S):
        return LONGEST_S
    return 1 / min(faster, LONGEST_S)
