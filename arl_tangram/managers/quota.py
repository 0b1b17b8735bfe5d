"""Quotas of APIs: what a user declares, and what a running body may say about one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import cast

from arl_tangram.errors import ConfigurationError, NoActionError
from arl_tangram.managers.breaker import MOST_AT_ONCE, Breaker
from arl_tangram.managers.retry_after import parse_retry_after
from arl_tangram.model.quantities import MILLI, quota_name, seconds, thousandths, whole
from arl_tangram.model.topology import Dimension, quota_breaker, quota_calls, quota_concurrency, quota_tokens

LONGEST_PAUSE_S = 3600.0
_MOST = 1 << 40
_MOST_KEYS = 64
_MOST_WINDOWS = 16


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit on calls of an API, shared by all actions that declare `quota={name: calls}`.

    A call counts against all its limits; they are granted together or not at all. Windows slide, so that a server with
    fixed windows of the same lengths never sees more.

    Attributes:
        name: how actions call it; letters, digits, `-`, `_` and `.`.
        calls: calls that may start within any `period_s` seconds, from 1; or several such limits, as pairs of calls
            and seconds; None for no limit.
        period_s: the length of the window of `calls` and `tokens`, where they are one number each.
        concurrency: calls in flight at once, from 1; None for no limit.
        tokens: the same as `calls`, for the tokens that actions reserve and settle.
        total_calls: calls that may start ever, from 1; None for no limit.
        total_tokens: tokens that may be used ever, from 1; None for no limit.
        keys: API keys, each with all these limits for itself. A call takes the one with most room, and finds it as
            `current_quota(name).key`. They are not written anywhere.
        longest_pause_s: the most seconds for which a `Retry-After` is obeyed.
        breaker: when to stop sending calls to what fails again and again; with keys, each key is stopped by itself, and
            the others go on. None for never.

    Raises:
        ConfigurationError: neither a limit nor a breaker, a number without its `period_s` or the reverse, or a value
            that is not possible.
    """

    name: str
    calls: int | Sequence[tuple[int, float]] | None = None
    period_s: float | None = None
    concurrency: int | None = None
    _: KW_ONLY
    tokens: int | Sequence[tuple[int, float]] | None = None
    total_calls: int | None = None
    total_tokens: int | None = None
    keys: Sequence[str] = field(default=(), repr=False)
    longest_pause_s: float = LONGEST_PAUSE_S
    breaker: Breaker | None = None

    def __post_init__(self) -> None:
        what = f"Quota({self.name!r})"
        quota_name(self.name, what, ConfigurationError)
        numbers = [name for name, limit in (("calls", self.calls), ("tokens", self.tokens)) if _is_number(limit)]
        if numbers and self.period_s is None:
            raise ConfigurationError(f"{what}: {numbers[0]}= and period_s= go together")
        if self.period_s is not None and not numbers:
            raise ConfigurationError(f"{what}: period_s= goes with calls= or tokens= as one number")
        for name in ("calls", "tokens"):
            object.__setattr__(self, name, _windows(getattr(self, name), f"{what}: {name}"))
        for name in ("concurrency", "total_calls", "total_tokens"):
            if (value := getattr(self, name)) is not None:
                whole(value, f"{what}: {name}", ConfigurationError, least=1, most=_MOST)
        if self.period_s is not None:
            seconds(self.period_s, f"{what}: period_s", ConfigurationError)
        seconds(self.longest_pause_s, f"{what}: longest_pause_s", ConfigurationError)
        object.__setattr__(self, "keys", _keys(self.keys, what))
        if not isinstance(self.breaker, Breaker | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"{what}: breaker= takes a Breaker, not {self.breaker!r}")
        if not self.dimensions():
            raise ConfigurationError(
                f"{what} needs a limit: calls= or tokens= with period_s=, concurrency=, total_calls= or total_tokens=; "
                "or a breaker="
            )

    def dimensions(self) -> tuple[Dimension, ...]:
        """Return what it adds to a topology, in thousandths of a call and of a token."""
        dimensions: list[Dimension] = []
        for key in range(1, len(self.keys) + 1) if self.keys else (0,):
            for limit, total, named in (
                (self.calls, self.total_calls, quota_calls),
                (self.tokens, self.total_tokens, quota_tokens),
            ):
                if isinstance(limit, int):
                    dimensions.append(Dimension(named(self.name, key), limit * MILLI, MILLI, self.period_s))
                else:
                    for most, period_s in limit or ():
                        dimensions.append(Dimension(named(self.name, key, period_s), most * MILLI, MILLI, period_s))
                if total is not None:
                    dimensions.append(Dimension(named(self.name, key, math.inf), total * MILLI, MILLI, math.inf))
            if self.concurrency is not None:
                dimensions.append(Dimension(quota_concurrency(self.name, key), self.concurrency * MILLI, MILLI))
            if self.breaker is not None:
                dimensions.append(Dimension(quota_breaker(self.name, key), MOST_AT_ONCE))
        return tuple(dimensions)


def _ended(_calls: int | None, _tokens: int | None) -> bool:
    return False


