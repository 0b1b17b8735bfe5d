from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.managers.cores import Cores, Placement


def ceil(milli_cores: int) -> int:
    return -(-milli_cores // 1000)


def test_whole_cores_come_from_one_node_if_one_has_them() -> None:
    cores = Cores([[0, 1, 2, 3], [4, 5]])
    assert cores.take(1, 2000)[1].core_ids == (4, 5)
    assert cores.take(2, 3000)[2].core_ids == (0, 1, 2)


def test_whole_cores_span_nodes_if_none_has_them() -> None:
    assert Cores([[0, 1], [2, 3]]).take(1, 3000)[1].core_ids == (0, 1, 2)


def test_fractions_share_a_core_and_each_shows_its_ceiling() -> None:
    cores = Cores([[0, 1, 2]])
    assert cores.take(1, 500)[1].core_ids == (0,)
    assert cores.take(2, 500)[2].core_ids == (0,)
    assert cores.take(3, 1500)[3].core_ids == (1, 2)
    assert cores.free == 0


def test_a_fraction_that_fits_nowhere_floats() -> None:
    cores = Cores([[0, 1]])
    cores.take(1, 700)
    assert cores.take(2, 600) == {2: cores.placement(2)}
    moved = cores.take(3, 700)
    assert moved[3].core_ids == (0, 1)  # 300 + 400 milli-cores are left on the two


def test_a_shared_core_that_is_given_up_moves_who_was_on_it() -> None:
    cores = Cores([[0, 1]])
    cores.take(1, 600)
    cores.take(2, 600)
    assert (cores.placement(1).core_ids, cores.placement(2).core_ids) == ((0,), (1,))
    moved = cores.give_back(1)
    assert moved[2].core_ids == (0,)
    assert cores.take(3, 1000)[3].core_ids == (1,)


def test_giving_back_twice_changes_nothing() -> None:
    cores = Cores([[0, 1]])
    cores.take(1, 1000)
    cores.give_back(1)
    assert cores.give_back(1) == {}
    assert cores.free == 2


@pytest.mark.parametrize("milli_cores", [0, -1, 2001, 3000])
def test_what_does_not_fit_changes_nothing(milli_cores: int) -> None:
    cores = Cores([[0, 1]])
    with pytest.raises(ValueError, match="asked"):
        cores.take(1, milli_cores)
    assert cores.free == 2


@given(
    nodes=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 6000), st.booleans()), max_size=60),
)
def test_counting_milli_cores_is_exact(nodes: list[int], steps: list[tuple[bool, int, bool]]) -> None:
    """Whatever the order: a grant fits exactly if the count says so, and no core is promised twice."""
    ids = iter(range(sum(nodes)))
    topology = [[next(ids) for _ in range(count)] for count in nodes]
    cores, capacity = Cores(topology), sum(nodes)
    held: dict[int, int] = {}
    for key, (giving, milli_cores, whole) in enumerate(steps):
        asked = max(1, milli_cores // 1000) * 1000 if whole else milli_cores
        if giving and held:
            first = min(held)
            del held[first]
            cores.give_back(first)
        else:
            whole_cores = sum(grant for grant in held.values() if grant % 1000 == 0) // 1000
            fractions = sum(grant for grant in held.values() if grant % 1000)
            after = (whole_cores + asked // 1000, fractions) if asked % 1000 == 0 else (whole_cores, fractions + asked)
            if after[0] + ceil(after[1]) <= capacity:
                cores.take(key, asked)
                held[key] = asked
            else:
                with pytest.raises(ValueError, match="asked"):
                    cores.take(key, asked)
        whole_ids = [core for key, grant in held.items() if grant % 1000 == 0 for core in cores.placement(key).core_ids]
        shared_ids = {core for key, grant in held.items() if grant % 1000 for core in cores.placement(key).core_ids}
        assert len(whole_ids) == len(set(whole_ids))
        assert not set(whole_ids) & shared_ids
        assert len(shared_ids) <= ceil(sum(grant for grant in held.values() if grant % 1000))
        assert cores.free == capacity - len(whole_ids) - ceil(sum(grant for grant in held.values() if grant % 1000))
        assert all(len(cores.placement(key).core_ids) >= ceil(grant) for key, grant in held.items())


def test_a_pool_grows_on_its_first_nodes_and_shrinks_from_its_last() -> None:
    cores = Cores([[0, 1], [2, 3]], 1)
    assert cores.core_ids == (0,)
    cores.resize(3)
    assert cores.core_ids == (0, 1, 2)
    cores.take(1, 2000)
    cores.resize(2)
    assert cores.core_ids == (0, 1)
    assert (cores.free, cores.capacity) == (0, 2)


def test_cores_in_use_leave_when_they_come_back_and_stay_if_the_pool_grows_again() -> None:
    cores = Cores([[0, 1, 2]])
    for key in range(3):
        cores.take(key, 1000)
    cores.resize(1)
    cores.give_back(0)
    assert (cores.core_ids, cores.free) == ((1, 2), 0)
    cores.resize(2)
    cores.give_back(1)
    assert cores.free == 1
    assert cores.take(3, 1000)[3].core_ids == (1,)


def test_nothing_is_granted_while_too_much_is_in_use() -> None:
    cores = Cores([[0, 1]])
    cores.take(1, 1000)
    cores.take(2, 300)
    cores.resize(1)
    with pytest.raises(ValueError, match="1 cores too many"):
        cores.take(3, 100)
    cores.give_back(1)
    assert cores.take(3, 700)[3].core_ids == (1,)


def test_what_was_lent_and_cannot_come_back_takes_nothing_from_beyond_the_pool() -> None:
    cores = Cores([[0, 1], [2]])
    cores.take(1, 1000)
    cores.resize(1)
    with pytest.raises(ValueError, match="are free"):
        cores.take(2, 3000, beyond=True)
    assert cores.free == 0
    cores.give_back(1)
    assert (cores.free, cores.capacity) == (1, 1)


def test_cores_that_were_lent_come_back_though_the_pool_is_smaller_now() -> None:
    cores = Cores([[0, 1], [2, 3]])
    cores.resize(1)
    assert cores.take(1, 3000, beyond=True)[1].core_ids == (0, 1, 2)
    assert (cores.free, cores.capacity) == (0, 1)
    assert cores.take(2, 500, beyond=True)[2].core_ids == (3,)
    with pytest.raises(ValueError, match="are free"):
        cores.take(3, 1000, beyond=True)
    cores.give_back(1)
    cores.give_back(2)
    assert (cores.free, cores.core_ids) == (1, (3,))


@pytest.mark.parametrize("capacity", [0, -1, 3])
def test_a_size_that_there_is_not_changes_nothing(capacity: int) -> None:
    cores = Cores([[0, 1]])
    with pytest.raises(ValueError, match="of 2 that there are"):
        cores.resize(capacity)
    assert (cores.capacity, cores.free) == (2, 2)


@given(
    nodes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(1, 5000)),
            st.tuples(st.just("take"), st.integers(1, 5).map(lambda cores: cores * 1000)),
            st.tuples(st.just("give back"), st.integers(0, 50)),
            st.tuples(st.just("resize"), st.integers(1, 12)),
        ),
        max_size=60,
    ),
)
def test_a_resized_pool_grants_what_a_simple_account_says(nodes: list[int], steps: list[tuple[str, int]]) -> None:
    """The account: what is granted fits into the size, or, while more than that is in use, nothing is granted."""
    ids = iter(range(sum(nodes)))
    topology = [[next(ids) for _ in range(count)] for count in nodes]
    there_are = sum(nodes)
    cores, capacity = Cores(topology), there_are
    held: dict[int, int] = {}
    for key, (what, number) in enumerate(steps):
        if what == "resize":
            capacity = min(number, there_are)
            before = {other: cores.placement(other) for other in held}
            cores.resize(capacity)
            assert {other: cores.placement(other) for other in held} == before, "nothing is taken from who has it"
        elif what == "give back":
            if held:
                gone = sorted(held)[number % len(held)]
                del held[gone]
                cores.give_back(gone)
        elif sum(held.values()) <= capacity * 1000 and needed([*held.values(), number]) <= capacity:
            cores.take(key, number)
            held[key] = number
        else:
            with pytest.raises(ValueError, match="asked"):
                cores.take(key, number)
        in_use = needed(held.values())
        assert cores.capacity == capacity
        assert cores.free == max(capacity, in_use) - in_use
        assert len(cores.core_ids) == max(capacity, in_use)
        assert {core for other in held for core in cores.placement(other).core_ids} <= set(cores.core_ids)
        whole = [core for other, grant in held.items() if grant % 1000 == 0 for core in cores.placement(other).core_ids]
        assert len(whole) == len(set(whole))
    for key in list(held):
        cores.give_back(key)
    assert cores.free == capacity
    assert len(cores.core_ids) == capacity


