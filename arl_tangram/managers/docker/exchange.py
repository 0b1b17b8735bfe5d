"""One command in a session: what has been heard of it, and how long it took."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass

from arl_tangram.managers.capture import Capture

TICK_S = 0.01  # of /proc/uptime
_MINUTES = re.compile(r"(\d+)m([\d.]+)s")


@dataclass(slots=True)
class Exchange:
    """One command in a session, from the moment when its text is sent.

    Attributes:
        stdout: what is kept of its standard output.
        stderr: the same for standard error.
        sent_s: when its text was sent, on the monotonic clock.
        start: when it began, on the monotonic clock and on the clock of the container's machine; None before.
        refusal: number and subject of the error that kept it from starting.
        code: its exit code; None before its end.
        end_s: when it ended, on the monotonic clock.
        duration_s: how long it ran.
        cpu_s: CPU time that it and what it waited for used.
        children: the children that process 1 had at its end; None if that is not known.
        done: when all of it is here; raises SessionError if the session ended instead.
        parts: the reports that it still waits for.
    """

    stdout: Capture
    stderr: Capture
    sent_s: float
    done: asyncio.Future[None]
    parts: set[str]
    start: tuple[float, float] | None = None
    refusal: tuple[int, str] | None = None
    code: int | None = None
    end_s: float = 0.0
    duration_s: float = 0.0
    cpu_s: float = 0.0
    children: frozenset[str] | None = None
    _has_waited: bool = False

    def capture(self, stream: int) -> Capture:
        """Return what is kept of a stream."""
        return self.stderr if stream == 2 else self.stdout

    def begin(self, uptime: float) -> None:
        """Note that the command has begun, now, and at this time of the container's machine."""
        self.start = (time.monotonic(), uptime)
        asyncio.get_running_loop().call_soon(self._wait)

    def _wait(self) -> None:
        self._has_waited = True

    def end(self, code: int, uptime: float, cpu_s: float) -> None:
        """Note that the command has ended, now, and at this time of the container's machine.

        If both reports were there at once, it took at most the time since its text was sent.
        """
        self.end_s = time.monotonic()
        self.code = code
        self.cpu_s = cpu_s
        if self.start is not None:
            begun_s = self.start[0] if self._has_waited else self.sent_s
            heard_s, told_s = self.end_s - begun_s, uptime - self.start[1]
            self.duration_s = max(0.0, min(max(heard_s, told_s - TICK_S), told_s + TICK_S))


def cpu_seconds(line: str) -> float:
    """Return the sum of the times on a line of what the shell's `times` prints, like `0m0.010s 1m2.500s`."""
    return sum(int(minutes) * 60 + float(seconds) for minutes, seconds in _MINUTES.findall(line))
