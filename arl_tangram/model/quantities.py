"""Check numbers at the border, and turn them into the integers that the scheduler counts in.

Cores and quota calls count in thousandths, memory in bytes, so that 0.1 + 0.2 fits in 0.3 and a
million acquisitions of 0.1 end at exactly nothing.
"""

from __future__ import annotations

import math
from fractions import Fraction

from arl_tangram.errors import TangramError

MILLI = 1000
GIB = 1 << 30


def whole(value: object, what: str, error: type[TangramError], *, least: int, most: int = 1 << 20) -> int:
    """Return a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise error(f"{what} takes a whole number from {least} to {most}, not {value!r}")
    return value


def seconds(value: object, what: str, error: type[TangramError]) -> float:
    """Return finite seconds above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise error(f"{what} takes finite seconds above 0, not {value!r}")
    return float(value)


def thousandths(value: object, what: str, error: type[TangramError]) -> int:
    """Return a number from 0 as integer thousandths; refuse what is finer."""
    scaled = _amount(value, what, error) * MILLI
    nearest = round(scaled)
    if abs(scaled - nearest) > 1e-6:
        raise error(f"{what} = {value!r} is finer than a thousandth")
    return nearest


def bytes_of_gib(value: object, what: str, error: type[TangramError]) -> int:
    """Return GiB from 0 as whole bytes, rounded up."""
    return math.ceil(Fraction(_amount(value, what, error)) * GIB)


def _amount(value: object, what: str, error: type[TangramError]) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise error(f"{what} takes a number, not {value!r}")
    if not math.isfinite(value) or value < 0:
        raise error(f"{what} must be a finite number from 0, not {value!r}")
    return float(value)
