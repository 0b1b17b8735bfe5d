"""Say what it costs others that an instance takes more devices than it has to: nothing, as long as all have room.

A service on more devices is faster, and is restored faster. But what it takes beyond the least is gone for others: if
those that are in use do not all fit any more, each further part of that size makes one of them be restored again. So a
greater dop pays a restore for each such part, unless all that is in use fits beside it: what is there as it is, and
what was asked for lately at the least dop that it can have. At the beginning, when nobody knows yet what will be asked
for, that is every service.
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
    """Who is in use in one pool, and whether they have room beside each other.

    Args:
        residency: what is where.
        restores: what restores take.
    """

    __slots__ = ("_asked_at", "_fits", "_fits_at", "_now", "_residency", "_restores")

    def __init__(self, residency: Residency, restores: RestoreTimes) -> None:
        self._residency = residency
        self._restores = restores
        self._now = 0
        self._asked_at = dict.fromkeys(residency.services, 0)
        self._fits: dict[Instance, bool] = {}
        self._fits_at = -1

    def asked(self, service: str) -> None:
        """An action has got a seat on a service: one request."""
        self._now += 1
        self._asked_at[service] = self._now

    def price_s(self, instance: Instance, chunks: Chunks) -> float:
        """Return the seconds that others are expected to lose by the devices that an instance takes beyond its least.

        Args:
            instance: what is to be placed.
            chunks: where all could be.
        """
        least = next(fitting_dops(instance.service, self._residency, chunks), instance.dop)
        if instance.dop <= least or self._do_all_fit(instance, chunks):
            return 0.0
        return (instance.dop / least - 1) * self._restores.expected_s(Instance(instance.service, least))

    def _do_all_fit(self, instance: Instance, chunks: Chunks) -> bool:
        if self._fits_at != self._residency.version:
            self._fits.clear()
            self._fits_at = self._residency.version
        fits = self._fits.get(instance)
        if fits is None:
            fits = self._fits[instance] = self._can_be_packed(instance, chunks)
        return fits

    def _can_be_packed(self, instance: Instance, chunks: Chunks) -> bool:
        """Whether all that is in use fits on empty devices, the largest put first, each where it fits first."""
        residency = self._residency
        others = [copy for copy in residency.copies.values() if copy.instance != instance]
        items = [(copy.instance.dop, residency.gives(copy), copy.instance) for copy in others]
        items.append((instance.dop, residency.needs(instance), instance))
        there = {used.service for _, _, used in items}
        for service, asked_at in self._asked_at.items():
            if service in there or self._now - asked_at >= _LATELY:
                continue
            for dop in fitting_dops(service, residency, chunks):
                least = Instance(service, dop)
                items.append((dop, residency.needs(least), least))
                break
        left = [residency.left(device, residency.target) or 0 for device in range(len(residency.target))]
        return all(
            _put(size, chunks.of(residency.services[used.service], dop), left)
            for dop, size, used in sorted(items, reverse=True)
        )


def _put(size: int, chunks: Sequence[Chunk], left: list[int]) -> bool:
    """Take so many bytes of each device of the first chunk that has them; return whether one has."""
    for chunk in chunks:
        if all(left[device] >= size for device in chunk.devices):
            for device in chunk.devices:
                left[device] -= size
            return True
    return False
