"""Which guards of one container have killed everything in it, and when, as they have left word inside.

A guard that fires leaves a file whose name only it and this process know; a command cannot lay the blame on it. Its
content is the time, on the clock of the container's machine: it has killed what had begun before.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
from dataclasses import dataclass

from arl_tangram.managers.docker import script

KEPT_S = 60.0  # after the end of a session, in which another one's end must have been explained


@dataclass(eq=False, slots=True)
class Guard:
    """The guard of one session.

    Attributes:
        path: the file that it leaves.
        ended_s: when its session ended, on the clock of the loop; None before.
    """

    path: str
    ended_s: float | None = None

    def end(self) -> None:
        """Note that its session has ended, now."""
        if self.ended_s is None:
            self.ended_s = asyncio.get_running_loop().time()


class Guards:
    """The guards of one container."""

    def __init__(self) -> None:
        self._guards: list[Guard] = []
        self._fired = -math.inf
        self.reading = asyncio.Lock()

    def add(self) -> Guard:
        """Return the guard for a new session."""
        limit_s = asyncio.get_running_loop().time() - KEPT_S
        self._guards = [each for each in self._guards if each.ended_s is None or each.ended_s > limit_s]
        guard = Guard(f"{script.GUARD_FILES}{secrets.token_hex(16)}")
        self._guards.append(guard)
        return guard

    def question(self) -> str:
        """Return a script of ours that prints what they have left, for `hear`; hold `reading` until then."""
        return script.left_by_guards([guard.path for guard in self._guards])

    def hear(self, answer: bytes) -> None:
        """Take what that script has printed."""
        for line in answer.splitlines():
            with contextlib.suppress(ValueError):
                self._fired = max(self._fired, float(line))

    def has_killed(self, start: float | None) -> bool:
        """Whether one has fired since a command began, at this time of the container's machine; None: not heard."""
        return self._fired > -math.inf if start is None else self._fired >= start
