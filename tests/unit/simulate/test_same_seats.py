"""With a pool of GPUs, too, the runtime and the engine take the same decisions: seats, restores and evictions."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from arl_tangram.managers.gpu.manager import EvictionPolicy
from arl_tangram.model.events import Event, ServiceRestored
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies.elastic import elastic
from arl_tangram.simulate.engine import simulate
from unit.simulate.drawn import CORES, MEMORY_GIB, SEARCH
from unit.simulate.drawn_services import beside, draw_uses, fake_pool, simulated
from unit.simulate.in_runtime import run_in_runtime

EVICTIONS: list[EvictionPolicy] = ["loss", "lru", "gdsf"]
ORDERS: list[Order] = ["fcfs", "shortest", "trajectory"]


def both(seed: int, gpus: int, eviction: EvictionPolicy, order: Order) -> tuple[list[Event], list[Event]]:
    workload = draw_uses(seed)
    runtime = run_in_runtime(
        workload,
        elastic(),
        cores=CORES,
        memory_gib=MEMORY_GIB,
        quotas=[SEARCH],
        order=order,
        gpus=fake_pool(gpus, eviction),
    )
    engine = simulate(workload, beside(), elastic(), order=order, record=True, gpus=simulated(gpus, eviction))
    return [_as_declared(event) for event in runtime], [_as_declared(event) for event in engine.events]


def _as_declared(event: Event) -> Event:
    """Return an event without the last digits of a restore's time, which the runtime measures as a difference."""
    return event._replace(took_s=round(event.took_s, 9)) if isinstance(event, ServiceRestored) else event


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    gpus=st.sampled_from([4, 4, 8]),
    eviction=st.sampled_from(EVICTIONS),
    order=st.sampled_from(ORDERS),
)
@example(seed=396, gpus=4, eviction="lru", order="shortest")  # a service leaves one device to be restored on another
def test_the_same_seats_on_any_workload(seed: int, gpus: int, eviction: EvictionPolicy, order: Order) -> None:
    runtime, engine = both(seed, gpus, eviction, order)
    assert runtime == engine


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_what_is_compared_has_restores_and_evictions(eviction: EvictionPolicy) -> None:
    runtime, engine = both(24, 4, eviction, "fcfs")
    assert runtime == engine
    kinds = Counter(type(event).__name__ for event in engine)
    assert kinds["ServiceRestored"] >= 15
    assert kinds["ServiceEvicted"] >= 8
    assert kinds["ActionStarted"] == kinds["UnitsReturned"] >= 60
