"""What the families of workloads draw alike: log-normal seconds by mean or median, thinking times, numbers of turns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]


def seconds_of_mean(rng: np.random.Generator, mean_s: float, sigma: float) -> float:
    """Draw log-normal seconds by their mean and the standard deviation of their logarithm."""
    return float(rng.lognormal(math.log(mean_s) - sigma**2 / 2, sigma))


def seconds_of_median(rng: np.random.Generator, median_s: float, sigma: float) -> float:
    """Draw log-normal seconds by their median and the standard deviation of their logarithm."""
    return float(rng.lognormal(math.log(median_s), sigma))


def number_of_turns(rng: np.random.Generator, median: float, sigma: float, most: int) -> int:
    """Draw a log-normal whole number from 1 to `most`."""
    return min(most, max(1, round(seconds_of_median(rng, median, sigma))))


def thinking_scale(tools_s: float, pauses: Sequence[Seconds], tool_share: float) -> float:
    """Return what drawn pauses are to be multiplied by, so that tools have their share of the time of all trajectories.

    Args:
        tools_s: seconds of all tools of all trajectories, undisturbed.
        pauses: of each trajectory, in any unit.
        tool_share: above 0 and below 1.
    """
    return tools_s * (1 / tool_share - 1) / sum(float(p.sum()) for p in pauses)