def test_a_core_that_goes_offline_is_given_to_nobody_until_it_is_back() -> None:
    cores = Cores([range(8)])
    cores.take(1, 2000)
    cores.take(2, 2000)
    cores.set_available((0, *range(2, 8)))
    assert (cores.capacity, cores.free) == (7, 3), "one of the four in use is away, and counts as in use"
    cores.give_back(1)
    assert (cores.capacity, cores.free) == (7, 5)
    assert cores.take(3, 5000)[3].core_ids == (0, 4, 5, 6, 7)
    cores.set_available(range(8))
    assert (cores.capacity, cores.free) == (8, 1)
    assert cores.take(4, 1000)[4].core_ids == (1,)


def test_a_spare_core_takes_the_place_of_one_that_is_offline() -> None:
    cores = Cores([range(4)], 2)
    cores.set_available((0, 2, 3))
    assert (cores.capacity, cores.core_ids) == (2, (0, 2))
    cores.set_available(range(4))
    assert (cores.capacity, cores.core_ids) == (2, (0, 2)), "the one that came back is spare now"


def test_what_is_idle_is_not_put_on_cores_that_are_offline_though_they_are_in_use() -> None:
    cores = Cores([range(4)], 2)
    cores.take(1, 1000)
    cores.set_available((1, 2, 3))
    assert (cores.placement(1).core_ids, cores.core_ids) == ((0,), (1,))
    cores.take(2, 1000)
    cores.set_available((3,))
    assert cores.core_ids == (3,), "none of its own is online"
    cores.set_available(range(4))
    assert cores.core_ids == (0, 1)


