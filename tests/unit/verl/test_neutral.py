from __future__ import annotations

import pytest

from arl_tangram.integrations.verl.neutral import neutral_scores, reward_columns


def test_a_masked_row_has_the_mean_of_those_of_its_group_that_count() -> None:
    scores = [1.0, 0.0, 0.5, 9.0, 0.0]

    neutral = neutral_scores(scores, [False, True, False, False, True], ["a", "a", "a", "b", "b"])

    assert neutral == {1: pytest.approx(0.75), 4: 9.0}


def test_a_group_of_which_none_counts_is_all_zero() -> None:
    assert neutral_scores([3.0, 4.0], [True, True], ["a", "a"]) == {0: 0.0, 1: 0.0}


def test_rows_that_were_told_less_do_not_change_the_mean_of_a_column() -> None:
    told = [{"score": 1.0, "why": "good"}, {}, {"score": 0.0, "extra": 3}]

    assert reward_columns(told) == {"score": [1.0, 0.5, 0.0], "why": ["good", None, None], "extra": [3.0, 3.0, 3]}
