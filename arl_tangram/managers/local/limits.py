"""What the commands of one sandbox may use: cores and time, by its cgroups or, where it has none, by its keeper."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence

from arl_tangram.managers.cores import Placement
from arl_tangram.managers.host.cgroup import SUSPENDED_QUOTA_US, SandboxGroup, quota_us_of


class Limits:
    """Cores and time of one sandbox.

    Args:
        group: its cgroups, without a quota yet; None where there are none.
        pin: lets the keeper set the affinity of all that runs in it.
    """

    def __init__(self, group: SandboxGroup | None, *, pin: Callable[[Sequence[int]], None]) -> None:
        self._group = group
        self._pin = pin
        self._pinned = group is not None and "cpuset" in group.folders
        self._suspended = False
        self._quota_us: int | None = None  # that it shall have
        self._written_us: int | None = None  # that it has
        self._comes_last = False  # and others first, by its weight
        self._is_last = False  # as that was written
        self._rushing = 0

    def place(self, placement: Placement) -> None:
        """Let it have these cores, at once; no longer suspended, it goes on there.

        Raises:
            OSError: its cgroup does not take them.
        """
        if self._group is not None:
            self._group.set_cores(placement.core_ids)
            self._limit(None if placement.is_whole and self._pinned else quota_us_of(placement.milli_cores))
        self._suspended = False
        if not self._pinned:
            self._pin(placement.core_ids)

    def suspend(self) -> None:
        """Let it have next to no time, on the cores that it had; only where cgroups give cores and limit time.

        Raises:
            OSError: its cgroup does not take that.
        """
        assert self._group is not None
        self._suspended = True
        self._limit(SUSPENDED_QUOTA_US, comes_last=True)

    def end(self) -> None:
        """Let one that is suspended go on."""
        if self._suspended:
            with contextlib.suppress(OSError):  # it is gone, and needs no time
                self._limit(None)
            self._suspended = False

    @contextlib.contextmanager
    def rush(self) -> Generator[None]:
        """Lift its limits for a while: what is to die needs time for it, and a keeper that kills even more."""
        self._rushing += 1
        try:
            with contextlib.suppress(OSError):
                self._write()
            yield
        finally:
            self._rushing -= 1
            with contextlib.suppress(OSError):
                self._write()

    def _limit(self, quota_us: int | None, *, comes_last: bool = False) -> None:
        """Limit its time to this in each period, and to what others leave if it comes last."""
        self._quota_us, self._comes_last = quota_us, comes_last
        self._write()

    def _write(self) -> None:
        """Put its limits in effect as far as they are not, or lift them while something in it is being killed."""
        if self._group is None:
            return
        now_us = None if self._rushing else self._quota_us
        if now_us != self._written_us:
            self._group.set_quota_us(now_us)
            self._written_us = now_us
        is_last = self._comes_last and not self._rushing
        if is_last is not self._is_last:
            self._group.set_weight(least=is_last)
            self._is_last = is_last
