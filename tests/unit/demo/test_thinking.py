"""The thinking times: drawn once from a seed, scaled to a mean, log-normal."""

from __future__ import annotations

import math
import statistics

import pytest

from arl_tangram.demo.agents import draw_scripts
from arl_tangram.demo.thinking import SIGMA, draw_thinking, scale, thinking_for

SCRIPTS = draw_scripts(0, 16)


def test_the_same_seed_gives_the_same_draws() -> None:
    assert draw_thinking(1, SCRIPTS) == draw_thinking(1, SCRIPTS)
    assert draw_thinking(1, SCRIPTS) != draw_thinking(2, SCRIPTS)


def test_every_turn_has_its_pause_and_the_mean_trajectory_thinks_a_second() -> None:
    drawn = draw_thinking(1, SCRIPTS)
    assert [len(turns) for turns in drawn] == [len(s.turns) for s in SCRIPTS]
    assert all(pause > 0 for turns in drawn for pause in turns)
    assert statistics.fmean(math.fsum(turns) for turns in drawn) == pytest.approx(1)


def test_scaling_keeps_the_proportions() -> None:
    drawn = draw_thinking(1, SCRIPTS)
    scaled = scale(drawn, 3.5)
    assert statistics.fmean(math.fsum(turns) for turns in scaled) == pytest.approx(3.5)
    assert scaled[2][1] / drawn[2][1] == pytest.approx(3.5)


def test_the_logarithms_spread_as_stated() -> None:
    many = draw_thinking(5, draw_scripts(5, 400))
    logs = [math.log(pause) for turns in many for pause in turns]
    assert statistics.stdev(logs) == pytest.approx(SIGMA, rel=0.05)


@pytest.mark.parametrize(("share", "expected_s"), [(0.5, 3), (0.1, 27), (0.47, 3 / 0.47 - 3)])
def test_tools_take_the_share_that_is_asked(share: float, expected_s: float) -> None:
    assert thinking_for(3, share) == pytest.approx(expected_s)
    assert 3 / (3 + thinking_for(3, share)) == pytest.approx(share)
