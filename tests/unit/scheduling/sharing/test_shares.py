"""Who gets how many cores, and that no sharer, however odd, leads to shares that cannot be."""

from __future__ import annotations

from math import inf, isfinite, nan
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.model.sharing import SharePolicy
from arl_tangram.scheduling.policies import equal_shares, least_attained, size_aware
from arl_tangram.scheduling.sharing.split import curve_of, split
from unit.scheduling.sharing.sharers import SIZES, Given, scaling, single

POLICIES = (equal_shares(), least_attained(), size_aware())


def test_equal_shares_go_to_the_first_and_differ_by_one_size_at_most() -> None:
    policy = equal_shares()
    assert policy.share([scaling(0.5)] * 4, 64, 4) == [16] * 4
    assert policy.share([scaling(0.5)] * 5, 64, 5) == [16, 16, 16, 8, 8]
    assert policy.share([single()] * 5, 3, 5) == [1, 1, 1, 0, 0]
    assert policy.share([single(), scaling(1.0)], 8, 2) == [1, 4]


def test_equal_shares_never_take_the_last_core_of_an_earlier_one() -> None:
    runs = [scaling(1.0, cores=16) for _ in range(4)]
    assert equal_shares().share([*runs, *[scaling(1.0)] * 100], 64, 104) == [1] * 64 + [0] * 40


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_who_must_keep_cores_keeps_them(policy: SharePolicy) -> None:
    last = scaling(0.5, (4, 8), least=4, cores=8)
    assert policy.share([scaling(1.0), scaling(1.0), last], 4, 3) == [0, 0, 4]
    assert policy.share([single(), last], 5, 2) == [1, 4]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_one_alone_has_all_that_makes_it_faster(policy: SharePolicy) -> None:
    assert policy.share([scaling(0.5)], 64, 1) == [16]
    assert policy.share([scaling(0.5)], 9, 1) == [8]
    assert policy.share([Given((1, 2, 4), (1.0, 1.9, 1.9))], 4, 1) == ([4] if policy.name == "equal shares" else [2])


def test_a_size_below_the_hull_is_used_where_the_next_one_does_not_fit() -> None:
    superlinear = Given((1, 2, 4), (1.0, 1.5, 6.0))
    assert curve_of(superlinear.sizes, superlinear.rates).sizes == (4,)
    assert split([superlinear], 3, 1, [1.0]) == [2]
    assert split([superlinear], 4, 1, [1.0]) == [4]


def test_one_that_needs_more_cores_is_not_put_behind_all_others() -> None:
    wide = scaling(0.5, (4, 8))
    assert split([wide, *[single()] * 8], 8, 9, [1.0] * 9) == [4, 1, 1, 1, 1, 0, 0, 0, 0]


def test_cores_go_to_those_who_scale_better() -> None:
    assert split([scaling(0.5), scaling(1.0)], 17, 2, [1.0, 1.0]) == [1, 16]
    assert split([scaling(0.5), scaling(1.0)], 12, 2, [1.0, 1.0]) == [4, 8], "the next size of the other is too much"
    assert split([scaling(0.9), scaling(0.9)], 16, 2, [2.0, 1.0])[0] > 8 // 2


def test_what_cannot_be_resized_starts_small_where_many_share() -> None:
    for_good = scaling(0.8)
    for_good.resizable = False
    assert split([for_good], 64, 1, [1.0]) == [16]
    assert split([for_good, *[single()] * 62], 64, 128, [1.0] * 63) == [2, *[1] * 62], "1, and what nobody else can use"
    assert split([for_good, *[single()] * 63], 64, 128, [1.0] * 64) == [1] * 64
    held = Given((8,), (5.3,), cores=8, resizable=False)
    assert split([held, *[single()] * 63], 64, 128, [1.0] * 64) == [8, *[1] * 56, *[0] * 7]


