"""How long the model thinks before each turn: the one thing in the demo that is waited for, not done."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Protocol

SIGMA = 0.9
"""Spread of the thinking times: standard deviation of their logarithm.

Source: the pauses of more than half a second between the tool calls of 158 recorded coding
trajectories (github.com/eunomia-bpf/agentcgroup): 6,243 pauses, standard deviation of the log 0.90.
"""

Thinking = tuple[tuple[float, ...], ...]
"""Seconds per trajectory and turn."""


class Thinker(Protocol):
    """A trajectory whose model thinks before each turn."""

    @property
    def index(self) -> int:
        """Its number, from 0."""
        ...

    @property
    def turns(self) -> Sequence[object]:
        """Its turns."""
        ...


def draw_thinking(seed: int, scripts: Sequence[Thinker]) -> Thinking:
    """Draw log-normal thinking times, scaled so that a trajectory thinks 1 s in the mean over all."""
    draws = [_draw(random.Random(f"{seed}/thinking/{s.index}"), len(s.turns)) for s in scripts]
    mean = math.fsum(math.fsum(turns) for turns in draws) / len(draws)
    return tuple(tuple(pause / mean for pause in turns) for turns in draws)


def scale(thinking: Thinking, mean_s: float) -> Thinking:
    """Return the same draws for a mean of `mean_s` seconds per trajectory."""
    return tuple(tuple(pause * mean_s for pause in turns) for turns in thinking)


def thinking_for(tools_s: float, tool_share: float) -> float:
    """Return the seconds of thinking beside which `tools_s` take `tool_share` (0 to 1) of the time."""
    return tools_s * (1 / tool_share - 1)


def _draw(rng: random.Random, turns: int) -> list[float]:
    return [rng.lognormvariate(0, SIGMA) for _ in range(turns)]
