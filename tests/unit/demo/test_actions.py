"""The plain-function reward, and what the actions declare."""

from __future__ import annotations

import pytest

from arl_tangram.demo import actions
from arl_tangram.demo.actions import edit_distance


@pytest.mark.parametrize(
    ("left", "right", "distance"),
    [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2), ("same", "same", 0)],
)
def test_edit_distance(left: str, right: str, distance: int) -> None:
    assert edit_distance(left, right) == distance
    assert edit_distance(right, left) == distance


def test_similarity_is_a_share_of_the_longer_text() -> None:
    assert actions.similarity.body("kitten", "sitting") == pytest.approx(1 - 3 / 7)
    assert actions.similarity.body("", "") == 1
    assert actions.similarity.body("abc", "xyz") == 0


def test_only_the_suite_is_elastic() -> None:
    costs = {a.spec.name: a.spec.cost for a in (actions.check_out, actions.shell, actions.edit, actions.similarity)}
    assert {cost.cpu for cost in costs.values()} == {1000}
    assert actions.run_suite.spec.cost.minimum_cpu == 1000
    assert actions.search.spec.cost.quota == (("search", 1000),)
