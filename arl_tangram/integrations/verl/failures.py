"""When groups of rollouts that fail are no bad luck any more; it knows no verl."""

from __future__ import annotations

import time
from collections.abc import Callable

from arl_tangram.errors import InfrastructureError

__all__ = ["Failures"]

_BATCHES = 10
_SECONDS = 600


class Failures:
    """Bounds how many groups fail until there is a batch: verl replaces them without end, and says nothing.

    The bound is groups of ten batches, and ten minutes since the first of them, so that what passes by is waited for.

    Args:
        now: the clock.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._wanted = 1
        self._failed = 0
        self._since_s = 0.0

    def want(self, groups: int) -> None:
        """Note how many groups are waited for."""
        self._wanted = max(groups, 1)

    def arrived(self) -> None:
        """Note that they are there."""
        self._failed = 0

    def failed(self, groups: int) -> None:
        """Note that groups have failed, and will be replaced.

        Raises:
            InfrastructureError: that has gone on for too long.
        """
        if not groups:
            return
        if not self._failed:
            self._since_s = self._now()
        self._failed += groups
        lasted_s = self._now() - self._since_s
        if self._failed >= _BATCHES * self._wanted and lasted_s >= _SECONDS:
            raise InfrastructureError(
                f"{self._failed} groups of rollouts have failed within {lasted_s:.0f} s, without a batch of "
                f"{self._wanted}: the log of verl's workers has what broke them (Error in _run_prompt)"
            )
