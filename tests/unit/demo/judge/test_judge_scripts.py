"""What the scored trajectories do: the same for a seed, and shared out fairly to the static slots."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from arl_tangram.demo.judge.catalogue import LAYERS, LENGTH, SERVICES, SLOTS, TEACHERS, VOCABULARY, size_of, slot_mib
from arl_tangram.demo.judge.scripts import TRAJECTORIES, TURNS, draw_scripts, split, uses

SCRIPTS = draw_scripts(0)


def test_the_same_seed_gives_the_same_scripts() -> None:
    assert draw_scripts(3) == draw_scripts(3)
    assert draw_scripts(3) != draw_scripts(4)


def test_each_turn_is_scored_by_the_teacher_of_the_domain_and_the_end_by_judge_and_reward() -> None:
    assert len(SCRIPTS) == TRAJECTORIES
    for script in SCRIPTS:
        assert len(script.turns) == TURNS
        assert {turn.scored.services[0] for turn in script.turns} == {TEACHERS[script.domain]}
        assert sum("judge" in turn.scored.services for turn in script.turns) == TURNS // 3
        assert script.last.services == ("judge", "reward")
        assert all(len(each.text) == LENGTH for each in script.scored)
        assert all(0 <= token < VOCABULARY for each in script.scored for token in each.text)


def test_calls_count_the_files_the_tools_and_the_scores() -> None:
    script = SCRIPTS[0]
    assert script.calls == 1 + TURNS + (TURNS + TURNS // 3) + 2
    assert sum(uses(SCRIPTS).values()) == sum(len(each.services) for script in SCRIPTS for each in script.scored)


def test_a_quick_run_is_a_small_part() -> None:
    quick = draw_scripts(0, quick=True)
    assert sum(script.calls for script in quick) < sum(script.calls for script in SCRIPTS) / 5


def test_there_is_room_for_any_two_services_and_for_no_three() -> None:
    room = SLOTS * (slot_mib() << 20)
    assert len(SERVICES) >= 6
    assert all(sum(map(size_of, pair)) <= room for pair in combinations(SERVICES, 2))
    assert all(sum(map(size_of, three)) > room for three in combinations(SERVICES, 3))


@pytest.mark.parametrize("seed", range(5))
def test_the_static_slots_have_about_the_same_work(seed: int) -> None:
    counts = uses(draw_scripts(seed))
    shares = split(counts, SLOTS)
    assert Counter(name for share in shares for name in share) == Counter(SERVICES)
    work = [sum(counts[name] * LAYERS[name] for name in share) for share in shares]
    assert max(work) <= 1.25 * min(work)
