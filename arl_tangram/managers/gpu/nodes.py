"""The devices of a pool by their numbers: those that it was opened with, and those that are lent for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.instances.site import Site
from arl_tangram.model.gpu import GpuDevice, GpuNode


class Nodes:
    """Devices, numbered from 0. A number is never another device's: what was lent and is gone keeps its own.

    Attributes:
        sites: what each device has on it, by number; one list for as long as the pool is open.
    """

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self._nodes: list[GpuNode] = []

    @property
    def nodes(self) -> tuple[GpuNode, ...]:
        """The groups of devices that chunks are made of, in the order of numbers."""
        return tuple(self._nodes)

    def open(self, devices: Sequence[Device]) -> None:
        """Have the devices of the pool: the first node."""
        self._add(_node("", devices), devices)

    def lend(self, devices: Sequence[Device]) -> tuple[int, GpuNode]:
        """Have some more, as a node of their own; return its first number and the node.

        Raises:
            ConfigurationError: one of them is there already.
        """
        here = {site.device.name for site in self.sites if site.is_open}
        if twice := [device.name for device in devices if device.name in here]:
            raise ConfigurationError(f"{', '.join(twice)} cannot be lent to a pool that has it already")
        node = _node("lent", devices)
        for index, (first, other) in enumerate(self._numbered()):
            if _names(other) == _names(node) and not self.sites[first].is_open:
                self._nodes[index] = node  # what can be had of the same devices may be more or less than before
                for site, device in zip(self.sites_of(first), devices, strict=True):
                    site.device, site.is_open, site.is_away = device, True, False
                return first, node
        return self._add(node, devices), node

    def node_at(self, first: int) -> GpuNode:
        """Return the node that begins with a number; each time its devices are lent, it is a new object."""
        return next(node for number, node in self._numbered() if number == first)

    def sites_of(self, first: int) -> list[Site]:
        """Return the devices of the node that begins with a number."""
        return self.sites[first : first + len(self.node_at(first).devices)]

    def _add(self, node: GpuNode, devices: Sequence[Device]) -> int:
        first = len(self.sites)
        self._nodes.append(node)
        self.sites += [Site(number, device) for number, device in enumerate(devices, start=first)]
        return first

    def _numbered(self) -> Iterator[tuple[int, GpuNode]]:
        first = 0
        for node in self._nodes:
            yield first, node
            first += len(node.devices)


def _names(node: GpuNode) -> tuple[str, ...]:
    return tuple(device.name for device in node.devices)


def _node(name: str, devices: Sequence[Device]) -> GpuNode:
    return GpuNode(name, tuple(GpuDevice(device.name, device.capacity_bytes) for device in devices))
