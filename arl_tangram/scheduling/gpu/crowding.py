"""Say what it costs others that an instance takes more devices than it has to: nothing, as long as all have room.

A service on more devices is faster, and is restored faster. But it may take room that others need: of those in use some
do not fit beside it that would fit if it was at its least dop, and each of them has to be restored once more. So a
greater dop pays these restores, each as fast as it can be. In use is what is there, as it is, and what was asked for
lately, at the least dop at which there is room for it; at the beginning, when nobody knows yet what will be asked for,
every service. How many fit is found out by putting them on empty devices, each where it fits first.
"""

from __future__ import annotations

from collections.abc import Sequence

from arl_tangram.model.gpu import Chunk, Instance
from arl_tangram.scheduling.gpu.chunks import Chunks
from arl_tangram.scheduling.gpu.limits import fitting_dops
from arl_tangram.scheduling.gpu.residency import Residency
from arl_tangram.scheduling.gpu.restore_times import RestoreTimes

_LATELY = 256
"""Requests after which a service that nobody has asked for since is not in use any more."""


class Crowding:
    """Who is in use in one pool, and what it costs them not to have room beside each other.

    Args:
        residency: what is where.
        restores: what restores take.
    """

    __slots__ = ("_asked_at", "_declared", "_instances", "_lost_at", "_lost_s", "_now", "_residency", "_restores")

    def __init__(self, residency: Residency, restores: RestoreTimes) -> None:
        self._residency = residency
        self._restores = restores
        self._now = 0
        self._asked_at = dict.fromkeys(residency.services, 0)
        self._declared: list[int] = []
        self._lost_at: tuple[int, list[str]] = (-1, [])
        self._lost_s: dict[Instance, float] = {}
        self._instances: dict[str, tuple[Instance, ...]] = dict.fromkeys(residency.services, ())

    def asked(self, service: str) -> None:
        """An action has got a seat on a service: one request."""
        self._now += 1
        self._asked_at[service] = self._now

    def price_s(self, instance: Instance, chunks: Chunks) -> float:
        """Return the seconds that others are expected to lose because an instance is not at its least dop.

        Args:
            instance: what is to be placed.
            chunks: where all could be.
        """
        fitting = self._fitting(instance.service, chunks)
        if not fitting or instance.dop <= fitting[0].dop:
            return 0.0
        lost_s = self._lost_beside_s(instance, chunks)
        return max(0.0, lost_s - self._lost_beside_s(fitting[0], chunks)) if lost_s else 0.0

    def _lost_beside_s(self, instance: Instance, chunks: Chunks) -> float:
        asked = [service for service, asked_at in self._asked_at.items() if self._now - asked_at < _LATELY]
        if self._lost_at != (self._residency.layout, asked):
            self._lost_at = self._residency.layout, asked
            self._lost_s.clear()
        if instance not in self._lost_s:
            self._lost_s[instance] = self._restores_s(instance, asked, chunks)
        return self._lost_s[instance]

    def _restores_s(self, instance: Instance, asked: Sequence[str], chunks: Chunks) -> float:
        """Return the restores of those in use that do not all fit on the devices if an instance is there.

        First come those that can be nowhere else, then this one, then the largest.
        """
        residency = self._residency
        left = [residency.left(device, residency.target) or 0 for device in range(len(residency.target))]
        sizes = self._in_use(instance, asked, chunks)
        lost_s = 0.0
        for one in sorted(sizes, key=lambda i: (i not in residency.fixed, i != instance, -i.dop, -sizes[i], i)):
            fitting = self._fitting(one.service, chunks)
            is_there = one == instance or one in residency.copies
            ways = [(one, sizes[one])] if is_there else [(way, residency.needs(way)) for way in fitting]
            if not any(_put(size, chunks.of(residency.services[way.service], way.dop), left) for way, size in ways):
                lost_s += min([self._restores.expected_s(way) for way in fitting], default=0.0)
        return lost_s

    def _in_use(self, instance: Instance, asked: Sequence[str], chunks: Chunks) -> dict[Instance, int]:
        """Return what is in use beside an instance, at its least dop if it is not there, with its bytes on a device."""
        residency = self._residency
        sizes = {copy.instance: residency.gives(copy) for copy in residency.copies.values()}
        sizes[instance] = residency.needs(instance)
        there = {one.service for one in sizes}
        for service in asked:
            if service not in there:
                for least in self._fitting(service, chunks)[:1]:
                    sizes[least] = residency.needs(least)
        return sizes

    def _fitting(self, service: str, chunks: Chunks) -> tuple[Instance, ...]:
        """Return what there can be of a service, at the least dop first."""
        residency = self._residency
        if self._declared != residency.declared:
            self._declared = list(residency.declared)
            self._instances = {
                name: tuple([Instance(name, dop) for dop in fitting_dops(name, residency, chunks)])
                for name in residency.services
            }
        return self._instances[service]


def _put(size: int, chunks: Sequence[Chunk], left: list[int]) -> bool:
    """Take so many bytes of each device of the first chunk that has them; return whether one has."""
    for chunk in chunks:
        if all(left[device] >= size for device in chunk.devices):
            for device in chunk.devices:
                left[device] -= size
            return True
    return False