def test_fractions_move_away_from_a_core_that_is_offline_as_soon_as_another_is_there() -> None:
    cores = Cores([range(2)])
    cores.take(1, 500)
    cores.take(2, 1000)
    assert cores.set_available((1,)) == {}
    with pytest.raises(ValueError, match="too many"):
        cores.take(3, 200)
    moved = cores.give_back(2)
    assert moved[1].core_ids == (1,)
    assert cores.take(3, 200)[3].core_ids == (1,)
    assert cores.set_available((0,))[1].core_ids == (0,)


def test_a_pool_without_any_core_online_stays_as_it_is() -> None:
    cores = Cores([range(2)])
    assert cores.set_available((7,)) == {}
    assert (cores.capacity, cores.free) == (2, 2)


@given(
    declared=st.integers(1, 6),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(1, 4000)),
            st.tuples(st.just("take"), st.integers(1, 4).map(lambda cores: cores * 1000)),
            st.tuples(st.just("give back"), st.integers(0, 50)),
            st.tuples(st.just("online"), st.integers(1, 63)),
            st.tuples(st.just("resize"), st.integers(1, 6)),
        ),
        max_size=60,
    ),
)
def test_what_is_offline_is_never_given_and_the_account_stays_right(
    declared: int, steps: list[tuple[str, int]]
) -> None:
    cores = Cores([[0, 1, 2], [3, 4, 5]], declared)
    online = set(range(6))
    held: dict[int, int] = {}
    for key, (what, number) in enumerate(steps):
        capacity = min(declared, len(online))
        if what == "online":
            online = {core for core in range(6) if number >> core & 1}
            whole = {other: cores.placement(other) for other, grant in held.items() if grant % 1000 == 0}
            cores.set_available(online)
            assert {other: cores.placement(other) for other in whole} == whole, "nothing is taken from who has it"
        elif what == "resize":
            declared = number
            cores.resize(declared)
        elif what == "give back" and held:
            gone = sorted(held)[number % len(held)]
            del held[gone]
            cores.give_back(gone)
        elif what == "take" and needed([*held.values(), number]) <= capacity:
            assert set(cores.take(key, number)[key].core_ids) <= online
            held[key] = number
        capacity, in_use = min(declared, len(online)), needed(held.values())
        assert cores.capacity == capacity
        assert cores.free == max(0, capacity - in_use)
        used = {core for other in held for core in cores.placement(other).core_ids}
        assert used & online <= set(cores.core_ids) <= online
        assert len(cores.core_ids) == (max(capacity, in_use) - len(used - online) or len(online))
        ids = [core for other, grant in held.items() if grant % 1000 == 0 for core in cores.placement(other).core_ids]
        assert len(ids) == len(set(ids))


