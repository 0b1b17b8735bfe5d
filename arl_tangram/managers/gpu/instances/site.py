"""One device of a pool at work: what has memory of it, what leaves it, and who comes next."""

from __future__ import annotations

import asyncio

from arl_tangram.managers.gpu.devices.device import Device, Region
from arl_tangram.managers.gpu.instances.hosted import Hosted, Stage
from arl_tangram.managers.gpu.sizes import in_words


class Site:
    """One device.

    Who comes takes memory in the order in which they came in line, once all that was to leave by then has left. Then
    everything fits that was decided: the scheduler has counted it. That order is the one of decisions, but for who has
    to leave other devices first. Nobody ever waits for who is behind, so that there is no circle of waiting.

    Attributes:
        number: of the device, over all nodes.
        device: the device; of one that was lent and reclaimed, the last one.
        used: bytes of each instance that has memory here, the little of sleeping engines included.
        leaving: evictions that were decided and have not ended.
        settled: done when the last one who was to come has its memory, or has failed.
        copied: done when the last copy to its arena that was begun has ended.
        is_away: whether the memory of its arena was given up, for a process that has the device to itself.
        is_open: whether it is there; one that was lent may be gone.
    """

    __slots__ = ("_changes", "copied", "device", "is_away", "is_open", "leaving", "number", "settled", "used")

    def __init__(self, number: int, device: Device) -> None:
        self.number = number
        self.device = device
        self.used: dict[Hosted, int] = {}
        self.leaving: set[asyncio.Future[None]] = set()
        self.settled: asyncio.Future[None] | None = None
        self.copied: asyncio.Future[None] | None = None
        self.is_away = False
        self.is_open = True
        self._changes: list[asyncio.Future[None]] = []

    @property
    def free_bytes(self) -> int:
        """Bytes that nothing has now, by count."""
        return self.device.capacity_bytes - sum(self.used.values())

    @property
    def usable_bytes(self) -> int:
        """Its capacity without what stuck instances have of it beyond what is counted for them."""
        return self.device.capacity_bytes - sum(
            size - hosted.footprint.evicted_bytes for hosted, size in self.used.items() if hosted.stage is Stage.STUCK
        )

    @property
    def has_residents(self) -> bool:
        """Whether something has memory here that is not evicted."""
        return any(hosted.there is not None for hosted in self.used)

    def takes(self, hosted: Hosted, size: int) -> None:
        """Count so many bytes for an instance from now on; what it keeps when it is evicted is part of them."""
        if size:
            self.used[hosted] = size
        else:
            self.used.pop(hosted, None)

    def movable(self) -> dict[Region, Hosted]:
        """Return the regions that may be moved now, and whose they are."""
        found: dict[Region, Hosted] = {}
        for hosted in self.used:
            if hosted.stays and hosted.there is not None:
                region = next(place.region for place in hosted.there.places if place.device is self.device)
                if region is not None and region.size:
                    found[region] = hosted
        return found

    def changed(self) -> None:
        """Something has changed in who has memory here, and for whom it may be moved."""
        for change in self._changes:
            if not change.done():
                change.set_result(None)
        self._changes.clear()

    async def change(self) -> None:
        """Wait until something has changed."""
        change = asyncio.get_running_loop().create_future()
        self._changes.append(change)
        await change

    def in_words(self) -> str:
        """Name what has memory here, for messages."""
        parts = [f"{hosted.instance} with {in_words(size)}" for hosted, size in self.used.items()]
        return ", ".join(parts) or "nothing"
