"""Play requests in their order against the modules of the scheduler that choose places and victims.

One request after the other: each is served where its service is, or restores it first, and is over before the next. No
time passes, nothing overlaps, and all that is resident is idle whenever room is wanted. So this measures the
choice of victims and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arl_tangram.bench.evict.catalogue import Catalogue
from arl_tangram.model.gpu import HostedService, Instance
from arl_tangram.scheduling.gpu.chunks import Chunks
from arl_tangram.scheduling.gpu.eviction import Eviction, Resident
from arl_tangram.scheduling.gpu.victims import PlaceSearch, Placing, Wish


@dataclass(frozen=True, slots=True)
class Played:
    """What became of a stream.

    Attributes:
        requests: how many.
        restores: how many of them found their service evicted.
        restore_s: what all restores took together.
    """

    requests: int
    restores: int
    restore_s: float

    @property
    def per_request_s(self) -> float:
        """Seconds of restoring for each request."""
        return self.restore_s / self.requests

    @property
    def hit_rate(self) -> float:
        """The share of requests that found their service resident."""
        return 1 - self.restores / self.requests


def play(catalogue: Catalogue, requests: Sequence[str], eviction: Eviction, queue: int) -> Played:
    """Serve all requests.

    Args:
        catalogue: what the services need, and where they can be.
        requests: the service of each.
        eviction: the policy, at its beginning.
        queue: how many of those that follow are in sight: as many as wait.
    """
    floor = _Floor(catalogue)
    restores, restore_s = 0, 0.0
    for number, name in enumerate(requests):
        resident = floor.residents.get(name)
        if resident is None:
            upcoming = requests[number + 1 : number + 1 + queue]
            resident = floor.place(name, eviction, upcoming)
            restores += 1
            restore_s += resident.restore_s
        eviction.used(resident)
        eviction.left(resident.instance)
    return Played(len(requests), restores, restore_s)


class _Floor:
    """The devices, and what is on them: a `Room` in which everything is idle."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._chunks = Chunks(catalogue.nodes)
        self._services = {service.name: service for service in catalogue.services}
        self.capacity = self._chunks.capacities
        self.used = [0] * len(self.capacity)
        self.held = [0] * len(self.capacity)
        self.idle: list[list[Resident]] = [[] for _ in self.capacity]
        self.residents: dict[str, Resident] = {}

    def place(self, name: str, eviction: Eviction, upcoming: Sequence[str]) -> Resident:
        """Restore a service where that is expected to cost least.

        Raises:
            ValueError: it is larger than the devices.
        """
        service = self._services[name]
        placing = PlaceSearch(self, eviction, upcoming).best(self._wishes(service))
        if placing is None or placing.instance is None:
            raise ValueError(f"{name} does not fit on the devices of the bench")
        for victim in placing.victims:
            self._remove(victim)
            eviction.evicted(victim)
        return self._add(service, placing, placing.instance)

    def _wishes(self, service: HostedService) -> list[Wish]:
        restore_s = dict(service.restore_s)
        return [
            Wish(Instance(service.name, dop), self._chunks.of(service, dop), footprint.peak_bytes, restore_s[dop])
            for dop, footprint in service.footprints
        ]

    def _add(self, service: HostedService, placing: Placing, instance: Instance) -> Resident:
        size = dict(service.footprints)[instance.dop].resident_bytes
        resident = Resident(instance, placing.chunk, size, dict(service.restore_s)[instance.dop])
        self.residents[service.name] = resident
        for device in placing.chunk.devices:
            self.used[device] += size
            self.idle[device].append(resident)
        return resident

    def _remove(self, victim: Instance) -> None:
        resident = self.residents.pop(victim.service)
        for device in resident.chunk.devices:
            self.used[device] -= resident.freed_bytes
            self.idle[device].remove(resident)
