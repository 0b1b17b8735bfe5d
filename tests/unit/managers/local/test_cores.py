from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.managers.local.cores import Cores


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
