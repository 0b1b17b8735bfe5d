"""How long things may take that an engine is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things may take, in seconds.

    Attributes:
        transition_s: the server's answer to being told to sleep or to wake.
        settle_s: until memory that was given up is free, after the answer.
        start_s: until a server that was started is ready.
        stop_s: until one that is asked to end has ended; then it is killed.
    """

    transition_s: float
    settle_s: float
    start_s: float
    stop_s: float
