from __future__ import annotations

import pytest

from arl_tangram.errors import InfrastructureError
from arl_tangram.integrations.verl.failures import Failures


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_groups_that_fail_on_and_on_end_the_training() -> None:
    clock = Clock()
    failures = Failures(clock)
    failures.want(4)
    failures.failed(36)
    clock.now_s = 599
    failures.failed(4)
    clock.now_s = 600
    failures.failed(0)
    with pytest.raises(
        InfrastructureError, match="44 groups of rollouts have failed within 600 s, without a batch of 4"
    ):
        failures.failed(4)


def test_a_few_may_fail_for_as_long_as_they_like() -> None:
    clock = Clock()
    failures = Failures(clock)
    failures.want(4)
    for _ in range(39):
        failures.failed(1)
        clock.now_s += 600


def test_a_batch_begins_the_count_anew() -> None:
    clock = Clock()
    failures = Failures(clock)
    failures.want(1)
    for _ in range(20):
        failures.failed(9)
        failures.arrived()
        clock.now_s += 600
