"""Read what a server asks for with `Retry-After`: seconds, or the date from which it may be asked again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def parse_retry_after(value: object, *, date: str | None = None) -> float:
    """Return for how many seconds from now a server does not want to be asked.

    Args:
        value: seconds from 0, as a number or as text, or an HTTP date as text; one that is past means 0.
        date: the `Date` header of the same answer. An HTTP date is then counted from that, so that it does not matter
            whether the clocks of both machines agree; without one, or with one that cannot be read, from this clock.

    Raises:
        ValueError: neither finite seconds from 0 nor an HTTP date.
    """
    wait_s = math.nan
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            wait_s = float(value)
    if math.isfinite(wait_s) and wait_s >= 0:
        return wait_s
    until = _date(value) if math.isnan(wait_s) else None
    if until is None:
        raise ValueError(f"Retry-After takes finite seconds from 0 or an HTTP date, not {value!r}")
    now = _date(date) or datetime.now(UTC)
    return max(0.0, (until - now).total_seconds())


def asked_to_wait_s(headers: Mapping[str, str]) -> float | None:
    """Return for how many seconds the headers of an answer ask to wait; None if they do not say, or nothing sensible.

    Args:
        headers: by name; names are looked up in lower case, so this wants a mapping that ignores case.
    """
    milliseconds = headers.get("retry-after-ms")
    if milliseconds is not None:
        with suppress(ValueError):
            return parse_retry_after(_plain(milliseconds)) / 1000
    value = headers.get("retry-after")
    if value is not None:
        with suppress(ValueError):
            return parse_retry_after(value.strip(), date=headers.get("date"))
    return None


def _plain(text: str) -> float:
    return float(text)


def _date(text: object) -> datetime | None:
    """Return an HTTP date; one without a zone is in UTC, as all HTTP dates are."""
    if not isinstance(text, str):
        return None
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
