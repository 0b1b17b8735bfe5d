"""On which machines of a cluster the agents of a shared runtime are. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.ray.configuration import words
from arl_tangram.integrations.ray.installed import RayNode
from arl_tangram.integrations.ray.naming import check_name
from arl_tangram.managers.manager import CpuPool, GpuPool
from arl_tangram.runtime import Tangram

Pools = Callable[[], Sequence[CpuPool | GpuPool]]


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a shared runtime: its pools, and the machine of the Ray cluster whose agent opens them.

    Attributes:
        name: of its dimensions (`cpu@NAME`); letters, digits, `-`, `_` and `.`.
        pools: returns a pool of cores, a pool of GPUs, or both; called on the node, so that Ray must be able to send it
            there.
        node_id: Ray's id of the machine; None takes one that has `resources` and no other node of this runtime, or
            failing that, one that has.
        resources: of Ray, that the machine must have and that the agent holds, such as `{"sandboxes": 1}`.

    Raises:
        ConfigurationError: a value that is not possible.
    """

    name: str
    pools: Pools
    node_id: str | None = None
    resources: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        check_name(self.name, "Node(name=)")
        if not callable(self.pools):
            raise ConfigurationError(
                f"Node({self.name!r}): pools= takes a function that returns pools, not {self.pools!r}"
            )
        node_id = cast(object, self.node_id)
        if not isinstance(node_id, str | None):
            raise ConfigurationError(f"Node({self.name!r}): node_id= takes Ray's id of a machine, not {node_id!r}")
        resources = cast(object, self.resources)
        if not isinstance(resources, Mapping) or not all(map(_is_amount, cast(Any, resources).values())):
            raise ConfigurationError(
                f"Node({self.name!r}): resources= takes numbers above 0 by name, not {resources!r}"
            )


class Placed(NamedTuple):
    """Where an agent is to be.

    Attributes:
        name: of the node; empty for the only one.
        pools: returns its pools.
        node_id: Ray's id of the machine.
        resources: of Ray, that it holds.
    """

    name: str
    pools: Pools
    node_id: str
    resources: Mapping[str, float]


def declared(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the lines about nodes in a configuration.

    Raises:
        ConfigurationError: something else than nodes, none of them, or two of the same name.
    """
    given = cast(object, nodes)
    if not isinstance(given, Sequence) or not all(isinstance(node, Node) for node in cast("Sequence[object]", given)):
        raise ConfigurationError(f"share(nodes=) takes a list of Node, not {given!r}")
    names = [node.name for node in nodes]
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(f"share(nodes=) takes one or more nodes with names of their own, not {names}")
    return tuple(
        f"node {node.name}: pools={words(node.pools)}, resources={words(node.resources)}"
        for node in sorted(nodes, key=lambda node: node.name)
    )


def placed(nodes: Sequence[Node], machines: Sequence[RayNode]) -> tuple[Placed, ...]:
    """Choose the machine of each declared node.

    Raises:
        ConfigurationError: there is none that a node could be on.
    """
    taken: set[str] = {node.node_id for node in nodes if node.node_id is not None}
    chosen: list[Placed] = []
    for node in nodes:
        fits = [machine for machine in machines if _fits(node, machine)]
        if not fits:
            there = ", ".join(f"{machine.id} ({machine.host})" for machine in machines)
            raise ConfigurationError(
                f"Node({node.name!r}): no machine of the cluster has node_id={node.node_id} and "
                f"resources={dict(node.resources)}; there are {there}"
            )
        machine = next((machine for machine in fits if machine.id not in taken), fits[0])
        taken.add(machine.id)
        chosen.append(Placed(node.name if len(nodes) > 1 else "", node.pools, machine.id, node.resources))
    return tuple(chosen)


def everywhere(factory: Callable[[], Tangram], machines: Sequence[RayNode]) -> tuple[Placed, ...]:
    """Return the same pools on each machine, named by its host, or by its number where hosts have several."""
    hosts = [machine.host for machine in machines]
    names = hosts if len(set(hosts)) == len(hosts) else [str(number) for number in range(1, len(hosts) + 1)]
    pools = partial(pools_of, factory)
    if len(machines) == 1:
        names = [""]
    return tuple(Placed(name, pools, machine.id, {}) for name, machine in zip(names, machines, strict=True))


def pools_of(factory: Callable[[], Tangram]) -> Sequence[CpuPool | GpuPool]:
    """Return the pools that a factory declares."""
    setup = factory().setup
    return [pool for pool in (setup.pool, setup.gpus) if pool is not None]


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _fits(node: Node, machine: RayNode) -> bool:
    if node.node_id is not None and node.node_id != machine.id:
        return False
    return all(machine.resources.get(name, 0) >= amount for name, amount in node.resources.items())
