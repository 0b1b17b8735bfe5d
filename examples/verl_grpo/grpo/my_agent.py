"""What the training needs of ours: the pools that all its processes share, and how an answer is scored."""

from __future__ import annotations

import re

import arl_tangram as tangram


def pools() -> tangram.Tangram:
    return tangram.Tangram(tangram.LocalPool(cores=2, memory_gib=1))


@tangram.action(cpu=1, timeout=10)
def grade(answer: str, ground_truth: str) -> float:
    """Return 1 if the last number of the answer is the right one, else 0."""
    numbers = re.findall(r"-?\d+", answer)
    return float(numbers[-1:] == [ground_truth])
