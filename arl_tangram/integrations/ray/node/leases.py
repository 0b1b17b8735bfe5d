"""The cores that sessions have on a node: applied when a lease is first told, given back when it is over.

Calls of a client begin here in any order, and those of two clients, too: a lease may be told before the release of the
one whose cores it gets. It waits then. Whoever counts, which is the owner, has counted it already, so that what it
waits for is on its way.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from arl_tangram.errors import AllocationError, TangramError, UsageError
from arl_tangram.integrations.ray.node.recent import Recent
from arl_tangram.integrations.ray.wire import LeaseNow, LeaseTold
from arl_tangram.managers.manager import CpuLease, CpuManager, ManagedSandbox, no_cores
from arl_tangram.managers.usage import UsageMeter
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.topology import CPU, resource_of
from arl_tangram.uninterrupted import settled, unstoppable


class Room:
    """The cores of a node, as far as leases wait for each other.

    Args:
        manager: that has them.
        limit_s: the most seconds that a lease waits for others to be released.
    """

    def __init__(self, manager: CpuManager, limit_s: float) -> None:
        self._manager = manager
        self._limit_s = limit_s
        self._used = 0
        self._most = 0
        self._changed = asyncio.Event()

    async def take(self, told: LeaseTold, sandbox: ManagedSandbox | None) -> CpuLease:
        """Apply a lease as soon as there is room.

        Raises:
            AllocationError: those that it waits for are not released.
            SandboxLostError: the sandbox is gone.
        """
        now_s = asyncio.get_running_loop().time
        give_up_at_s = now_s() + self._limit_s
        while True:
            lease = self._take(told, sandbox)
            if lease is not None:
                return lease
            self._changed.clear()
            try:
                async with asyncio.timeout(max(0.0, give_up_at_s - now_s())):
                    await self._changed.wait()
            except TimeoutError:
                raise AllocationError(
                    f"{told.milli_cores / MILLI:g} cores were granted, and those who have them have not released them "
                    f"within {self._limit_s:g} s"
                ) from None

    def give_back(self, told: LeaseTold, lease: CpuLease) -> None:
        """Take a lease back."""
        lease.release()
        self._used -= told.milli_cores
        self.look()

    def look(self) -> None:
        """Let those who wait look again, as there may be room."""
        self._changed.set()

    def _take(self, told: LeaseTold, sandbox: ManagedSandbox | None) -> CpuLease | None:
        offered = sum(d.capacity for d in self._manager.dimensions() if resource_of(d.name) == CPU)
        self._most = max(self._most, offered)
        # Cores that have left the pool are for those who had them before, and not for want of a release.
        if self._used + told.milli_cores > (self._most if told.again else offered):
            return None
        try:
            lease = self._manager.lease(told.milli_cores, sandbox, again=told.again)
        except ValueError:
            return None
        self._used += told.milli_cores
        return lease


class HeldLease:
    """One lease of a session, from when it is first told until it is over.

    Args:
        told: what was told of it.
        sandbox: where it is; None for a host body.
        room: where its cores come from.
        before: the lease that was in the sandbox before; it ends first.
    """

    def __init__(
        self, told: LeaseTold, sandbox: ManagedSandbox | None, room: Room, before: HeldLease | None = None
    ) -> None:
        self.told = told
        self._sandbox = sandbox
        self._room = room
        self._lease: CpuLease | None = None
        self._inside = UsageMeter()
        self._turns = 0
        self._ending: asyncio.Task[None] | None = None
        self._applying = asyncio.get_running_loop().create_task(self._apply(before))
        self._applying.add_done_callback(lambda done: done.cancelled() or done.exception())  # heard

    async def applied(self) -> CpuLease:
        """Wait until the cores are there; cancelling only ends the wait.

        Raises:
            AllocationError: the sandbox does not get them.
            SandboxLostError: the sandbox is gone.
            UsageError: it is over.
        """
        if not self._applying.done():
            await asyncio.wait([self._applying])
        if self._ending is not None or self._applying.cancelled():
            raise UsageError(self._no_cores())
        if (error := self._applying.exception()) is not None:
            raise error
        assert self._lease is not None
        return self._lease

    def was_inside(self, from_s: float, to_s: float) -> None:
        """Count the time inside one `exec`, as the lease does that."""
        self._inside.add_call(from_s, to_s)

    def now(self) -> LeaseNow:
        """Return what is known of it."""
        self._turns += 1
        if (lease := self._lease) is None:
            return LeaseNow(self._turns, False, 0.0, 0.0, ())
        usage = lease.usage
        own_s = max(0.0, self._inside.usage.overhead_s - usage.overhead_s)
        alive = self._ending is None and lease.needs_cleanup()
        return LeaseNow(self._turns, alive, own_s, usage.cpu_s, lease.core_ids)

    async def end(self) -> None:
        """Kill what it may have left, and give the cores back; bounded, idempotent, also when cancelled.

        Raises:
            SandboxLostError: something survived, and the sandbox was destroyed.
        """
        if self._ending is None:
            self._ending = unstoppable(self._end())
            self._ending.add_done_callback(lambda done: done.exception())  # heard
        await settled(self._ending)
        self._ending.result()

    async def _apply(self, before: HeldLease | None) -> None:
        if before is not None:
            with suppress(TangramError):  # the sandbox says so itself
                await before.end()
        self._lease = await self._room.take(self.told, self._sandbox)

    async def _end(self) -> None:
        self._applying.cancel()
        if not self._applying.done():
            await asyncio.wait([self._applying])
        if (lease := self._lease) is None:
            return
        try:
            if lease.needs_cleanup():
                await lease.clean()
        finally:
            self._room.give_back(self.told, lease)

    def _no_cores(self) -> str:
        return "these cores were given back" if self._sandbox is None else no_cores(self._sandbox.id)


class SessionLeases:
    """The leases of one session.

    Args:
        room: the cores of the node.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._over = Recent()
        self._held: dict[int, HeldLease] = {}
        self._latest: dict[int, HeldLease] = {}  # by the number of the sandbox

    def told(self, told: LeaseTold, number: int | None, sandbox: ManagedSandbox | None) -> HeldLease:
        """Return a lease, which is applied from now on if it is new.

        Args:
            told: what was told of it.
            number: of the sandbox.
            sandbox: itself.

        Raises:
            UsageError: it is over.
        """
        if (held := self._held.get(told.lease)) is not None:
            return held
        before = None if number is None else self._latest.get(number)
        if told.lease in self._over or (before is not None and before.told.lease > told.lease):
            raise UsageError("these cores were given back" if sandbox is None else no_cores(sandbox.id))
        held = self._held[told.lease] = HeldLease(told, sandbox, self._room, before)
        if number is not None:
            self._latest[number] = held
        return held

    async def end(self, lease: int) -> HeldLease | None:
        """End a lease, also one that was not told yet; return it if it was; see `HeldLease.end`."""
        self._over.add(lease)
        held = self._held.get(lease)
        if held is not None:
            try:
                await held.end()
            finally:
                self._forget(held)
        return held

    async def end_in(self, number: int) -> None:
        """End the lease that is in a sandbox, which was closed, if there is one."""
        if (held := self._latest.get(number)) is not None:
            with suppress(TangramError):  # of a sandbox that is closed anyway
                await self.end(held.told.lease)

    async def end_all(self) -> None:
        """End all leases; bounded, and errors are those of sandboxes that are closed anyway."""
        await asyncio.gather(*(self.end(lease) for lease in list(self._held)), return_exceptions=True)

    def _forget(self, held: HeldLease) -> None:
        self._held.pop(held.told.lease, None)
        for number in [number for number, latest in self._latest.items() if latest is held]:
            del self._latest[number]
