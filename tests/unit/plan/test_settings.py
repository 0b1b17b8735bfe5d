"""What is printed to be pasted declares what was found."""

from __future__ import annotations

import pytest

from arl_tangram.managers.breaker import Breaker
from arl_tangram.managers.quota import Quota
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import CPU, MEMORY, Dimension, Topology, on_node
from arl_tangram.plan import settings
from arl_tangram.plan.in_flight import AtOnce, InFlight
from arl_tangram.plan.resources import Resource
from arl_tangram.simulate.workloads import pool


def resource(topology: Topology, name: str, quota: str = "") -> Resource:
    return Resource(name, ((0, topology.dimensions[0]),), 1, quota)


@pytest.mark.parametrize(
    "quota",
    [
        Quota("search", calls=5, period_s=1.5, concurrency=2),
        Quota("search", calls=[(5, 1), (2_000_000, 86400)], tokens=[(100, 60)]),
        Quota("search", calls=[(5, 1), (100, 60)]),
        Quota("search", calls=5, tokens=1000, period_s=60, total_calls=70),
        Quota("search", total_tokens=1_234_567),
        Quota("search", concurrency=3),
    ],
)
def test_a_quota_as_it_is_written(quota: Quota) -> None:
    topology = Topology(quota.dimensions())
    written = settings.quota("search", topology.quotas["search"], topology)
    assert eval(written, {"Quota": Quota}).dimensions() == quota.dimensions()


def test_keys_and_breakers_are_only_named() -> None:
    topology = Topology(Quota("search", concurrency=3, keys=["a", "b"], breaker=Breaker()).dimensions())
    written = settings.quota("search", topology.quotas["search"], topology)
    assert written == 'Quota("search", concurrency=3, keys=[...], breaker=...)'


def test_pools_as_they_are_written() -> None:
    topology = Topology([*pool(6, memory_gib=3).dimensions, *Quota("search", concurrency=3).dimensions()])
    cores, memory = resource(topology, "cores"), resource(topology, "memory, GiB")
    search = resource(topology, "search: concurrency", "search")
    assert list(settings.pools(topology, [cores])) == ["LocalPool(cores=6)  # or DockerPool"]
    assert list(settings.pools(topology, [cores, memory, search])) == [
        "LocalPool(cores=6, memory_gib=3)  # or DockerPool",
        'Quota("search", concurrency=3)',
    ]


def test_each_node_has_a_line() -> None:
    nodes = [(on_node(CPU, "a"), 2 * MILLI, MILLI), (on_node(MEMORY, "a"), 3 * GIB // 2, GIB)]
    topology = Topology([*(Dimension(*node) for node in nodes), Dimension(on_node(CPU, "b"), MILLI, MILLI)])
    assert list(settings.pools(topology, [resource(topology, "cores"), resource(topology, "memory, GiB")])) == [
        "LocalPool(cores=2, memory_gib=1.5)  # node a",
        "LocalPool(cores=1)  # node b",
    ]


def test_what_a_trainer_is_told() -> None:
    free = AtOnce(16, 2.0, 9.0)
    text = "\n".join(settings.trainer(InFlight(6, free, (free,), 20, 3)))
    assert text.startswith("6 of 16 rollouts at once: the step is as short as with all of them, within 2%.")
    for said in (
        "data.train_batch_size x actor_rollout_ref.rollout.n: at least 6",
        "actor_rollout_ref.rollout.agent.num_workers: at most 6",
        "actor_rollout_ref.rollout.multi_turn.max_parallel_calls=3",
        "generation_batch_size: at least 6",
        "Up to 20 calls wait or run at once",
    ):
        assert said in text
    all_ = "\n".join(settings.trainer(InFlight(16, free, (free,), 20, 3)))
    assert all_.startswith("All 16 rollouts at once: with fewer, the step is longer.")
    none = "\n".join(settings.trainer(InFlight(0, free, (free,), 20, 0)))
    assert none.startswith("Up to 20 calls")
