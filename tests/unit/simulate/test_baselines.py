"""Static services and loading on demand: where services are, and what that costs, worked out by hand."""

from __future__ import annotations

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.cost import Cost, declare_cost
from arl_tangram.model.elasticity import Linear
from arl_tangram.model.events import ServiceEvicted, ServiceRestored
from arl_tangram.model.gpu import Chunk
from arl_tangram.model.lifecycle import ActionSpec, BodyKind
from arl_tangram.model.topology import PROCESSES, Dimension, Topology
from arl_tangram.scheduling.policies.elastic import elastic
from arl_tangram.simulate.baselines import serverless, static_services
from arl_tangram.simulate.calls import Arrival, Call, Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.gpus import Gpus, gpu_nodes, hosted
from arl_tangram.simulate.results import Result

DOPS = (1, 2, 4, 8)


def run(gpus: Gpus, *calls: tuple[float, Call]) -> Result:
    workload = Workload(tuple(Arrival(at_s, call) for at_s, call in calls))
    return simulate(workload, Topology([Dimension(PROCESSES, 8)]), elastic(), gpus=gpus, record=True)


def use(service: str, work_s: float) -> Call:
    return Call(ActionSpec(f"use {service}", Cost(service=service)), work_s, Linear())


def places(gpus: Gpus) -> dict[str, Chunk]:
    return {service.name: dict(service.chunks)[service.dops[0]] for service in gpus.services}


def test_static_services_share_a_pool_equally_on_gpus_of_their_own() -> None:
    services = tuple(hosted(f"teacher{number}", gib=60, restore_s=2, dops=DOPS) for number in range(9))
    there = places(static_services(Gpus(gpu_nodes(5), services)))
    # After all are on four, a node is half free: whoever comes first there is on eight, if the others move together.
    assert [there[service.name].size for service in services] == [8] + [4] * 8
    devices = [device for chunk in there.values() for device in chunk.devices]
    assert len(set(devices)) == len(devices) == 40


def test_static_services_are_there_from_the_beginning_and_stay() -> None:
    """Calls that follow each other in turn cost no restore, but only one call of a service runs at a time."""
    services = (hosted("a", gib=60, restore_s=5), hosted("b", gib=60, restore_s=5))
    gpus = static_services(Gpus(gpu_nodes(1, gpus=2), services))
    result = run(gpus, (0, use("a", 2)), (0, use("a", 2)), (3, use("b", 1)), (5, use("a", 1)))
    assert [(call.started_at_s, call.ended_at_s) for call in result.calls] == [(0, 2), (2, 4), (3, 4), (5, 6)]
    assert {call.overhead_s for call in result.calls} == {0}
    assert not [event for event in result.events if isinstance(event, ServiceEvicted)]


def test_static_services_can_be_told_their_gpus() -> None:
    services = (hosted("a", gib=60, restore_s=5, dops=DOPS), hosted("b", gib=60, restore_s=5, dops=DOPS))
    gpus = static_services(Gpus(gpu_nodes(1), services), {"a": 2, "b": 4})
    assert places(gpus) == {"b": Chunk(0, 4), "a": Chunk(4, 2)}
    assert run(gpus, (0, use("b", 8))).calls[0].ended_at_s == 2


def test_a_static_service_does_not_go_for_a_call_with_gpus_of_its_own() -> None:
    train = Call(ActionSpec("train", declare_cost("train", gpu=1), kind=BodyKind.PROCESS), 1)
    gpus = static_services(Gpus(gpu_nodes(1, gpus=1), (hosted("a", gib=60, restore_s=5),)))
    with pytest.raises(ConfigurationError, match=r"a/1 would have to go for a call with GPUs of its own"):
        run(gpus, (0, use("a", 1)), (2, train))


def test_serverless_loads_at_one_dop_and_lets_the_least_recent_go() -> None:
    services = tuple(hosted(name, gib=60, restore_s=4, dops=(1, 2)) for name in "abc")
    gpus = serverless(Gpus(gpu_nodes(1, gpus=2), services))
    calls = [(0.0, "a"), (10.0, "b"), (20.0, "a"), (30.0, "c"), (40.0, "a"), (50.0, "b")]
    result = run(gpus, *[(at_s, use(name, 1)) for at_s, name in calls])
    assert [call.overhead_s for call in result.calls] == [4, 4, 0, 4, 0, 4]
    evicted = [event.instance.service for event in result.events if isinstance(event, ServiceEvicted)]
    assert evicted == ["b", "c"]
    assert {call.gpus for call in result.calls} == {1}
    larger = tuple(hosted(name, gib=120, restore_s=4, dops=(2, 4)) for name in "abc")
    wide = serverless(Gpus(gpu_nodes(1, gpus=2), larger), {"a": 2, "b": 2, "c": 2})
    result = run(wide, *[(at_s, use(name, 1)) for at_s, name in calls])
    assert [call.overhead_s for call in result.calls] == [2, 2, 2, 2, 2, 2]
    assert [event.took_s for event in result.events if isinstance(event, ServiceRestored)] == [2] * 6
    assert {call.execution_s for call in result.calls} == {0.5}


def test_what_cannot_be_set_up_is_told() -> None:
    services = tuple(hosted(name, gib=60, restore_s=4, dops=(1, 2)) for name in "abc")
    pool = Gpus(gpu_nodes(1, gpus=2), services)
    with pytest.raises(ConfigurationError, match=r"2 GPUs have no room for all services, .*: a 1, b 1, c 1"):
        static_services(pool)
    with pytest.raises(ConfigurationError, match="c on None GPUs; it can be on 1, 2"):
        static_services(pool, {"a": 1, "b": 1})
    with pytest.raises(ConfigurationError, match="a on 4 GPUs; it can be on 1, 2"):
        serverless(pool, {"a": 4, "b": 1, "c": 1})
    with pytest.raises(ConfigurationError, match="dops= names 'd'; the services are a, b, c"):
        serverless(pool, {"d": 1})
    small = Gpus(gpu_nodes(1, gpus=2, gib=40), services[:1])
    assert places(static_services(small, {"a": 2})) == {"a": Chunk(0, 2)}
    with pytest.raises(ConfigurationError, match="no room"):
        static_services(small, {"a": 1})
