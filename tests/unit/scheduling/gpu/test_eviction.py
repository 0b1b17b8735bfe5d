"""What residents are worth to each policy, in numbers."""

from __future__ import annotations

import pytest

from arl_tangram.model.gpu import Chunk, Instance
from arl_tangram.scheduling.gpu.eviction import WINDOW, Gdsf, Loss, Lru, Resident, make_eviction

GIB = 2**30


def resident(name: str, *, restore_s: float = 1.0, gib: int = 1, dop: int = 1) -> Resident:
    return Resident(Instance(name, dop), Chunk(0, dop), gib * GIB, restore_s)


A, B, C = resident("a"), resident("b"), resident("c")


def use(policy: Loss | Lru | Gdsf, *uses: Resident) -> None:
    for one in uses:
        policy.used(one)
        policy.left(one.instance)


def test_policies_are_found_by_name() -> None:
    assert [type(make_eviction(name)) for name in ("loss", "lru", "gdsf")] == [Loss, Lru, Gdsf]
    assert [make_eviction(name).in_seconds for name in ("loss", "lru", "gdsf")] == [True, False, False]
    with pytest.raises(ValueError, match="no eviction policy 'fifo'; there are loss, lru, gdsf"):
        make_eviction("fifo")  # type: ignore[arg-type]


class TestLoss:
    def test_who_waits_is_worth_its_restore_time_over_its_place_in_the_queue(self) -> None:
        slow = resident("b", restore_s=6.0)
        assert Loss().values([A, slow, C], ["x", "b", "a", "b"]) == [1 / 3, 3.0, 0.0]

    def test_who_does_not_wait_is_worth_its_share_of_the_requests(self) -> None:
        policy = Loss(half_life=1)
        use(policy, A, B, B)
        assert policy.values([A, B, C], []) == [0.125, 0.75, 0.0]

    def test_all_shares_together_are_at_most_one(self) -> None:
        policy = Loss(half_life=10)
        use(policy, *[A, B, C, B] * 50)
        assert sum(policy.values([A, B, C], [])) == pytest.approx(1)
        assert policy.values([B], [])[0] == pytest.approx(0.5, abs=0.05)

    def test_who_does_not_wait_comes_after_all_that_do(self) -> None:
        policy = Loss(half_life=1)
        use(policy, A, A, A)
        assert policy.values([A], [])[0] == pytest.approx(0.875)
        assert policy.values([A], ["b"]) == [1 / 2]
        assert policy.values([A], ["b"] * 9) == [1 / 10]
        assert policy.values([A], ["b"] * 1000) == [1 / (WINDOW + 1)]

    def test_it_looks_no_further_than_its_window(self) -> None:
        policy = Loss()
        assert policy.values([A], ["b"] * (WINDOW - 1) + ["a"]) == [1 / WINDOW]
        assert policy.values([A], ["b"] * WINDOW + ["a"]) == [0.0]

    def test_a_use_counts_half_after_a_half_life(self) -> None:
        policy = Loss(half_life=4)
        use(policy, A)
        (before,) = policy.values([A], [])
        use(policy, B, B, B, B)
        assert policy.values([A], []) == [pytest.approx(before / 2)]

    def test_how_often_it_was_used_outlives_an_eviction(self) -> None:
        policy = Loss()
        use(policy, A, B)
        before = policy.values([A, B], [])
        policy.evicted(A.instance)
        assert policy.values([A, B], []) == before

    def test_each_dop_is_used_by_itself_and_waited_for_together(self) -> None:
        one, two = resident("a"), resident("a", dop=2)
        policy = Loss()
        use(policy, two)
        assert policy.values([one, two], [])[0] == 0
        assert policy.values([one, two], [])[1] > 0
        assert policy.values([one, two], ["a"]) == [1.0, 1.0]


class TestLru:
    def test_one_that_is_more_recent_is_worth_more_than_all_that_are_older(self) -> None:
        policy = Lru()
        use(policy, C, A, B)
        a, b, c = policy.values([A, B, C], [])
        assert c < a < b
        assert b > a + c

    def test_the_age_counts_from_the_end_of_the_last_use(self) -> None:
        """Case 118: idle time must not start when a long request does."""
        policy = Lru()
        policy.used(A)
        use(policy, B)
        policy.left(A.instance)
        a, b = policy.values([A, B], [])
        assert a > b

    def test_what_was_never_used_goes_first_and_so_does_what_was_evicted(self) -> None:
        policy = Lru()
        use(policy, A, B)
        assert policy.values([A, C], [])[1] < policy.values([A, C], [])[0]
        policy.evicted(B.instance)
        a, b = policy.values([A, B], [])
        assert b < a

    def test_thousands_are_no_overflow(self) -> None:
        many = [resident(str(number)) for number in range(3000)]
        policy = Lru()
        use(policy, *many)
        values = policy.values(many, [])
        assert values == sorted(values)
        assert 0 <= values[0] <= values[-1] <= 1
        assert len(set(values[-1000:])) == 1000, "only the very oldest are alike"

    def test_the_queue_makes_no_difference(self) -> None:
        policy = Lru()
        use(policy, A, B)
        assert policy.values([A, B], ["a", "a"]) == policy.values([A, B], [])


class TestGdsf:
    def test_credit_is_uses_times_restore_time(self) -> None:
        policy = Gdsf()
        slow = resident("b", restore_s=5.0)
        use(policy, A, slow, A)
        assert policy.values([A, slow], []) == [pytest.approx(2), pytest.approx(5)]

    def test_an_eviction_takes_as_much_from_each_byte_of_the_others(self) -> None:
        policy = Gdsf()
        large, dear = resident("large", gib=4), resident("dear", restore_s=3.0, gib=2)
        use(policy, A, large, dear)
        policy.evicted(large.instance)  # 1 s for 4 GiB
        assert policy.values([A, dear], []) == [pytest.approx(0.75), pytest.approx(2.5)]

    def test_what_nobody_uses_any_more_goes_in_the_end(self) -> None:
        policy = Gdsf()
        once = resident("once", restore_s=3.0)
        use(policy, once)
        for _ in range(10):
            use(policy, A)
            policy.evicted(A.instance)
        assert policy.values([once], []) == [pytest.approx(0)]

    def test_a_new_life_begins_with_one_use(self) -> None:
        policy = Gdsf()
        use(policy, A, A, A)
        policy.evicted(A.instance)
        use(policy, A)
        assert policy.values([A], []) == [pytest.approx(1)]

    def test_all_devices_of_a_chunk_count_for_the_size(self) -> None:
        policy = Gdsf()
        wide = resident("wide", dop=4)
        use(policy, A, wide)
        policy.evicted(A.instance)  # 1 s for 1 GiB: more than the 1 s of 4 GiB that is left
        assert policy.values([wide], []) == [0.0]
