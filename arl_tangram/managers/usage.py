"""How long the commands of an action took, and how long what stood around them. Pure."""

from __future__ import annotations

from arl_tangram.managers.manager import ExecUsage

Interval = tuple[float, float]

_NOTHING = ExecUsage(0.0, 0.0)


class UsageMeter:
    """Adds up the calls of one action; calls and commands that overlap count once."""

    def __init__(self) -> None:
        self._inside: list[Interval] = []
        self._own: list[Interval] = []
        self._cpu_s = 0.0

    def add_call(self, start_s: float, end_s: float) -> None:
        """Count the time inside one `exec`."""
        _merge(self._inside, (start_s, end_s))

    def add_command(self, start_s: float, end_s: float, cpu_s: float) -> None:
        """Count the command of a call, whichever way it ended."""
        _merge(self._own, (start_s, end_s))
        self._cpu_s += cpu_s

    @property
    def usage(self) -> ExecUsage:
        """What was counted so far."""
        if not self._inside and not self._own:
            return _NOTHING
        return ExecUsage(max(0.0, _length(self._inside) - _length(self._own)), self._cpu_s)


def _merge(intervals: list[Interval], new: Interval) -> None:
    """Insert into disjoint intervals in ascending order; what comes last is inserted fastest."""
    start, end = new
    place = len(intervals)
    while place > 0 and intervals[place - 1][1] >= start:
        place -= 1
    stop = place
    while stop < len(intervals) and intervals[stop][0] <= end:
        start, end = min(start, intervals[stop][0]), max(end, intervals[stop][1])
        stop += 1
    intervals[place:stop] = [(start, end)]


def _length(intervals: list[Interval]) -> float:
    return sum(end - start for start, end in intervals)
