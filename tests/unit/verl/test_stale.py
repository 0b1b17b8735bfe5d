from __future__ import annotations

from arl_tangram.integrations.verl.stale import StaleGroups


def test_a_group_is_stale_when_verl_would_drop_it_and_then_once() -> None:
    groups = StaleGroups(2)

    assert groups.step(["a", "b"], 1) == []
    assert groups.step(["c"], 2) == []  # spans 2 versions
    assert groups.step([], 3) == ["a", "b"]
    assert groups.step([], 3) == []
    assert groups.step(["d"], 5) == ["c"]


def test_a_group_that_is_dispatched_again_begins_anew() -> None:
    groups = StaleGroups(1)
    groups.step(["a", "b"], 1)

    assert groups.step(["a"], 2) == ["b"]
    assert groups.step([], 2) == []
    assert groups.step([], 3) == ["a"]


def test_what_has_ended_is_not_stale() -> None:
    groups = StaleGroups(1)
    groups.step(["a", "b"], 1)
    groups.forget(["a", "never begun"])

    assert groups.step([], 2) == ["b"]


def test_without_a_threshold_nothing_is_stale_or_remembered() -> None:
    groups = StaleGroups(None)

    assert groups.step(["a"], 1) == groups.step([], 100) == []
    assert len(groups) == 0


def test_what_is_remembered_does_not_grow_with_the_run() -> None:
    groups = StaleGroups(3)

    for step in range(100):
        groups.step([f"{step}-{number}" for number in range(8)], step)

    assert len(groups) == 3 * 8
