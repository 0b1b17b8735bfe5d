"""Check numbers and names at the border, and turn them into the integers and texts that the scheduler knows.

Cores and quota calls count in thousandths, memory in bytes, so that 0.1 + 0.2 fits in 0.3 and a
million acquisitions of 0.1 end at exactly nothing.
"""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Integral, Real

from arl_tangram.errors import TangramError

MILLI = 1000
GIB = 1 << 30
_ROUNDING = Fraction(1, 10**6)  # of a thousandth: 0.1 + 0.2 is not quite 0.3 in binary


def whole(value: object, what: str, error: type[TangramError], *, least: int, most: int = 1 << 20) -> int:
    """Return a whole number from `least` to `most`, of any integral type."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        raise error(f"{what} takes a whole number from {least} to {most}, not {value!r}")
    return int(value)


def seconds(value: object, what: str, error: type[TangramError]) -> float:
    """Return finite seconds above 0."""
    number = _finite(value)
    if number is None or number <= 0:
        raise error(f"{what} takes finite seconds above 0, not {value!r}")
    return number


def thousandths(value: object, what: str, error: type[TangramError]) -> int:
    """Return a number from 0 as integer thousandths; refuse what is finer."""
    scaled = Fraction(_amount(value, what, error)) * MILLI
    nearest = round(scaled)
    if abs(scaled - nearest) > _ROUNDING or (scaled and not nearest):
        raise error(f"{what} = {value!r} is finer than a thousandth")
    return nearest


def is_name(value: object) -> bool:
    """Return whether something is a text that is not empty."""
    return isinstance(value, str) and bool(value)


def plain(text: str) -> str:
    """Return a text of exactly the type `str`; one of a subclass is of no use in a process that lacks its module."""
    return str.__str__(text)


def quota_name(value: object, what: str, error: type[TangramError]) -> str:
    """Return the name of a quota: letters, digits, `-`, `_` and `.`."""
    if not isinstance(value, str) or not value or not all(c.isalnum() or c in "-_." for c in value):
        raise error(f"{what}: the name of a quota has letters, digits, '-', '_' and '.', not {value!r}")
    return plain(value)


def service_name(value: object, what: str, error: type[TangramError]) -> str:
    """Return the name of a service: letters, digits, `-`, `_` and `.`."""
    if not isinstance(value, str):
        raise error(f"{what}: the name of a service is a string, such as 'judge', not {value!r}")
    if not value or not all(c.isalnum() or c in "-_." for c in value):
        raise error(f"{what}: the name of a service has letters, digits, '-', '_' and '.', not {value!r}")
    return plain(value)


def bytes_of_gib(value: object, what: str, error: type[TangramError]) -> int:
    """Return GiB from 0 as whole bytes.

    Rounded down, so that parts which add up to a whole fit in it, and to one byte at least if there is anything.
    """
    exact = Fraction(_amount(value, what, error)) * GIB
    return max(1, math.floor(exact)) if exact else 0


def capacity_units(value: object, scale: int, what: str, error: type[TangramError]) -> int:
    """Return a capacity above 0 in integer units, `scale` of them in a whole one; rounded up where that is a byte."""
    if scale == 1:
        return whole(value, what, error, least=1)
    units = bytes_of_gib(value, what, error) if scale == GIB else thousandths(value, what, error)
    if units == 0:
        raise error(f"{what} must be above 0")
    return units


def _amount(value: object, what: str, error: type[TangramError]) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise error(f"{what} takes a number, not {value!r}")
    number = _finite(value)
    if number is None or number < 0:
        raise error(f"{what} must be a finite number from 0, not {value!r}")
    return number


def _finite(value: object) -> float | None:
    """Return a real number as a finite float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer beyond all floats
        return None
    return number if math.isfinite(number) else None
