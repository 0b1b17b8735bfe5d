"""Make real what the scheduler has decided: evictions, restores, and devices that are given to a process.

Decisions come in order, and are made real by tasks that nobody cancels. Each waits for what was decided before it and
concerns it, or took its place in line before it; never for who is behind it, so that there is no circle of waiting:

- an eviction waits for the transition of its instance before it;
- a restore first waits for the transition of its instance before it, and holds up nobody while it does: that may be an
  eviction from other devices which takes long. Then it takes its place in line on its devices: behind all evictions
  there that were decided by then, and all who have a place already. Then it takes its memory, device by device: as the
  scheduler has counted it, it fits. Then it is copied, one after the other on each device, so that the first is there
  as soon as can be;
- devices for a process wait in the same way, and then have the memory of their arenas given up. Who comes next takes it
  back.

What fails gives back what it had, is told to the listener, and then to those who wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from contextvars import Context
from typing import Any

from arl_tangram.errors import RestoreError, ServiceLostError, ShutdownError, TangramError
from arl_tangram.managers.gpu.instances.backend import StillHeldError
from arl_tangram.managers.gpu.instances.counts import Counts
from arl_tangram.managers.gpu.instances.evictions import Evictions
from arl_tangram.managers.gpu.instances.hosted import Hosted, Stage, Stay, ended
from arl_tangram.managers.gpu.instances.listener import Telling
from arl_tangram.managers.gpu.instances.room import Room
from arl_tangram.managers.gpu.instances.site import Site
from arl_tangram.model.gpu import Chunk

Before = Iterable["asyncio.Future[None] | None"]
Turn = tuple[Before, "asyncio.Future[None]"]
"""A place in line on devices: what has to be over before it, and what is to be done when it is."""

_logger = logging.getLogger("arl_tangram")


class Transitions:
    """Makes decisions real; used from one event loop.

    Args:
        sites: the devices, by number; more may be added.
        counts: where to count.
        telling: the way to the listener.
    """

    def __init__(self, sites: Sequence[Site], counts: Counts, telling: Telling) -> None:
        self._sites = sites
        self._counts = counts
        self._telling = telling
        self._evictions = Evictions(sites, counts, telling, self._evict_again)
        self._room = Room(self._evictions, counts)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # Decisions.

    def restore(self, hosted: Hosted, chunk: Chunk) -> Stay:
        """Begin a stay of an instance on a chunk."""
        stay = Stay(chunk, self._outcome())
        is_free = (hosted.last is None or hosted.last.done()) and hosted.stage is not Stage.STUCK
        turn = self._comes(self._of(chunk)) if is_free else None
        restore = self._restore(hosted, stay, hosted.last, turn)
        hosted.stay = stay
        hosted.last = self._begin(restore, f"restore {hosted.instance}")
        return stay

    def evict(self, hosted: Hosted) -> None:
        """End the stay of an instance, if it has one."""
        stay = hosted.stay
        if stay is None or stay.over:
            return
        stay.over = True
        task = hosted.last = self._begin(self._evict(hosted, hosted.last), f"evict {hosted.instance}")
        for site in self._of(stay.chunk):
            site.leaving.add(task)
            task.add_done_callback(site.leaving.discard)

    def try_again(self, hosted: Hosted) -> list[asyncio.Future[None]]:
        """Evict at once what is stuck, unless that is under way; return what is done when it was tried, if anything."""
        if hosted.stage is Stage.STUCK and (hosted.last is None or hosted.last.done()):
            self._evict_again(hosted)
        return [] if hosted.last is None else [hosted.last]

    def empty(self, chunk: Chunk) -> asyncio.Future[None]:
        """Give devices to a process, once nothing is on them; return what is done then, or fails."""
        sites = self._of(chunk)
        coming = self._outcome()
        before, settled = self._comes(sites)
        _ = self._begin(self._empty(sites, before, settled, coming), f"empty devices from number {chunk.first}")
        return coming

    def lost(self, hosted: Hosted, error: Exception) -> None:
        """An instance has died by itself."""
        if hosted.stage is Stage.RESTORING:
            hosted.died = error
        elif hosted.stage is Stage.RESIDENT:
            self._evictions.dies(hosted, error)

    async def aclose(self, limit_s: float) -> None:
        """Let nothing new begin, and wait for what has begun; what takes longer is cancelled."""
        self._closed = True
        self._evictions.close()
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=limit_s)
        for task in late:
            _logger.error("%s has not ended in %g s; the GPU pool closes without it", task.get_name(), limit_s)
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1)

    def _of(self, chunk: Chunk) -> list[Site]:
        return [self._sites[number] for number in chunk.devices]

    def _comes(self, sites: Sequence[Site]) -> Turn:
        """Let somebody be the next to take memory of devices.

        Returns:
            What has to be over before that, and what is to be done when it has its memory or has failed.
        """
        settled: asyncio.Future[None] = self._loop.create_future()
        before: list[asyncio.Future[None] | None] = []
        for site in sites:
            before += [*site.leaving, site.settled]
            site.settled = settled
        return before, settled

    def _outcome(self) -> asyncio.Future[None]:
        """Return a future of which an error need not be looked at."""
        coming: asyncio.Future[None] = self._loop.create_future()
        coming.add_done_callback(lambda done: done.cancelled() or done.exception())
        return coming

    def _begin(self, steps: Coroutine[Any, Any, None], name: str) -> asyncio.Future[None]:
        # In a context of its own: what it does is not done for the action that happened to ask first.
        task = self._loop.create_task(steps, name=name, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _check_open(self) -> None:
        if self._closed:
            raise ShutdownError("the GPU pool was closed meanwhile")

    # Making them real.

    async def _restore(self, hosted: Hosted, stay: Stay, last: asyncio.Future[None] | None, turn: Turn | None) -> None:
        sites = self._of(stay.chunk)
        try:
            if turn is None:
                await self._leave(hosted, stay, last)
                turn = self._comes(sites)
            before, settled = turn
            try:
                await ended(before)
                self._check_open()
                hosted.stage, hosted.there, hosted.died = Stage.RESTORING, stay, None
                await self._room.take(hosted, stay, sites)
                earlier, copied = self._copies(hosted, sites)
            finally:
                settled.set_result(None)
            try:
                await ended(earlier)
                took_s = await self._bring(hosted, stay)
            finally:
                copied.set_result(None)
        except Exception as error:  # noqa: BLE001 - told to all who wait
            self._fails(hosted, stay, error)
            return
        except BaseException:  # somebody ends the loop: a copy may go on, so that its memory is not given back
            stay.coming.set_exception(ShutdownError("the event loop ends"))
            raise
        hosted.stage = Stage.RESIDENT
        for site in sites:
            site.takes(hosted, hosted.footprint.resident_bytes)
            site.changed()
        self._counts.restored(hosted.instance.service, took_s)
        if not stay.over:
            self._telling.restored(hosted.instance, took_s)
        stay.coming.set_result(None)

    async def _leave(self, hosted: Hosted, stay: Stay, last: asyncio.Future[None] | None) -> None:
        """Wait until an instance is nowhere, so that it can be restored; nobody is behind it meanwhile.

        Raises:
            ServiceLostError: it was decided meanwhile to evict it. Somebody in line may wait for that eviction, which
                waits for this restore: behind them, it would wait for itself.
        """
        await ended([last])
        self._check_open()
        if hosted.stage is Stage.STUCK:
            await self._evictions.let_go(hosted)
        if stay.over:
            raise ServiceLostError(f"{hosted.instance} was to be evicted before it was restored")

    async def _bring(self, hosted: Hosted, stay: Stay) -> float:
        """Restore an instance to its places; return how long that took."""
        self._check_open()
        began_at_s = self._loop.time()
        await hosted.backend.restore(hosted.instance.dop, stay.places)
        if hosted.died is not None:
            raise RestoreError(f"it died as soon as it was restored: {hosted.died}") from hosted.died
        return self._loop.time() - began_at_s

    def _copies(self, hosted: Hosted, sites: Sequence[Site]) -> tuple[Before, asyncio.Future[None]]:
        """Let an instance be the next that is copied to its devices; return what is before it, and what it ends by."""
        copied: asyncio.Future[None] = self._loop.create_future()
        if hosted.backend.keeps_memory:
            return (), copied
        earlier = [site.copied for site in sites]
        for site in sites:
            site.copied = copied
        return earlier, copied

    def _fails(self, hosted: Hosted, stay: Stay, error: Exception) -> None:
        """Give back what a restore had, tell the listener, and then those who wait."""
        held = hosted.there is stay and isinstance(error, StillHeldError)
        if hosted.there is stay and not held:
            self._evictions.give_back(hosted, stay)
        if not isinstance(error, TangramError) or isinstance(error, RestoreError):
            self._counts.failed(hosted.instance.service)
            names = ", ".join(site.device.name for site in self._of(stay.chunk))
            cause, error = error, RestoreError(f"{hosted.instance} could not be restored on {names}: {error}")
            error.__cause__ = cause
        if not stay.over:
            stay.over = True
            self._telling.failed(hosted.instance, error)
        if held:  # told last, so that it is not counted twice in between
            self._evictions.hold(hosted)
        stay.coming.set_exception(error)

    async def _evict(self, hosted: Hosted, before: asyncio.Future[None] | None) -> None:
        await ended([before])
        if hosted.stage not in {Stage.RESIDENT, Stage.STUCK} or self._closed:
            return
        try:
            await self._evictions.let_go(hosted)
        except Exception as error:  # noqa: BLE001 - it is stuck, which was told
            _logger.warning("%s could not be evicted: %s", hosted.instance, error)

    def _evict_again(self, hosted: Hosted) -> None:
        hosted.last = self._begin(self._evict(hosted, None), f"evict {hosted.instance} again")

    async def _empty(
        self, sites: Sequence[Site], before: Before, settled: asyncio.Future[None], coming: asyncio.Future[None]
    ) -> None:
        try:
            await ended(before)
            self._check_open()
            for site in sites:
                if site.has_residents:
                    raise RestoreError(f"{site.device.name} is not free, though it was emptied: {site.in_words()}")
                if not site.is_away:
                    site.is_away = True
                    await site.device.vacate()
        except Exception as error:  # noqa: BLE001 - told to who waits
            coming.set_exception(error)
        else:
            coming.set_result(None)
        finally:
            settled.set_result(None)
            if not coming.done():
                coming.set_exception(ShutdownError("the event loop ends"))
