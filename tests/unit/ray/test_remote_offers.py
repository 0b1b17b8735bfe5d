"""What clients make of what nodes offer: where a trajectory can be, and why it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_lines import AgentHost, node, shape_of
from arl_tangram.errors import (
    ConfigurationError,
    UsageError,
)
from arl_tangram.integrations.ray.client.cores import RemoteCores
from arl_tangram.integrations.ray.wire import NodeOffer
from arl_tangram.managers.local.pool import LocalPool
from arl_tangram.model.topology import Dimension


def offer(name: str, *, image: str | None = None, least: int = 0, cores: int = 2) -> NodeOffer:
    dimensions = (Dimension(f"cpu@{name}", cores * 1000, 1000), Dimension(f"memory@{name}", 1 << 30, 1 << 30))
    return NodeOffer(name, f"host-{name}", dimensions, image=image, least_memory_bytes=least, text=f"pool of {name}")


def cores_of(*offers: NodeOffer, host: int | None = None) -> RemoteCores:
    def no_line(number: int) -> AgentHost:
        raise AssertionError(f"node {number} is called")

    return RemoteCores("client-1", shape_of(*offers), host, no_line)


def test_a_trajectory_goes_where_it_can_be() -> None:
    services = replace(offer("c"), dimensions=())
    cores = cores_of(offer("a", image="a LocalPool has no images"), offer("b", least=1 << 20), services)
    assert cores.nodes_for(None, 0) == (0, 1)
    assert cores.nodes_for("python:3.12", 0) == (1,)
    assert cores.nodes_for(None, 1 << 10) == (0,)
    cores.check_image("python:3.12")
    cores.check_memory(1)
    assert [d.name for d in cores.dimensions()] == ["cpu@a", "memory@a", "cpu@b", "memory@b"]
    assert cores.describe() == "a: pool of a; b: pool of b; c: pool of c"


def test_what_no_node_can_do_is_refused() -> None:
    cores = cores_of(*(offer(name, image="no 'IMAGE' here", least=1 << 20) for name in "ab"))
    with pytest.raises(ConfigurationError, match=r"^node 'a': no 'python:3.12' here; node 'b': no 'python:3.12' here$"):
        cores.check_image("python:3.12")
    cores.check_image(None)
    with pytest.raises(ConfigurationError, match="shared pool"):
        cores.check_memory(1 << 10)
    with pytest.raises(UsageError, match="no node of the shared pool is this machine"):
        cores.lease(1000, None)


async def test_an_offer_says_what_its_pool_says() -> None:
    async with node(LocalPool(cores=1, memory_gib=1), name="n1") as (_, _, shape):
        (told,) = shape.nodes
        assert [d.name for d in told.dimensions] == ["cpu@n1", "memory@n1"]
        assert told.least_memory_bytes == 32 << 20
        assert told.no_image is None
        assert told.node_id == "here"
        cores = RemoteCores("client-1", shape, 0, lambda _node: AgentHost(None))
        with pytest.raises(
            ConfigurationError, match=r"node 'n1': a LocalPool has no images, and image='x:1' was asked"
        ):
            cores.check_image("x:1")
        assert "1 core" in cores.describe()
