"""Drives a `GpuManager` by the real `Seats`: what the dispatcher does, with nothing else around it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from arl_tangram.errors import RestoreError
from arl_tangram.managers.gpu.lease import GpuLease
from arl_tangram.managers.gpu.manager import GpuManager
from arl_tangram.model.gpu import Instance, Seat
from arl_tangram.scheduling.gpu.eviction import make_eviction
from arl_tangram.scheduling.gpu.request import SeatRequest
from arl_tangram.scheduling.gpu.seats import Seats


class Driver:
    """Seats those who ask, in the order in which they asked; decides once in a turn of the loop.

    Attributes:
        most_passed: by service, the most who came later and sat down before somebody on the first device, for each who
            waited before it, itself included.
    """

    def __init__(self, manager: GpuManager) -> None:
        self.manager = manager
        self.seats = Seats(manager.nodes, manager.services, make_eviction(manager.policy))
        self.services = {service.name: service for service in manager.services}
        self.failures = 0
        self.most_passed: dict[str | None, float] = {}
        self._waiting: dict[int, tuple[SeatRequest, asyncio.Future[GpuLease]]] = {}
        self._passed: dict[int, int] = {}  # who came later and has sat down, for each one that waits
        self._first: dict[int, int] = {}  # how many waited before it
        self._loop = asyncio.get_running_loop()
        self._due = False
        self._timer: asyncio.TimerHandle | None = None
        self._next_id = 0
        manager.listen(self)

    async def run(
        self,
        service: str | None,
        body: Callable[[GpuLease], Awaitable[Any]],
        *,
        dops: Sequence[int] | None = None,
        expected_s: float = 1.0,
    ) -> Any:
        """Run a body with a seat; tried again where a restore has failed, until the scheduler gives up."""
        dops = tuple(dops or (self.services[service].dops if service else (1,)))
        self._next_id += 1
        request = SeatRequest(self._next_id, service, dops, tuple(expected_s / dop for dop in dops))
        self.seats.check(request)
        while True:
            lease = await self._seated(request)
            has_seat = True
            try:
                try:
                    await lease.ready()
                except RestoreError:
                    if lease.seat.instance is None:
                        raise
                    self.failures += 1
                    has_seat = False  # it was taken from it when the failure was told
                    continue
                return await body(lease)
            finally:
                lease.release()
                if has_seat:
                    self.seats.rise(request.action_id, self._loop.time())
                self.wake()

    async def _seated(self, request: SeatRequest) -> GpuLease:
        found: asyncio.Future[GpuLease] = self._loop.create_future()
        for waiting in self._waiting:
            self._first[waiting] += waiting > request.action_id  # one whose restore has failed takes its old place
        self._first[request.action_id] = sum(waiting < request.action_id for waiting in self._waiting)
        self._waiting[request.action_id] = (request, found)
        self._passed.setdefault(request.action_id, 0)
        self.wake()
        try:
            return await found
        except asyncio.CancelledError:
            if self._waiting.pop(request.action_id, None) is None and found.done() and not found.cancelled():
                found.result().release()  # granted in the turn in which it was cancelled
                self.seats.rise(request.action_id, self._loop.time())
            self.seats.forget(request.action_id)
            self.wake()
            raise

    def wake(self) -> None:
        """Decide in the next turn of the loop."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._decide)

    # What the manager tells.

    def restored(self, instance: Instance, took_s: float) -> None:
        self.seats.restored(instance, took_s, self._loop.time())
        self.wake()

    def failed(self, instance: Instance, error: Exception) -> None:
        self.seats.failed(instance, self._loop.time())
        self.wake()

    def lost(self, instance: Instance, error: Exception) -> None:
        self.seats.lost(instance, self._loop.time())
        self.wake()

    def capacity(self, device: int, capacity_bytes: int) -> None:
        self.seats.set_capacity(device, capacity_bytes, self._loop.time())
        self.wake()

    # Deciding.

    def _decide(self) -> None:
        self._due = False
        now_s = self._loop.time()
        placing_barred, barred, until_s = False, set[str | None](), list[float]()
        for action_id in sorted(self._waiting):
            request, found = self._waiting[action_id]
            if found.done() or request.service in barred:
                continue
            upcoming = [r.service for i, (r, _) in self._waiting.items() if i > action_id and r.service][:32]
            heeds = action_id.__gt__ if placing_barred else None
            seat = self.seats.find(request, now_s, upcoming=upcoming, heeds=heeds)
            self._evict_for_nobody()
            if seat is not None:
                self._sit(request, seat, found)
                continue
            if not placing_barred:
                if self.seats.hopeless(request, now_s):
                    self._give_up(request, found)
                    continue
                wait = self.seats.pass_over(request, now_s)
                placing_barred = wait.placing
                if wait.until_s is not None:
                    until_s.append(wait.until_s)
            if request.service is not None:
                barred.add(request.service)
        self._evict_for_nobody()
        self._arm(min(until_s, default=None))

    def _sit(self, request: SeatRequest, seat: Seat, found: asyncio.Future[GpuLease]) -> None:
        del self._waiting[request.action_id]
        self.seats.sit(request, seat, self._loop.time())
        self._evict_for_nobody()
        found.set_result(self.manager.take(seat))
        passed = self._passed.pop(request.action_id) / (self._first[request.action_id] + 1)
        self.most_passed[request.service] = max(passed, self.most_passed.get(request.service, 0))
        if 0 in seat.chunk.devices:
            for waiting in self._passed:
                self._passed[waiting] += waiting < request.action_id

    def _give_up(self, request: SeatRequest, found: asyncio.Future[GpuLease]) -> None:
        del self._waiting[request.action_id]
        self._passed.pop(request.action_id)
        self.seats.forget(request.action_id)
        found.set_exception(RestoreError(f"{request.service} could not be restored anywhere"))

    def _evict_for_nobody(self) -> None:
        for instance in self.seats.take_evicted():
            self.manager.evict(instance)

    def _arm(self, at_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            self._timer = self._loop.call_at(max(at_s, self._loop.time()), self.wake)

    def close(self) -> None:
        """Decide nothing more."""
        self._arm(None)
        assert not self._waiting
