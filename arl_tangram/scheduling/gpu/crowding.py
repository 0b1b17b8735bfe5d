"""Say what it costs others that an instance takes more devices than it has to: nothing, as long as all have room.

A service on more devices is faster, and is restored faster. But it may take room that others need: of those in use some
do not fit beside it that would fit if it was at its least dop, and each of them has to be restored once more. So a
greater dop pays these restores. In use is what is there, as it is, and what was asked for lately, at its least dop; at
the beginning, when nobody knows yet what will be asked for, every service. How many fit is found out by putting them
on empty devices, each where it fits first.
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

    __slots__ = ("_asked_at", "_now", "_residency", "_restores")

    def __init__(self, residency: Residency, restores: RestoreTimes) -> None:
        self._residency = residency
        self._restores = restores
        self._now = 0
        self._asked_at = dict.fromkeys(residency.services, 0)

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
        least = self._least(instance.service, chunks)
        if least is None or instance.dop <= least.dop:
            return 0.0
        return max(0.0, self._lost_beside_s(instance, chunks) - self._lost_beside_s(least, chunks))

    def _lost_beside_s(self, instance: Instance, chunks: Chunks) -> float:
        """Return the restores of those in use that do not all fit on the devices if an instance is there.

        First come those that can be nowhere else, then this one, then the largest.
        """
        residency = self._residency
        left = [residency.left(device, residency.target) or 0 for device in range(len(residency.target))]
        sizes = self._in_use(instance, chunks)
        lost_s = 0.0
        for one in sorted(sizes, key=lambda i: (i not in residency.fixed, i != instance, -i.dop, -sizes[i], i)):
            if not _put(sizes[one], chunks.of(residency.services[one.service], one.dop), left):
                lost_s += self._fastest_s(one.service, chunks)
        return lost_s

    def _in_use(self, instance: Instance, chunks: Chunks) -> dict[Instance, int]:
        """Return what is in use once an instance is, with the bytes that each takes of a device."""
        residency = self._residency
        sizes = {copy.instance: residency.gives(copy) for copy in residency.copies.values()}
        sizes[instance] = residency.needs(instance)
        there = {one.service for one in sizes}
        for service, asked_at in self._asked_at.items():
            if service not in there and self._now - asked_at < _LATELY:
                least = self._least(service, chunks)
                if least is not None:
                    sizes[least] = residency.needs(least)
        return sizes

    def _least(self, service: str, chunks: Chunks) -> Instance | None:
        dop = next(fitting_dops(service, self._residency, chunks), None)
        return None if dop is None else Instance(service, dop)

    def _fastest_s(self, service: str, chunks: Chunks) -> float:
        """Return what a restore of a service takes at best; 0 for one that fits nowhere any more."""
        dops = fitting_dops(service, self._residency, chunks)
        return min([self._restores.expected_s(Instance(service, dop)) for dop in dops], default=0.0)


def _put(size: int, chunks: Sequence[Chunk], left: list[int]) -> bool:
    """Take so many bytes of each device of the first chunk that has them; return whether one has."""
    for chunk in chunks:
        if all(left[device] >= size for device in chunk.devices):
            for device in chunk.devices:
                left[device] -= size
            return True
    return False
