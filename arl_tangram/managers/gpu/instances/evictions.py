"""Take from instances what they have on devices, and try again with those that do not let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from arl_tangram.managers.gpu.instances.backend import StillHeldError
from arl_tangram.managers.gpu.instances.counts import Counts
from arl_tangram.managers.gpu.instances.hosted import Hosted, Stage, Stay
from arl_tangram.managers.gpu.instances.listener import Telling
from arl_tangram.managers.gpu.instances.site import Site
from arl_tangram.model.gpu import Chunk

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0


class Evictions:
    """Evicts instances.

    One whose memory does not become free is stuck: what it has is taken from the capacity of its devices, and it is
    tried again, after longer and longer times.

    Args:
        sites: the devices, by number.
        counts: where to count.
        telling: the way to the listener.
        again: begins another eviction of an instance.
    """

    def __init__(
        self, sites: Sequence[Site], counts: Counts, telling: Telling, again: Callable[[Hosted], None]
    ) -> None:
        self._sites = sites
        self._counts = counts
        self._telling = telling
        self._again = again
        self._retries: dict[Hosted, asyncio.TimerHandle] = {}
        self._closed = False

    async def let_go(self, hosted: Hosted) -> None:
        """Evict what is resident or stuck; if that fails, it is stuck.

        Raises:
            Exception: what the backend has raised.
        """
        was_stuck = hosted.stage is Stage.STUCK
        stay = hosted.there
        assert stay is not None
        hosted.stage = Stage.EVICTING
        try:
            await hosted.backend.evict(hosted.instance.dop)
        except BaseException:
            self.hold(hosted, was_stuck=was_stuck)
            raise
        self.give_back(hosted, stay)
        self._counts.evicted(hosted.instance.service)
        if was_stuck:
            if (retry := self._retries.pop(hosted, None)) is not None:
                retry.cancel()
            self._tell_capacity(stay.chunk)

    def hold(self, hosted: Hosted, *, was_stuck: bool = False) -> None:
        """Let an instance be stuck: it keeps what it has, until an eviction works."""
        assert hosted.there is not None
        hosted.stage = Stage.STUCK
        if not was_stuck:
            self._tell_capacity(hosted.there.chunk)
            self._retry(hosted, FIRST_RETRY_S)
        self.changed(hosted.there.chunk)

    def give_back(self, hosted: Hosted, stay: Stay) -> None:
        """Give back what an instance has; an engine that sleeps keeps a little."""
        for place in stay.places:
            if place.region is not None:
                place.device.free(place.region)
        stay.places = []
        hosted.stage, hosted.there = Stage.EVICTED, None
        for site in self._of(stay.chunk):
            site.takes(hosted, hosted.footprint.evicted_bytes)
        self.changed(stay.chunk)

    def dies(self, hosted: Hosted, error: Exception) -> None:
        """Give back what a resident had that is no more, unless it is still held, and tell of it."""
        assert hosted.there is not None
        held = isinstance(error, StillHeldError)
        if not held:
            self.give_back(hosted, hosted.there)
        self._counts.lost(hosted.instance.service)
        if hosted.stay is not None and not hosted.stay.over:
            hosted.stay.over = True
            self._telling.lost(hosted.instance, error)
        if held:  # told last, so that it is not counted twice in between
            self.hold(hosted)

    def changed(self, chunk: Chunk) -> None:
        """Something has changed for all who wait for room on these devices."""
        for site in self._of(chunk):
            site.changed()

    def close(self) -> None:
        """Try nothing again any more."""
        self._closed = True
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()

    def _retry(self, hosted: Hosted, delay_s: float) -> None:
        if not self._closed:
            loop = asyncio.get_running_loop()
            self._retries[hosted] = loop.call_later(delay_s, self._try_again, hosted, delay_s)

    def _try_again(self, hosted: Hosted, delay_s: float) -> None:
        del self._retries[hosted]
        if hosted.stage is Stage.EVICTED:
            return
        self._retry(hosted, min(2 * delay_s, LONGEST_RETRY_S))
        if hosted.stage is Stage.STUCK and (hosted.last is None or hosted.last.done()):
            self._again(hosted)

    def _tell_capacity(self, chunk: Chunk) -> None:
        for site in self._of(chunk):
            self._telling.capacity(site.number, site.usable_bytes)

    def _of(self, chunk: Chunk) -> Iterable[Site]:
        return (self._sites[number] for number in chunk.devices)