def _nothing_to_say(_failed: bool | None) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class QuotaHandle:
    """A running body's hold on a quota; usable from any thread.

    Attributes:
        pause: stops grants of the quota, or of its key, for a number of seconds.
        count: counts thousandths of calls and of tokens, or None to leave them, instead of what was granted; returns
            whether the call still holds the quota.
        key: which of the quota's keys the call takes; None if it has none.
        longest_pause_s: the most seconds for which a `Retry-After` is obeyed.
        say: tells the breaker that the call failed or not, or (None) that its end says nothing about that; returns
            whether the call still holds the quota.
    """

    pause: Callable[[float], None]
    count: Callable[[int | None, int | None], bool] = field(default=_ended)
    key: str | None = field(default=None, repr=False)
    longest_pause_s: float = LONGEST_PAUSE_S
    say: Callable[[bool | None], bool] = field(default=_nothing_to_say)

    def retry_after(self, value: float | str, *, date: str | None = None) -> None:
        """Grant nothing of this quota, or of this key of it, for some time from now; the latest deadline counts.

        For the quota's breaker, such a call is neither a success nor a failure.

        Args:
            value: what the server asked for: seconds from 0, as a number or as the text of a `Retry-After` header, or
                an HTTP date as text; one that is past means now. More than the quota's `longest_pause_s` counts as
                that.
            date: the `Date` header of the same answer, to count an HTTP date from.

        Raises:
            ValueError: neither finite seconds from 0 nor an HTTP date.
        """
        pause_s = parse_retry_after(value, date=date)
        self.say(None)
        self.pause(min(pause_s, self.longest_pause_s))

    def failed(self) -> None:
        """Tell the quota's breaker, if it has one, that what is behind it does not work; counts at once.

        For bodies that catch the error. How a call ends that has said `failed()` or `succeeded()` counts for nothing;
        one that sends several requests may say it for each.

        Raises:
            NoActionError: the action has ended.
        """
        self._say("failed()", failed=True)

    def succeeded(self) -> None:
        """Tell the quota's breaker, if it has one, that what is behind it works, whatever the body raises later.

        Raises:
            NoActionError: the action has ended.
        """
        self._say("succeeded()", failed=False)

    def settle(self, *, tokens: float | None = None, calls: float | None = None) -> None:
        """Say what the call really used; what was reserved beyond that is free at once.

        More than was reserved is charged from now on, even if that is more than there is: then others wait until it
        has returned. May be said again, when more is known; a call that says nothing is charged what it reserved.

        Args:
            tokens: tokens used, from 0; None to leave what was reserved.
            calls: calls made, from 0 (the request was never sent); None to leave what was granted.

        Raises:
            ValueError: neither of them, or one that is not possible.
            NoActionError: the action has ended.
        """
        if tokens is None and calls is None:
            raise ValueError("settle() takes tokens= or calls=")
        used_calls = None if calls is None else thousandths(calls, "settle(calls=)", ConfigurationError)
        used_tokens = None if tokens is None else thousandths(tokens, "settle(tokens=)", ConfigurationError)
        if not self.count(used_calls, used_tokens):
            raise NoActionError("settle() was called after the action had ended")

    def _say(self, what: str, *, failed: bool) -> None:
        if not self.say(failed):
            raise NoActionError(f"{what} was called after the action had ended")


def _is_number(limit: object) -> bool:
    return limit is not None and (isinstance(limit, str) or not isinstance(limit, Sequence))


def _windows(limit: object, what: str) -> int | tuple[tuple[int, float], ...] | None:
    """Return one number as it is, and pairs of a number and seconds with the shortest window first."""
    if limit is None or _is_number(limit):
        return None if limit is None else whole(limit, what, ConfigurationError, least=1, most=_MOST)
    windows: dict[float, int] = {}
    for pair in cast(Sequence[object], limit):
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(cast(Sequence[object], pair)) != 2:
            raise ConfigurationError(f"{what} takes a number, or pairs of a number and seconds, not {limit!r}")
        most, period_s = cast(Sequence[object], pair)
        period_s = seconds(period_s, f"{what}: seconds", ConfigurationError)
        if period_s in windows:
            raise ConfigurationError(f"{what} has two limits per {period_s:g} s: {limit!r}")
        windows[period_s] = whole(most, what, ConfigurationError, least=1, most=_MOST)
    if not 1 <= len(windows) <= _MOST_WINDOWS:
        raise ConfigurationError(f"{what} takes from 1 to {_MOST_WINDOWS} pairs of a number and seconds, not {limit!r}")
    return tuple((windows[period_s], period_s) for period_s in sorted(windows))


def _keys(keys: object, what: str) -> tuple[str, ...]:
    """Return keys as a tuple; what is wrong is said without showing them."""
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Sequence):
        raise ConfigurationError(f"{what}: keys= takes a sequence of strings, not one {type(keys).__name__}")
    found = tuple(cast(Sequence[object], keys))
    if not all(isinstance(key, str) and key for key in found):
        raise ConfigurationError(f"{what}: keys= takes strings that are not empty")
    if len(set(found)) < len(found):
        raise ConfigurationError(f"{what}: two of its {len(found)} keys are the same")
    if len(found) > _MOST_KEYS:
        raise ConfigurationError(f"{what}: {len(found)} keys; {_MOST_KEYS} are the most")
    return cast(tuple[str, ...], found)
