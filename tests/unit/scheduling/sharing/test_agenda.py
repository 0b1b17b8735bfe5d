"""Which nodes are to be looked at, and when."""

from __future__ import annotations

from math import inf

import pytest

from arl_tangram.scheduling.sharing.agenda import Agenda, nodes_of


def test_a_node_is_due_from_its_time_on_until_another_is_said() -> None:
    agenda = Agenda()
    agenda.look_at(3, 2.0)
    agenda.look_at(1, 1.0)
    assert agenda.due(0.5) == 0
    assert agenda.due(1.0) == 1 << 1
    assert agenda.due(2.0) == 1 << 1 | 1 << 3
    agenda.look_at(1, 5.0)
    assert agenda.due(2.0) == 1 << 3
    agenda.look_at(3, inf)
    assert agenda.due(4.0) == 0
    assert agenda.next_s() == 5.0


def test_the_next_time_is_that_of_the_first_node_also_if_it_is_over() -> None:
    agenda = Agenda()
    assert agenda.next_s() is None
    agenda.look_at(1, 3.0)
    agenda.look_at(2, 4.0)
    agenda.due(3.5)
    assert agenda.next_s() == 3.0
    agenda.look_at(1, 9.0)
    assert agenda.next_s() == 4.0


@pytest.mark.parametrize("again_s", [1.0, 7.0])
def test_only_the_time_that_was_said_last_counts(again_s: float) -> None:
    agenda = Agenda()
    agenda.look_at(2, 3.0)
    agenda.look_at(2, again_s)
    assert agenda.next_s() == again_s
    assert agenda.due(6.0) == (1 << 2 if again_s <= 6.0 else 0)


def test_one_that_is_due_can_have_the_same_time_again() -> None:
    agenda = Agenda()
    agenda.look_at(2, 3.0)
    agenda.due(3.0)
    agenda.look_at(2, 3.0)
    assert agenda.next_s() == 3.0
    assert agenda.due(3.0) == 1 << 2


def test_times_that_were_replaced_take_no_room() -> None:
    agenda = Agenda()
    for at in range(10_000):
        agenda.look_at(at % 2, 1e9 - at)
    assert len(agenda._heap) <= 64 + 2 * 2
    assert agenda.next_s() == 1e9 - 9_999
    assert agenda.due(2e9) == 0b11


def test_bits_are_told_in_order() -> None:
    assert list(nodes_of(1 << 900 | 0b1010)) == [1, 3, 900]
    assert not list(nodes_of(0))
