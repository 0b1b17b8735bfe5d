"""How others serve several models on GPUs, as ways to set the same pool up: to be compared with.

The baselines for cores are policies: `reserved` and `fixed`. Here, too, the scheduler is the same one: what differs is
where services are, at which dop, and who goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.gpu import Chunk, HostedService, chunks_of
from arl_tangram.simulate.gpus import Gpus


def static_services(gpus: Gpus, dops: Mapping[str, int] | None = None) -> Gpus:
    """Return a pool where each service is on GPUs of its own for ever, as if it had been started before the run.

    None of them is ever restored or goes for another, and no call can have GPUs to itself that some service is on.

    Args:
        gpus: the pool that they are to be on.
        dops: on how many GPUs each service is. By default they share the pool as equally as their dops let them: all
            have their least, then one after the other gets its next, again and again, as long as there is room.

    Raises:
        ConfigurationError: there are too few GPUs, a GPU is too small, or a service is not to be on so many.
    """
    chosen = _equal_shares(gpus) if dops is None else _checked(gpus, dops)
    places = _places(gpus, chosen)
    if places is None:
        asked = ", ".join(f"{name} {dop}" for name, dop in chosen.items())
        there = sum(len(node.devices) for node in gpus.nodes)
        raise ConfigurationError(f"{there} GPUs have no room for all services, each on its own: {asked}")
    services = [
        replace(_at(service, chosen[service.name], 0.0), chunks=((chosen[service.name], places[service.name]),))
        for service in gpus.services
    ]
    return replace(gpus, services=tuple(services), swaps=False)


def serverless(gpus: Gpus, dops: Mapping[str, int] | None = None) -> Gpus:
    """Return a pool that loads services on demand, each at one dop, and lets the least recently used one go.

    Source: loading on demand as in ServerlessLLM (Fu et al., OSDI 2024). A service stays until its room is needed: to
    let it go earlier, after some time without a call, would only add restores.

    Args:
        gpus: the pool.
        dops: on how many GPUs each service is; the least that it can be on, by default.

    Raises:
        ConfigurationError: a service is not to be on so many.
    """
    chosen = {service.name: service.dops[0] for service in gpus.services} if dops is None else _checked(gpus, dops)
    services = [
        _at(service, chosen[service.name], dict(service.restore_s)[chosen[service.name]]) for service in gpus.services
    ]
    return replace(gpus, services=tuple(services), eviction="lru")


def _checked(gpus: Gpus, dops: Mapping[str, int]) -> dict[str, int]:
    """Return the dop of each service.

    Raises:
        ConfigurationError: one has none, or one that it cannot be on, or there is no such service.
    """
    names = [service.name for service in gpus.services]
    unknown = [name for name in dops if name not in names]
    if unknown:
        raise ConfigurationError(f"dops= names {unknown[0]!r}; the services are {', '.join(names)}")
    for service in gpus.services:
        if dops.get(service.name) not in service.dops:
            possible = ", ".join(map(str, service.dops))
            raise ConfigurationError(
                f"dops= puts {service.name} on {dops.get(service.name)} GPUs; it can be on {possible}"
            )
    return {name: dops[name] for name in names}


def _equal_shares(gpus: Gpus) -> dict[str, int]:
    chosen = {service.name: service.dops[0] for service in gpus.services}
    rises = True
    while rises:
        rises = False
        for service in gpus.services:
            greater = [dop for dop in service.dops if dop > chosen[service.name]]
            if greater and _places(gpus, {**chosen, service.name: greater[0]}) is not None:
                chosen[service.name] = greater[0]
                rises = True
    return chosen


def _places(gpus: Gpus, chosen: Mapping[str, int]) -> dict[str, Chunk] | None:
    """Return chunks of their own for all services, the largest first; None if there are not enough."""
    capacities = [device.capacity_bytes for node in gpus.nodes for device in node.devices]
    taken: set[int] = set()
    places: dict[str, Chunk] = {}
    for service in sorted(gpus.services, key=lambda service: -chosen[service.name]):
        dop = chosen[service.name]
        needed = dict(service.footprints)[dop].peak_bytes
        for chunk in chunks_of(gpus.nodes, dop):
            if all(device not in taken and capacities[device] >= needed for device in chunk.devices):
                places[service.name] = chunk
                taken.update(chunk.devices)
                break
        else:
            return None
    return places


def _at(service: HostedService, dop: int, restore_s: float) -> HostedService:
    """Return a service that can be on so many GPUs only."""
    footprint = dict(service.footprints)[dop]
    return replace(service, footprints=((dop, footprint),), restore_s=((dop, restore_s),), chunks=())