def test_least_attained_ranks_by_levels_that_grow() -> None:
    policy = least_attained()
    attained_s, levels = 0.0, []
    while attained_s < 100:
        sharer = Given(attained_s=attained_s)
        levels.append(policy.rank(sharer))
        assert policy.next_s(sharer) > attained_s
        attained_s = policy.next_s(sharer)
    assert levels == [float(level) for level in range(len(levels))]
    assert len(levels) == 19
    assert policy.rank(Given(attained_s=0.099)) == 0
    assert policy.next_s(Given(attained_s=inf)) == inf


def test_size_aware_gives_more_to_those_with_less_left_while_there_are_few() -> None:
    policy = size_aware()
    sharers = [scaling(0.95) for _ in range(8)]
    shares = policy.share(sharers, 64, 8)
    assert sum(shares) == 64
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1]
    assert policy.share([single()] * 8, 4, 100) == [1, 1, 1, 1, 0, 0, 0, 0]
    assert policy.rank(Given(remaining_s=3.0)) == 3.0
    assert policy.next_s(Given(next_s=7.0)) == 7.0


def test_size_aware_gives_each_a_core_where_they_scale_badly() -> None:
    assert size_aware().share([scaling(0.5) for _ in range(64)], 64, 64) == [1] * 64


odd_numbers = st.floats(allow_nan=True, allow_infinity=True)


@st.composite
def sharers(draw: st.DrawFn) -> Given:
    sizes = tuple(sorted(draw(st.sets(st.integers(1, 40), min_size=1, max_size=8))))
    rates = tuple(draw(st.lists(odd_numbers, min_size=len(sizes), max_size=len(sizes))))
    least = sizes[0] if draw(st.booleans()) else 0
    numbers = [draw(odd_numbers) for _ in range(3)]
    cores, resizable = draw(st.sampled_from((0, *sizes))), draw(st.booleans())
    return Given(sizes, rates, least, cores, *numbers, order=draw(st.integers()), resizable=resizable)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@given(st.lists(sharers(), max_size=20), st.integers(0, 100), st.integers(0, 10))
def test_shares_are_possible_whatever_is_expected(
    policy: SharePolicy, given_: list[Given], more: int, behind: int
) -> None:
    cores = sum(sharer.least for sharer in given_) + more
    shares = list(policy.share(given_, cores, len(given_) + behind))
    assert list(policy.share(given_, cores, len(given_) + behind)) == shares, "the same again"
    assert len(shares) == len(given_)
    assert sum(shares) <= cores
    for share, sharer in zip(shares, given_, strict=True):
        assert share in (0, *sharer.sizes)
        assert share >= sharer.least
        assert isfinite(policy.rank(sharer)) or policy.name == "size-aware"


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@given(
    st.lists(st.builds(scaling, st.floats(0.01, 1), st.sampled_from((SIZES, (1,), (3,), (2, 3, 7)))), max_size=12),
    st.integers(1, 64),
)
def test_no_core_is_idle_that_makes_somebody_faster(policy: SharePolicy, given_: list[Given], cores: int) -> None:
    shares = policy.share(given_, cores, len(given_))
    left = cores - sum(shares)
    for share, sharer in zip(shares, given_, strict=True):
        more = [size for size in sharer.sizes if size > share]
        assert not more or more[0] - share > left


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_policy_is_fast(policy: SharePolicy) -> None:
    many = [scaling(0.5 + 0.001 * at, (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)) for at in range(512)]
    assert _seconds(policy, many[:64], 64) < 0.001
    assert _seconds(policy, many, 256) < 0.005


def _seconds(policy: SharePolicy, given_: list[Given], cores: int) -> float:
    """Return the least of several times, of which the limits are some times what it takes on an idle machine."""
    times_s: list[float] = []
    for _ in range(10):
        before_s = perf_counter()
        policy.share(given_, cores, len(given_))
        times_s.append(perf_counter() - before_s)
    return min(times_s)


def test_rates_that_are_none_count_as_the_one_before() -> None:
    assert curve_of((1, 2, 4), (nan, 2.0, inf)) == curve_of((1, 2, 4), (1.0, 2.0, 2.0))
    assert curve_of((1, 2, 4), (-1.0, 0.5, 3.0)) == curve_of((1, 2, 4), (1.0, 1.0, 3.0))
