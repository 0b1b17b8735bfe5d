"""Take memory of devices for an instance; where no hole is large enough, residents are moved together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from arl_tangram.errors import RestoreError
from arl_tangram.managers.gpu.devices.device import Region
from arl_tangram.managers.gpu.instances.backend import Place
from arl_tangram.managers.gpu.instances.counts import Counts
from arl_tangram.managers.gpu.instances.evictions import Evictions
from arl_tangram.managers.gpu.instances.hosted import Hosted, Stage, Stay
from arl_tangram.managers.gpu.instances.site import Site
from arl_tangram.managers.gpu.sizes import in_words

_logger = logging.getLogger("arl_tangram")


class Room:
    """Finds places for instances.

    Moving costs a copy within the device, which is many times as fast as the restore that another eviction would cost
    later. Residents that actions hold are moved, too: between two calls, so that it never depends on how long actions
    last, nor on what these wait for.
    """

    def __init__(self, evictions: Evictions, counts: Counts) -> None:
        self._evictions = evictions
        self._counts = counts

    async def take(self, hosted: Hosted, stay: Stay, sites: Sequence[Site]) -> None:
        """Give a stay its places, device by device; what there is of them when this fails is not given back.

        Raises:
            RestoreError: there is not enough memory, since something that was evicted still has it; or not in one
                piece, and what would have to be moved cannot be.
            OSError: the memory of a device cannot be taken back from others.
        """
        needs = hosted.footprint.peak_bytes
        fixed: set[Hosted] = set()
        for site in sites:
            if not site.is_open:
                raise RestoreError(f"{site.device.name} was taken back by who had lent it")
            has = site.free_bytes + site.used.get(hosted, 0)
            if needs > has:
                raise RestoreError(
                    f"{in_words(needs)} are needed on {site.device.name}, which has {in_words(max(0, has))}: something "
                    f"that was evicted still has memory there. There are {site.in_words()}"
                )
            site.takes(hosted, needs)
            if hosted.backend.keeps_memory:
                await _vacate(site)
                stay.places.append(Place(site.device, None))
            else:
                stay.places.append(Place(site.device, await self._region(site, hosted, fixed)))

    async def _region(self, site: Site, hosted: Hosted, fixed: set[Hosted]) -> Region:
        """Take a region; what cannot be moved is added to `fixed` and not tried again: that would go on for ever."""
        if site.is_away:
            await site.device.occupy()
            site.is_away = False
        size = hosted.region_bytes
        while (region := site.device.allocate(size)) is None:
            movable = {region: other for region, other in site.movable().items() if other not in fixed}
            if moves := site.device.make_room(size, movable):
                # Only the first of them: what is evicted meanwhile may make the others unnecessary.
                other = movable[moves[0].source]
                if not await self._move(site, other, moves[0].target):
                    fixed.add(other)
            elif any(other.is_passing for other in site.used if other is not hosted):
                await site.change()
            else:
                raise RestoreError(
                    f"no {in_words(size)} in one piece on {site.device.name}, and nothing there can be moved: "
                    f"there are {site.in_words()}"
                )
        return region

    async def _move(self, site: Site, hosted: Hosted, target: Region) -> bool:
        """Move a resident to another region of a device, and tell whether it was; if not, restore it where it is."""
        stay = hosted.there
        assert stay is not None
        moved = [Place(p.device, target if p.device is site.device else p.region) for p in stay.places]
        hosted.last = last = asyncio.get_running_loop().create_future()
        hosted.stage = Stage.MOVING
        try:
            try:
                await hosted.backend.move(hosted.instance.dop, moved)
            except Exception as error:  # noqa: BLE001 - whatever it was, the weights are still in host memory
                _logger.warning("%s could not be moved on %s: %s", hosted.instance, site.device.name, error)
                await hosted.backend.restore(hosted.instance.dop, stay.places)
                has_moved = False
            else:
                has_moved = True
                stay.places = moved
                self._counts.moved(hosted.instance.service)
            hosted.stage = Stage.RESIDENT
        except Exception as error:  # noqa: BLE001 - told as a loss
            self._evictions.dies(hosted, error)
            return False
        else:
            return has_moved
        finally:
            last.set_result(None)
            self._evictions.changed(stay.chunk)  # others may wait for it on its other devices


async def _vacate(site: Site) -> None:
    """Let what keeps its memory itself have what the arena of a device holds, if it holds all of it."""
    if site.device.holds_all and not site.is_away:
        if any(place.region for other in site.used if other.there for place in other.there.places):
            raise RestoreError(f"the arena of {site.device.name} is in use, by {site.in_words()}")
        site.is_away = True
        await site.device.vacate()
