"""What there is to be shared: what nodes offer, and all of it as clients need to know it."""

from __future__ import annotations

from dataclasses import dataclass, field

from arl_tangram.model.gpu import HostedService
from arl_tangram.model.topology import Dimension

ANY_IMAGE = "IMAGE"
"""Stands for the name of an image in `NodeOffer.image`."""


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """What a node has.

    Attributes:
        name: of the node; empty for the only one.
        node_id: Ray's name of the machine, for bodies without a sandbox.
        dimensions: of its pools, named by the node.
        no_image: why a trajectory cannot be there that names no image; None if it can.
        image: why one cannot be there that names one.
        least_memory_bytes: for a sandbox with a limit.
        services: those that it hosts.
        devices: the capacities of its devices by name, in the order of their numbers.
        text: what enforces grants there, in one line.
    """

    name: str
    node_id: str
    dimensions: tuple[Dimension, ...]
    no_image: str | None = None
    image: str | None = None
    least_memory_bytes: int = 0
    services: tuple[HostedService, ...] = ()
    devices: tuple[tuple[str, int], ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class SharedQuota:
    """What a client needs to know of a quota.

    Attributes:
        keys: those that calls take; never written anywhere.
        longest_pause_s: the most seconds for which a `Retry-After` is obeyed.
    """

    name: str
    keys: tuple[str, ...] = field(default=(), repr=False)
    longest_pause_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Shape:
    """All that is shared, as clients need to know it to resolve costs.

    Attributes:
        version: ascends.
        dimensions: of the owner's topology, in its order, with what lost nodes have when they come back.
        nodes: in the order of their numbers.
        quotas: what calls can declare.
        reserved_cores: whole cores that each trajectory holds.
        kill_grace_s: seconds that a cancelled body has to end.
        lost: the numbers of nodes that cannot be used now.
    """

    version: int
    dimensions: tuple[Dimension, ...]
    nodes: tuple[NodeOffer, ...]
    quotas: tuple[SharedQuota, ...] = ()
    reserved_cores: int = 0
    kill_grace_s: float = 5.0
    lost: tuple[int, ...] = ()