def needed(grants: Iterable[int]) -> int:
    """Return the cores that grants take: fractions share, whole ones do not."""
    listed = list(grants)
    fractions = sum(grant for grant in listed if grant % 1000)
    return sum(grant for grant in listed if grant % 1000 == 0) // 1000 + ceil(fractions)


def test_a_grant_grows_on_its_own_node_and_gives_up_the_far_cores_first() -> None:
    cores = Cores([[0, 1, 2, 3], [4, 5, 6, 7]])
    cores.take(1, 1000)
    cores.take(2, 3000)
    assert cores.placement(2).core_ids == (1, 2, 3)
    assert cores.change(2, 1000)[2].core_ids == (1,)
    assert cores.change(1, 2000)[1].core_ids == (0, 2), "near, though the other node has more"
    assert cores.change(1, 5000)[1].core_ids == (0, 2, 3, 4, 5)
    assert cores.change(1, 4000)[1].core_ids == (0, 2, 3, 4)
    assert cores.change(1, 3000)[1].core_ids == (0, 2, 3)
    assert cores.free == 4


def test_a_grant_moves_over_to_the_node_where_most_of_it_is() -> None:
    cores = Cores([[0, 1], [2, 3, 4, 5]])
    cores.take(1, 2000)
    assert cores.placement(1).core_ids == (0, 1)
    assert cores.change(1, 5000)[1].core_ids == (0, 1, 2, 3, 4)
    assert cores.change(1, 3000)[1].core_ids == (2, 3, 4)
    assert cores.change(1, 1000)[1].core_ids == (2,)


def test_a_grant_of_none_stays_known_and_gets_cores_wherever_there_are_some() -> None:
    cores = Cores([[0, 1, 2, 3], [4, 5]])
    cores.take(1, 4000)
    placed = cores.change(1, 0)[1]
    assert (placed.core_ids, placed.milli_cores, placed.is_whole, cores.free) == ((), 0, True, 6)
    assert cores.change(1, 0)[1].core_ids == ()
    assert cores.take(2, 3000)[2].core_ids == (0, 1, 2)
    assert cores.change(1, 2000)[1].core_ids == (4, 5), "the smallest node that has room, as for a new grant"
    cores.change(1, 0)
    assert cores.give_back(1) == {}
    assert cores.free == 3
    with pytest.raises(KeyError):
        cores.change(1, 1000)


@pytest.mark.parametrize(("key", "milli_cores"), [(1, 4000), (1, 1500), (1, -1000), (2, 1000), (2, 0)])
def test_a_change_that_there_is_not_changes_nothing(key: int, milli_cores: int) -> None:
    cores = Cores([[0, 1], [2, 3]])
    cores.take(1, 1000)
    cores.take(2, 300)
    before = cores.placement(1), cores.placement(2), cores.free
    with pytest.raises(ValueError, match="asked"):
        cores.change(key, milli_cores)
    assert (cores.placement(1), cores.placement(2), cores.free) == before


def test_a_pool_that_has_become_smaller_retires_what_a_change_gives_up() -> None:
    cores = Cores([range(4)])
    cores.take(1, 3000)
    cores.take(2, 1000)
    cores.resize(2)
    with pytest.raises(ValueError, match="2 cores too many"):
        cores.change(2, 2000)
    assert cores.change(1, 1000)[1].core_ids == (0,)
    assert (cores.free, cores.core_ids) == (0, (0, 3))
    cores.change(1, 0)
    assert cores.change(2, 2000)[2].core_ids == (0, 3)


def test_a_change_gives_up_what_is_offline_first_and_replaces_it_where_that_is_possible() -> None:
    cores = Cores([range(4)], 3)
    cores.take(1, 3000)
    cores.set_available([1, 2])
    assert cores.change(1, 2000)[1].core_ids == (1, 2)
    cores.set_available([1, 3])
    assert cores.placement(1).core_ids == (1, 2), "nobody has asked for a change"
    assert cores.change(1, 2000)[1].core_ids == (1, 3)
    assert (cores.capacity, cores.free) == (2, 0)


