"""The nodes as the owner sees them: what each offers, which are lost for now, and who tells them of seats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from arl_tangram.errors import ConfigurationError, NodeLostError
from arl_tangram.integrations.ray.roster import Session
from arl_tangram.integrations.ray.wire import Drop, Evict, NodeOffer, Shape, Take
from arl_tangram.managers.gpu.manager import EvictionPolicy
from arl_tangram.model.gpu import GpuDevice, GpuNode, HostedService, Instance, Seat
from arl_tangram.model.topology import CPU, Dimension, Topology, resource_of
from arl_tangram.scheduling.gpu.eviction import make_eviction
from arl_tangram.scheduling.gpu.seats import Seats


@dataclass(slots=True, eq=False)
class Node:
    """A node of the shared runtime.

    Attributes:
        offer: what it has.
        session: of its agent; None while it is lost.
        dimensions: indices of its dimensions, with those of its GPUs and services, once the topology is made.
        seated: those of its GPUs and services, and their units.
    """

    offer: NodeOffer
    session: Session | None
    dimensions: tuple[int, ...] = ()
    seated: tuple[tuple[int, int], ...] = ()


class Nodes:
    """All nodes.

    Args:
        first_lease: leases of seats have greater numbers than this, and than those of other owners.
    """

    def __init__(self, first_lease: int = 0) -> None:
        self._nodes: dict[str, Node] = {}
        self._leases = first_lease
        self._gpu: Node | None = None
        self.mask = 0
        """Bits of the dimensions of all nodes, once the topology is made."""

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def find(self, name: str) -> Node | None:
        """Return a node by its name."""
        return self._nodes.get(name)

    def of(self, session: Session) -> Node | None:
        """Return the node whose agent a session is."""
        return next((node for node in self._nodes.values() if node.session is session), None)

    def add(self, offer: NodeOffer, session: Session | None) -> None:
        """There is one more node."""
        self._nodes[offer.name] = Node(offer, session)

    def add_lost(self, shape: Shape) -> tuple[str, ...]:
        """Let the nodes that an earlier owner had, and that are not there, be lost ones; return the names of all.

        So dimensions stay where they were, and those nodes can come back.
        """
        for offer in shape.nodes:
            if offer.name not in self._nodes:
                self.add(offer, None)
        return tuple(offer.name for offer in shape.nodes)

    def settle(self, order: Sequence[str] = ()) -> None:
        """Give the nodes their numbers, which stay: those with cores are numbered as those of the topology.

        Args:
            order: names of nodes that come first, in this order: those of an earlier owner.

        Raises:
            ConfigurationError: several of them have GPUs.
        """
        places = {name: place for place, name in enumerate(order)}
        known = len(places)
        ordered = sorted(
            self._nodes.values(),
            key=lambda node: (not node.offer.dimensions, places.get(node.offer.name, known), node.offer.name),
        )
        seated = [node for node in ordered if node.offer.devices]
        if len(seated) > 1:
            raise ConfigurationError(
                f"one node of a shared runtime can have a GpuPool, and {len(seated)} have: "
                + ", ".join(repr(node.offer.name) for node in seated)
            )
        self._gpu = seated[0] if seated else None
        self._nodes = {node.offer.name: node for node in ordered}

    def made(self, topology: Topology) -> None:
        """Take the indices of their dimensions from the topology."""
        for node in self._nodes.values():
            node.dimensions = tuple(topology.index[dimension.name] for dimension in node.offer.dimensions)
            if node is self._gpu:
                seated = [i for i in range(len(topology.dimensions)) if topology.seats >> i & 1]
                node.seated = tuple((index, topology.dimensions[index].capacity) for index in seated)
                node.dimensions += tuple(seated)
            for dimension in node.dimensions:
                self.mask |= 1 << dimension

    # What they have.

    def dimensions(self) -> tuple[Dimension, ...]:
        """Return the dimensions of all."""
        return tuple(dimension for node in self._nodes.values() for dimension in node.offer.dimensions)

    def cores(self) -> int:
        """Return how many whole cores there are."""
        return sum(d.capacity // d.scale for d in self.dimensions() if resource_of(d.name) == CPU)

    def services(self) -> tuple[HostedService, ...]:
        """Return what is hosted."""
        return () if self._gpu is None else self._gpu.offer.services

    def seats(self, eviction: EvictionPolicy) -> Seats | None:
        """Return the seats of the node with GPUs, if there is one; nobody sits there."""
        if self._gpu is None:
            return None
        offer = self._gpu.offer
        devices = tuple(GpuDevice(name, capacity) for name, capacity in offer.devices)
        return Seats([GpuNode(offer.name, devices)], offer.services, make_eviction(eviction))

    def offers(self) -> tuple[NodeOffer, ...]:
        """Return what they offer, by their numbers."""
        return tuple(node.offer for node in self._nodes.values())

    def lost(self) -> tuple[int, ...]:
        """Return the numbers of those that are lost for now."""
        return tuple(number for number, node in enumerate(self._nodes.values()) if node.session is None)

    def loss_of(self, number: int) -> NodeLostError | None:
        """Return why nothing can be on a node with cores, by its number; None if it can."""
        node = list(self._nodes.values())[number] if number < len(self._nodes) else None
        if node is None or node.session is not None or not node.offer.dimensions:
            return None
        return NodeLostError(f"node {node.offer.name!r} is lost")

    def capacities(self, topology: Topology) -> tuple[Dimension, ...]:
        """Return the dimensions of a topology with what lost nodes have when they come back."""
        dimensions = list(topology.dimensions)
        for node in self._nodes.values():
            if node.session is None:
                units = [(topology.index[d.name], d.capacity) for d in node.offer.dimensions]
                for index, capacity in (*units, *node.seated):
                    dimensions[index] = replace(dimensions[index], capacity=capacity)
        return tuple(dimensions)

    def number(self, node: Node) -> int:
        """Return the number of a node."""
        return list(self._nodes.values()).index(node)

    def resized(self, node: Node, name: str, capacity: int) -> None:
        """A node has more or less of a dimension."""
        changed = tuple(replace(d, capacity=capacity) if d.name == name else d for d in node.offer.dimensions)
        node.offer = replace(node.offer, dimensions=changed)

    # What they are told.

    def alive(self) -> list[Session]:
        """Return the sessions of those that are not lost."""
        return [node.session for node in self._nodes.values() if node.session is not None]

    def taken(self, session: str, seat: Seat) -> int:
        """Tell the node of a seat that was granted; return the number of its lease."""
        self._leases += 1
        self._tell_gpu(lambda to: to.tell(Take(self._leases, session, seat)))
        return self._leases

    def dropped(self, lease: int) -> None:
        """Tell the node of a seat that is given back."""
        self._tell_gpu(lambda to: to.tell(Drop(lease)))

    def evicted(self, instances: Sequence[Instance]) -> None:
        """Tell the node which services have to go."""
        self._tell_gpu(lambda to: to.tell(Evict(tuple(instances))))

    def _tell_gpu(self, tell: Callable[[Session], None]) -> None:
        if self._gpu is not None and self._gpu.session is not None:
            tell(self._gpu.session)
