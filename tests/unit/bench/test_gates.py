"""The promises, from made-up figures."""

from __future__ import annotations

import pytest

from arl_tangram.bench.contenders import (
    CORES_LIMITER,
    CPU_ACTION,
    LIMITER,
    QUOTA_ACTION,
    RAY,
    SEMAPHORE,
    TRACED_ACTION,
)
from arl_tangram.bench.gates import Gate, gates, growth
from arl_tangram.bench.rounds import Series

GOOD = {
    SEMAPHORE: (5.0, 10.0),
    LIMITER: (30.0, 80.0),
    CORES_LIMITER: (32.0, 80.0),
    QUOTA_ACTION: (30.0, 60.0),
    CPU_ACTION: (40.0, 80.0),
    RAY: (1000.0, None),
}


def judged(**changes: tuple[float | None, float | None]) -> list[Gate]:
    names = {
        "semaphore": SEMAPHORE,
        "limiter": LIMITER,
        "cores": CORES_LIMITER,
        "quota": QUOTA_ACTION,
        "cpu": CPU_ACTION,
        "ray": RAY,
    }
    figures = GOOD | {names.get(name, name): pair for name, pair in changes.items()}
    return gates(
        [
            Series(name, size, (us,))
            for name, pair in figures.items()
            for size, us in zip((1_000, 100_000), pair, strict=True)
            if us is not None
        ]
    )


def test_good_figures_keep_all_promises() -> None:
    limiter, ray, grown = judged()
    assert (limiter.passed, limiter.where) == (True, f"{CPU_ACTION}, 1,000 in flight")
    assert limiter.value == pytest.approx(40 / 32)
    assert (ray.passed, ray.value) == (True, pytest.approx(0.03))
    assert (grown.passed, grown.value) == (True, pytest.approx(1.0))


@pytest.mark.parametrize(
    ("changes", "broken", "where"),
    [
        ({"quota": (46.0, 80.0)}, 0, f"{QUOTA_ACTION}, 1,000 in flight"),
        ({"cpu": (64.0, 121.0), "cores": (60.0, 80.0)}, 0, f"{CPU_ACTION}, 100,000 in flight"),
        ({"ray": (599.0, None)}, 1, f"{QUOTA_ACTION}, 1,000 in flight"),
        ({"ray": (1000.0, 1100.0)}, 1, f"{QUOTA_ACTION}, 100,000 in flight"),
        ({"quota": (30.0, 76.0)}, 2, QUOTA_ACTION),
    ],
)
def test_each_promise_is_held_on_the_worst(
    changes: dict[str, tuple[float | None, float | None]], broken: int, where: str
) -> None:
    found = judged(**changes)
    assert [gate.passed for gate in found] == [number != broken for number in range(3)]
    assert found[broken].where == where


@pytest.mark.parametrize(("ray_us", "kept"), [(600.0, True), (599.9, False)])
def test_a_limit_itself_is_kept(ray_us: float, kept: bool) -> None:
    assert judged(ray=(ray_us, None))[1].passed is kept


def test_without_ray_its_promise_is_open() -> None:
    ray = judged(ray=(None, None))[1]
    assert (ray.passed, ray.value, ray.where) == (None, None, "Ray was not measured")


@pytest.mark.parametrize(("traced_us", "kept"), [(49.0, True), (51.0, False)])
def test_a_trace_is_judged_where_it_was_measured(traced_us: float, kept: bool) -> None:
    found = judged(**{TRACED_ACTION: (traced_us, 70.0)})
    assert len(found) == 4
    assert found[3].passed is kept
    assert found[3].where == "1,000 in flight"


def test_growth_needs_two_sizes() -> None:
    one = [Series("x", 1_000, (4.0,))]
    assert growth(one, "x") is None
    assert growth([*one, Series("x", 100_000, (6.0,))], "x") == 1.5
    assert growth(one, "y") is None
    assert gates([Series(QUOTA_ACTION, 10, (1.0,)), Series(SEMAPHORE, 10, (1.0,))])[2].passed is None