@given(
    declared=st.integers(1, 8),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.just(0), st.integers(1, 3000)),
            st.tuples(st.just("take"), st.just(0), st.integers(1, 5).map(lambda cores: cores * 1000)),
            st.tuples(st.just("change"), st.integers(0, 50), st.integers(0, 8).map(lambda cores: cores * 1000)),
            st.tuples(st.just("change"), st.integers(0, 50), st.integers(0, 8).map(lambda cores: cores * 1000)),
            st.tuples(st.just("give back"), st.integers(0, 50), st.just(0)),
            st.tuples(st.just("online"), st.just(0), st.integers(1, 255)),
            st.tuples(st.just("resize"), st.just(0), st.integers(1, 8)),
        ),
        max_size=60,
    ),
)
def test_grants_that_are_changed_have_what_a_simple_account_says(
    declared: int, steps: list[tuple[str, int, int]]
) -> None:
    """No two whole grants are on one core, and what moves is told."""
    nodes = [range(3), range(3, 6), range(6, 8)]
    cores = Cores(nodes, declared)
    online = set(range(8))
    held: dict[int, int] = {}
    for key, (what, which, number) in enumerate(steps):
        capacity = min(declared, len(online))
        before = {other: cores.placement(other) for other in held}
        others = sorted(other for other, grant in held.items() if grant % 1000 == 0)
        told: dict[int, Placement] = {}
        if what == "online":
            online = {core for core in range(8) if number >> core & 1}
            told = cores.set_available(online)
        elif what == "resize":
            declared = number
            cores.resize(declared)
        elif what == "give back" and held:
            gone = sorted(held)[which % len(held)]
            del held[gone], before[gone]
            told = cores.give_back(gone)
        elif what == "take" and needed([*held.values(), number]) <= capacity:
            held[key] = number
            told = cores.take(key, number)
        elif what == "change" and others:
            changed = others[which % len(others)]
            told = checked_change(cores, nodes, held, changed, number, online=online, capacity=capacity)
        moved = {other: cores.placement(other) for other in held if before.get(other) != cores.placement(other)}
        assert told.items() >= moved.items(), "what has moved was told"
        capacity, in_use = min(declared, len(online)), needed(held.values())
        assert (cores.capacity, cores.free) == (capacity, max(0, capacity - in_use))
        ids = [core for other, grant in held.items() if grant % 1000 == 0 for core in cores.placement(other).core_ids]
        shared = {core for other, grant in held.items() if grant % 1000 for core in cores.placement(other).core_ids}
        assert len(ids) == len(set(ids))
        assert not shared & set(ids)
        used = shared | set(ids)
        assert used & online <= set(cores.core_ids) <= online
        assert len(cores.core_ids) == (max(capacity, in_use) - len(used - online) or len(online))
    for key in list(held):
        cores.give_back(key)
    assert cores.free == cores.capacity == min(declared, len(online))


def checked_change(
    cores: Cores,
    nodes: Sequence[range],
    held: dict[int, int],
    key: int,
    number: int,
    *,
    online: set[int],
    capacity: int,
) -> dict[int, Placement]:
    """Change a grant and the account of it; it keeps its own cores, gains near ones and loses far ones first."""
    was = cores.placement(key).core_ids
    after = needed([*(grant for other, grant in held.items() if other != key), number])
    if number > held[key] and after > capacity:
        with pytest.raises(ValueError, match="asked"):
            cores.change(key, number)
        return {}
    told = cores.change(key, number)
    held[key] = number
    now = told[key].core_ids
    others = used_by_others(cores, held, key)
    assert len(now) == number // 1000
    assert len(online.intersection(was, now)) == min(len(online.intersection(was)), len(now)), "it keeps what it can"
    assert set(now) <= online or len(online - others) < len(now)
    if was and set(was) <= online:
        near = {core for node in nodes if set(node) & set(was) for core in node}
        free = set(cores.core_ids) - others - set(now)
        assert set(now) <= near or not free & near, "what is near goes first"
        left = [sum(core in node for core in was) for node in nodes if set(node) & (set(was) - set(now))]
        kept_on = [sum(core in node for core in was) for node in nodes if set(node) & set(was) & set(now)]
        assert max(left, default=0) <= min(kept_on, default=8), "what is far is given up first"
    return told


def used_by_others(cores: Cores, held: Iterable[int], key: int) -> set[int]:
    return {core for other in held if other != key for core in cores.placement(other).core_ids}
