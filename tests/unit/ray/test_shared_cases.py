"""Cases of real systems, held against a runtime of its own in `tests/cases`, and here against a shared one.

The same tests, with another runtime; those that look at what is held in the very turn in which something ends are left
out, as the owner hears of it a moment later.
"""

from __future__ import annotations

import pytest

import cases.test_cancelling as cancelling
import cases.test_nesting as nesting
import cases.test_order as order
import shared_world
from cases.test_cancelling import (  # noqa: F401 - collected here once more
    test_case_03_a_big_one_that_gives_up_holds_up_nobody_any_more,
    test_case_03_a_group_that_is_cancelled_does_not_keep_others_waiting,
    test_case_03_calls_of_a_trajectory_that_ends_do_not_keep_others_waiting,
    test_case_05_a_promise_counts_as_used_before_the_body_has_begun,
)
from cases.test_nesting import (  # noqa: F401
    test_case_50_a_chain_may_be_deep,
    test_case_50_a_child_is_as_urgent_as_its_parent,
    test_case_50_a_deadline_of_the_child_is_the_childs,
    test_case_50_a_failure_passes_through_and_the_parent_may_go_on,
    test_case_50_a_parent_that_leaves_its_children_takes_them_along,
    test_case_50_in_a_sandbox_the_turn_passes_on,
    test_case_50_many_trajectories_with_nested_calls_share_few_cores,
    test_case_50_of_parents_that_wait_for_each_other_the_youngest_is_refused,
    test_case_50_one_that_must_wait_for_a_parent_does_not_hold_up_its_children,
    test_case_50_parents_that_need_different_things_of_each_other,
    test_case_50_the_timeout_of_a_parent_stands_still_while_it_waits,
    test_case_50_what_a_parent_does_not_need_now_is_for_anybody,
    test_case_50_what_an_ancestor_holds_is_refused_at_once_with_the_chain,
    test_case_50_who_only_waits_for_another_to_end_is_not_refused,
)
from cases.test_order import (  # noqa: F401
    test_case_52_small_ones_do_not_starve_a_big_one_nor_does_it_stop_others,
    test_case_56_equal_ones_start_in_the_order_of_their_arrival,
    test_case_56_who_is_deferred_keeps_its_place,
)


@pytest.fixture(autouse=True)
def _shared(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cancelling, nesting, order):
        monkeypatch.setattr(module, "opened", shared_world.opened)
