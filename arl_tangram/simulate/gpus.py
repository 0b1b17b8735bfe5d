"""What a simulated pool of GPUs is: devices, and the services that share them, as one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.gpu import Footprint, GpuDevice, GpuNode, HostedService, checked_dops
from arl_tangram.model.quantities import bytes_of_gib, seconds, service_name, whole
from arl_tangram.model.topology import GPU, Dimension, Topology, service_seats
from arl_tangram.scheduling.gpu.eviction import EvictionName, make_eviction
from arl_tangram.scheduling.gpu.seats import Seats


@dataclass(frozen=True, slots=True)
class Gpus:
    """A pool of GPUs; a run begins with nothing on them.

    Attributes:
        nodes: the devices; numbered over all nodes, in their order.
        services: what can be used; unique names.
        eviction: who goes when another needs its room, as in `GpuPool(policy=)`.
        swaps: whether anything may go; without, that something would have to is an error.
    """

    nodes: tuple[GpuNode, ...]
    services: tuple[HostedService, ...] = ()
    eviction: EvictionName = "loss"
    swaps: bool = True

    def seats(self) -> Seats:
        """Return the seats of one run; nobody sits there."""
        return Seats(self.nodes, self.services, make_eviction(self.eviction))

    def added_to(self, topology: Topology) -> Topology:
        """Return dimensions, and behind them those of GPUs and services that they lack.

        Raises:
            ConfigurationError: they have one of these with another capacity, or a service that is not here.
        """
        seats = self.seats()
        own = [Dimension(GPU, seats.devices)]
        own += [Dimension(service_seats(service.name), seats.capacity_of(service.name)) for service in self.services]
        names = {dimension.name for dimension in own}
        unknown = [name for name in topology.services if service_seats(name) not in names]
        if unknown:
            raise ConfigurationError(
                f"the topology has the service {unknown[0]!r}, which Gpus(services=) does not have"
            )
        for dimension in own:
            there = topology.index.get(dimension.name)
            if there is not None and topology.dimensions[there].capacity != dimension.capacity:
                raise ConfigurationError(
                    f"the topology has {topology.dimensions[there].capacity} of {dimension.name}, and Gpus() has "
                    f"{dimension.capacity}"
                )
        lacking = [dimension for dimension in own if dimension.name not in topology.index]
        return Topology([*topology.dimensions, *lacking]) if lacking else topology


def gpu_nodes(count: int, *, gpus: int = 8, gib: float = 80) -> tuple[GpuNode, ...]:
    """Return machines that are alike.

    Args:
        count: how many, from 1.
        gpus: devices of each, from 1.
        gib: GiB of each device that services can have.

    Raises:
        ConfigurationError: a value that is not possible.
    """
    whole(count, "gpu_nodes(count)", ConfigurationError, least=1)
    whole(gpus, "gpu_nodes(gpus=)", ConfigurationError, least=1)
    size = bytes_of_gib(gib, "gpu_nodes(gib=)", ConfigurationError)
    return tuple(
        GpuNode(f"gpus{node}", tuple(GpuDevice(f"gpus{node}:{device}", size) for device in range(gpus)))
        for node in range(count)
    )


def hosted(
    name: str,
    *,
    gib: float,
    restore_s: float,
    dops: Sequence[int] = (1,),
    max_concurrency: int = 1,
    exclusive: bool = False,
) -> HostedService:
    """Return a service whose weights are shared out evenly to its devices.

    Args:
        name: by which actions ask for it.
        gib: GiB that it takes in all: at a dop of 4, each device has a quarter.
        restore_s: seconds of a restore at a dop of 1; each device copies its own part, so that it takes a quarter at 4.
        dops: on how many devices it can be, out of 1, 2, 4 and 8.
        max_concurrency: how many calls may use an instance at once.
        exclusive: whether nothing else computes on its devices while a call uses it.

    Raises:
        ConfigurationError: a value that is not possible.
    """
    what = f"hosted({name!r})"
    service_name(name, what, ConfigurationError)
    size = bytes_of_gib(gib, f"{what}: gib", ConfigurationError)
    if restore_s != 0:
        seconds(restore_s, f"{what}: restore_s", ConfigurationError)
    checked = checked_dops(dops, what)
    parts = [(dop, -(-size // dop)) for dop in checked]
    return HostedService(
        name,
        tuple((dop, Footprint(part, part)) for dop, part in parts),
        tuple((dop, restore_s / dop) for dop in checked),
        whole(max_concurrency, f"{what}: max_concurrency", ConfigurationError, least=1),
        exclusive,
    )
