"""What one running action has been through whose cores change: how often they did, and for how long it had none."""

from __future__ import annotations

from collections.abc import Callable


class Switching:
    """The changes of the cores of one running action; made with the first of them.

    Seconds in which it waits for actions that it called count as those, also where it has no cores meanwhile.

    Attributes:
        milli_cores: what it was granted at its start.
        switches: how often that was changed since, down to none and back included.
        is_suspended: whether it has none.

    Args:
        milli_cores: what it was granted at its start.
        time: tells the time of the loop.
    """

    __slots__ = ("_before_s", "_is_away", "_past_s", "_since_s", "_time", "is_suspended", "milli_cores", "switches")

    def __init__(self, milli_cores: int, time: Callable[[], float]) -> None:
        self.milli_cores = milli_cores
        self.switches = 0
        self.is_suspended = False
        self._time = time
        self._is_away = False
        self._since_s: float | None = None
        self._past_s = 0.0
        self._before_s = 0.0

    def switch(self, milli_cores: int) -> bool:
        """It has so many from now on; return whether that suspends it or ends that."""
        self.switches += 1
        was_suspended, self.is_suspended = self.is_suspended, milli_cores == 0
        self._count()
        return self.is_suspended is not was_suspended

    def leave(self) -> None:
        """Its body waits for actions that it called."""
        self._is_away = True
        self._count()

    def come_back(self) -> None:
        """Its body does not wait for them any more."""
        self._is_away = False
        self._count()

    def begin(self) -> None:
        """Its body begins now."""
        self._before_s = self.suspended_s(self._time())

    def suspended_s(self, now_s: float) -> float:
        """Return the seconds for which it was suspended until now."""
        return self._past_s if self._since_s is None else self._past_s + now_s - self._since_s

    def body_suspended_s(self, now_s: float) -> float:
        """Return those of them in which its body had begun."""
        return self.suspended_s(now_s) - self._before_s

    def _count(self) -> None:
        now_s = self._time()
        self._past_s = self.suspended_s(now_s)
        self._since_s = now_s if self.is_suspended and not self._is_away else None
