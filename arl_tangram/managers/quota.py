"""Quotas of APIs: what a user declares, and what a running body may say about one."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.quantities import MILLI, quota_name, seconds, whole
from arl_tangram.model.topology import Dimension, quota_calls, quota_concurrency

LONGEST_PAUSE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit on calls of an API, shared by all actions that declare `quota={name: calls}`.

    A call counts against both limits; they are granted together or not at all.

    Attributes:
        name: how actions call it; letters, digits, `-`, `_` and `.`.
        calls: calls that may start within any `period_s` seconds (a sliding window, so that a server
            with a fixed window of that length never sees more), from 1; None for no limit.
        period_s: the length of that window.
        concurrency: calls in flight at once, from 1; None for no limit.

    Raises:
        ConfigurationError: neither limit, one of `calls` and `period_s` without the other, or a value
            that is not possible.
    """

    name: str
    calls: int | None = None
    period_s: float | None = None
    concurrency: int | None = None

    def __post_init__(self) -> None:
        what = f"Quota({self.name!r})"
        quota_name(self.name, what, ConfigurationError)
        if (self.calls is None) != (self.period_s is None):
            raise ConfigurationError(f"{what}: calls= and period_s= go together")
        if self.calls is None and self.concurrency is None:
            raise ConfigurationError(f"{what} needs calls= and period_s=, or concurrency=")
        for limit, value in (("calls", self.calls), ("concurrency", self.concurrency)):
            if value is not None:
                whole(value, f"{what}: {limit}", ConfigurationError, least=1, most=1 << 40)
        if self.period_s is not None:
            seconds(self.period_s, f"{what}: period_s", ConfigurationError)

    def dimensions(self) -> tuple[Dimension, ...]:
        """Return what it adds to a topology, in thousandths of a call."""
        dimensions: list[Dimension] = []
        if self.calls is not None:
            dimensions.append(Dimension(quota_calls(self.name), self.calls * MILLI, MILLI, self.period_s))
        if self.concurrency is not None:
            dimensions.append(Dimension(quota_concurrency(self.name), self.concurrency * MILLI, MILLI))
        return tuple(dimensions)


@dataclass(frozen=True, slots=True)
class QuotaHandle:
    """A running body's hold on a quota.

    Attributes:
        pause: stops grants of the quota for a number of seconds; may be called from any thread.
    """

    pause: Callable[[float], None]

    def retry_after(self, value: float | str) -> None:
        """Grant nothing of this quota for `value` seconds from now; the latest such deadline counts.

        Args:
            value: seconds from 0, as a number or as the text of a `Retry-After` header; more than an
                hour counts as an hour.

        Raises:
            ValueError: not a finite number of seconds from 0.
        """
        self.pause(min(parse_retry_after(value), LONGEST_PAUSE_S))


def parse_retry_after(value: object) -> float:
    """Return the seconds that a `Retry-After` in seconds asks for.

    Raises:
        ValueError: not a finite number of seconds from 0.
    """
    wait_s = math.nan
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            wait_s = float(value)
    if not math.isfinite(wait_s) or wait_s < 0:
        raise ValueError(f"Retry-After takes finite seconds from 0, not {value!r}")
    return wait_s
