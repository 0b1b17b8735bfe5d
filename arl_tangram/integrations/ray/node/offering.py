"""What the pools of a node have, as its agent offers it to the owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.ray.naming import named
from arl_tangram.integrations.ray.wire import ANY_IMAGE, NodeOffer
from arl_tangram.managers.gpu.manager import GpuManager
from arl_tangram.managers.manager import CpuManager, CpuPool, GpuPool
from arl_tangram.model.topology import CPU, Dimension, on_node, resource_of

_MOST_BYTES = 1 << 50


def managers_of(node: str, pools: Sequence[CpuPool | GpuPool]) -> tuple[CpuManager | None, GpuManager | None]:
    """Return the managers of the pools of a node.

    Raises:
        ConfigurationError: it has several of a kind, or none, or something else, or cores that actions are to share
            while they run.
    """
    given = cast(object, pools)
    if not isinstance(given, Sequence) or not all(hasattr(pool, "manager") for pool in cast("Sequence[object]", given)):
        raise ConfigurationError(f"{named(node)}: pools= has to return a list of pools, not {given!r}")
    gpus: list[GpuPool] = []
    cores: list[CpuPool] = []
    for pool in pools:
        if hasattr(pool, "services"):
            gpus.append(cast(GpuPool, pool))
        else:
            cores.append(cast(Any, pool))
    if not pools or len(gpus) > 1 or len(cores) > 1:
        raise ConfigurationError(
            f"{named(node)} has {len(cores)} pools of cores and {len(gpus)} of GPUs; it has at most one of each, "
            "and one at least"
        )
    if cores and getattr(cores[0], "share", None) is not None:
        raise ConfigurationError(
            f"{named(node)}: {type(cores[0]).__name__}(share=) is for a runtime of one process; in a shared runtime, "
            "running actions keep their cores: leave it out"
        )
    return (cores[0].manager() if cores else None), (gpus[0].manager() if gpus else None)


def offer_of(node: str, node_id: str, cpu: CpuManager | None, gpu: GpuManager | None) -> NodeOffer:
    """Return what a node has, whose managers are started.

    Args:
        node: its name.
        node_id: the machine where the agent is.
        cpu: the manager of its cores.
        gpu: the manager of its GPUs.

    Raises:
        ConfigurationError: its pool of cores has several machines.
    """
    texts = [manager.describe() for manager in (cpu, gpu) if manager is not None]
    return NodeOffer(
        name=node,
        # Cores of another machine, behind a remote daemon, are none for bodies of this one.
        node_id=node_id if cpu is None or cpu.host_node() is not None else "",
        dimensions=() if cpu is None else _dimensions(node, cpu),
        no_image=None if cpu is None else _refusal(cpu, None),
        image=None if cpu is None else _refusal(cpu, ANY_IMAGE),
        least_memory_bytes=0 if cpu is None else _least_memory(cpu),
        services=() if gpu is None else gpu.services,
        devices=()
        if gpu is None
        else tuple((device.name, device.capacity_bytes) for there in gpu.nodes for device in there.devices),
        text="; ".join(texts),
    )


def named_by(node: str, name: str) -> str:
    """Return the name of a dimension of a manager, as the owner knows it."""
    return on_node(resource_of(name) or name, node)


def _dimensions(node: str, cpu: CpuManager) -> tuple[Dimension, ...]:
    offered = cpu.dimensions()
    if sum(resource_of(dimension.name) == CPU for dimension in offered) != 1:
        raise ConfigurationError(
            f"the pool of {named(node)} has several machines ({', '.join(d.name for d in offered)}); "
            "each machine is a node of its own"
        )
    return tuple(replace(dimension, name=named_by(node, dimension.name)) for dimension in offered)


def _refusal(cpu: CpuManager, image: str | None) -> str | None:
    try:
        cpu.check_image(image)
    except ConfigurationError as error:
        return str(error)
    return None


def _least_memory(cpu: CpuManager) -> int:
    """Return the least memory for a sandbox, which only the manager's check knows."""
    low, high = 0, _MOST_BYTES  # too little (or no limit), enough
    while high - low > 1:
        middle = (low + high) // 2
        try:
            cpu.check_memory(middle)
        except ConfigurationError:
            low = middle
        else:
            high = middle
    return high if high > 1 else 0
