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
        idle_cores: asks for the cores of the pool.
    """

    def __init__(
        self,
        group: SandboxGroup | None,
        *,
        pin: Callable[[Sequence[int]], None],
        idle_cores: Callable[[], Sequence[int]],
    ) -> None:
        self._group = group
        self._pin = pin
        self._idle_cores = idle_cores
        self._pinned = group is not None and "cpuset" in group.folders
        self._suspended = False
        self._quota_us: int | None = None  # that it shall have
        self._written_us: int | None = None  # that it has
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
        """Let it have next to no time, on all cores of the pool; only where cgroups give cores and limit time.

        Raises:
            OSError: its cgroup does not take that.
        """
        assert self._group is not None
        self._suspended = True
        self._limit(SUSPENDED_QUOTA_US)  # first: those cores are others'
        self._group.set_cores(self._idle_cores())

    def end(self) -> None:
        """Lift the quota of one that is suspended."""
        if self._suspended:
            with contextlib.suppress(OSError):  # it is gone, and needs no time
                self._limit(None)
            self._suspended = False

    @contextlib.contextmanager
    def rush(self) -> Generator[None]:
        """Lift the quota for a while: what is to die needs time for it, and a keeper that kills even more."""
        self._rushing += 1
        try:
            with contextlib.suppress(OSError):
                self._limit(self._quota_us)
            yield
        finally:
            self._rushing -= 1
            with contextlib.suppress(OSError):
                self._limit(self._quota_us)

    def _limit(self, quota_us: int | None) -> None:
        """Limit its time to this in each period, or not yet while something in it is being killed."""
        self._quota_us = quota_us
        now_us = None if self._rushing else quota_us
        if now_us != self._written_us and self._group is not None:
            self._group.set_quota_us(now_us)
            self._written_us = now_us
