"""Find the dimension of what an action asks for, or say why it can never be granted."""

from __future__ import annotations

from collections.abc import Iterable

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import CPU, MEMORY, Topology, node_of, on_node


def of_node(spec: ActionSpec, topology: Topology, node: int | None, resource: str, amount: int, *, said: str) -> int:
    """Return the dimension of a resource of one node, which must have that much.

    Args:
        spec: the action.
        topology: the dimensions that there are.
        node: the number of the node; None for this machine, if it is no node of the pool.
        resource: `cpu`, `memory` or `sandboxes`.
        amount: in integer units.
        said: the same in words.

    Raises:
        InfeasibleError: there is no such resource there, or less of it.
    """
    if node is None and topology.nodes:
        raise InfeasibleError(
            f"{spec.name} asks for {said}, and runs on this machine, which is no node of the pool: only `async def` "
            "actions that ask for cores and are called in a trajectory run on its nodes"
        )
    name = on_node(resource, topology.nodes[node].name) if node is not None and topology.nodes else resource
    return dimension_of(spec, topology, name, amount, said)


def dimension_of(spec: ActionSpec, topology: Topology, name: str, amount: int, said: str) -> int:
    """Return the dimension of a name, which must have that much; arguments and errors as those of `of_node`."""
    index = topology.index.get(name)
    if index is None:
        raise InfeasibleError(f"{spec.name} asks for {said}; this runtime has no pool that offers {name}")
    dimension = topology.dimensions[index]
    if amount > dimension.capacity:
        there_is = dimension.capacity / dimension.scale
        raise InfeasibleError(f"{spec.name} asks for {said}; {name} has {there_is:g} in all")
    return index


def nowhere(topology: Topology, name: str, *, memory_bytes: int, milli_cores: int) -> InfeasibleError:
    """Return the error for what no node of several can hold; it names the node that has most.

    Args:
        topology: the dimensions that there are.
        name: of what asks.
        memory_bytes: what it asks for.
        milli_cores: the same.
    """
    said: list[str] = []
    wanted = (
        (MEMORY, memory_bytes, f"{memory_bytes / GIB:g} GiB of memory"),
        (CPU, milli_cores, cores_in_words(milli_cores, "reserved ")),
    )
    for resource, amount, asked in wanted:
        if not amount:
            continue
        offered = [topology.dimensions[topology.index[on_node(resource, node.name)]] for node in topology.nodes]
        largest = max(offered, key=lambda dimension: dimension.capacity)
        if amount > largest.capacity:
            most = f"{largest.capacity / largest.scale:g} at {node_of(largest.name)!r}"
            return InfeasibleError(f"{name} asks for {asked}, and no host has so much: the most is {most}")
        said.append(asked)
    return InfeasibleError(f"{name} asks for {' and '.join(said)}, and no host has both")


def cores_in_words(milli_cores: int, kind: str = "") -> str:
    """Say how many cores these are; `kind` stands before the word."""
    return f"{milli_cores / MILLI:g} {kind}{'core' if milli_cores == MILLI else 'cores'}"


def mask_of(dimensions: Iterable[int]) -> int:
    """Return the bits of dimensions."""
    mask = 0
    for dimension in dimensions:
        mask |= 1 << dimension
    return mask
