"""The cores of one running action: leased with the grant, lent while it waits for others, given back at its end.

Where actions share them, they change meanwhile, down to none and back. One that is suspended when it has back what it
lent has its lease again when it has cores.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from arl_tangram.managers.manager import CpuLease, CpuManager, ExecUsage, ManagedSandbox
from arl_tangram.uninterrupted import settled, unstoppable


class HeldCores:
    """What one action holds of a pool of cores; made with its first lease.

    Args:
        cpu: the manager of the pool.
        milli_cores: what was granted.
        sandbox: where it runs, or None for a host body.
        reserved: whether its trajectory holds them already, though the pool may have become smaller since.
        most: milli-cores that it may have at most while it runs; 0 for `milli_cores`.

    Raises:
        SandboxLostError: the sandbox is gone.
    """

    __slots__ = ("_cleaning", "_cpu", "_is_lent", "_lease", "_milli_cores", "_most", "_sandbox", "_usage")

    def __init__(
        self,
        cpu: CpuManager,
        milli_cores: int,
        sandbox: ManagedSandbox | None,
        reserved: bool = False,
        most: int = 0,
    ) -> None:
        self._cpu = cpu
        self._milli_cores = milli_cores
        self._most = most
        self._sandbox = sandbox
        self._is_lent = False
        self._usage: ExecUsage | None = None
        self._cleaning: asyncio.Task[None] | None = None
        self._lease: CpuLease | None = cpu.lease(milli_cores, sandbox, again=reserved, most=most)

    @property
    def core_ids(self) -> tuple[int, ...]:
        """The host's numbers of the cores; none while they are lent, or it is suspended."""
        return self._lease.core_ids if self._lease is not None and self._milli_cores else ()

    @property
    def is_leased(self) -> bool:
        """Whether commands can run; they wait while it is suspended."""
        return self._lease is not None

    async def applied(self) -> None:
        """Wait until `core_ids` are known; cancelling only ends the wait.

        Raises:
            InfrastructureError: the cores are lost.
        """
        if self._lease is not None:
            await self._lease.applied()

    @property
    def usage(self) -> ExecUsage:
        """What the commands took so far."""
        now = ExecUsage(0.0, 0.0) if self._lease is None else self._lease.usage
        if self._usage is None:
            return now
        return ExecUsage(self._usage.overhead_s + now.overhead_s, self._usage.cpu_s + now.cpu_s)

    def lend(self) -> bool:
        """Give the cores to others for a while; return False, and keep them, if something is alive on them."""
        if self._lease is not None and self._lease.needs_cleanup():
            return False
        self._is_lent = True
        if self._lease is None:
            return True
        usage = self.usage
        self._lease.release()
        self._usage, self._lease = usage, None
        return True

    def take_back(self) -> None:
        """Take as many cores as it is to have: those that were lent, or none if it is suspended.

        Raises:
            SandboxLostError: the sandbox is gone.
        """
        self._is_lent = False
        if self._lease is None and self._milli_cores:
            self._lease = self._cpu.lease(self._milli_cores, self._sandbox, again=True, most=self._most)

    def resize(self, milli_cores: int) -> None:
        """Have so many cores from now on, or none.

        Raises:
            AllocationError: the sandbox does not have them.
            SandboxLostError: the sandbox is gone.
        """
        self._milli_cores = milli_cores
        if self._lease is not None:
            self._lease.resize(milli_cores)
        elif not self._is_lent:
            self.take_back()

    def wake(self) -> None:
        """Let what an interrupted body cleans up go on, even if it is suspended."""
        if self._lease is not None:
            self._lease.wake()

    def kill(self) -> None:
        """Start to kill what the action started, unless that is going on or nothing may be alive."""
        if self._cleaning is None or self._cleaning.done():
            self._clean()

    def leave_at_once(self) -> bool:
        """Give the cores back if the action has left nothing behind; return whether that is so."""
        if self._cleaning is not None or (self._lease is not None and self._lease.needs_cleanup()):
            return False
        self.release()
        return True

    async def leave(self) -> BaseException | None:
        """Kill what the action left behind, then give the cores back; return what went wrong."""
        failure: BaseException | None = None
        with suppress(asyncio.CancelledError):  # whoever cancels says why elsewhere
            if self._cleaning is not None:
                await settled(self._cleaning)  # begun before the body ended, so another follows
        if (clean := self._clean()) is not None:
            with suppress(asyncio.CancelledError):
                await settled(clean)
            failure = None if clean.cancelled() else clean.exception()
        self.release()
        return failure

    def release(self) -> None:
        """Give the cores back as they are."""
        if self._lease is not None:
            self._lease.release()

    def _clean(self) -> asyncio.Task[None] | None:
        """Start to kill what the action started, if there may be anything."""
        if self._lease is None or not self._lease.needs_cleanup():
            return None
        self._cleaning = unstoppable(self._lease.clean())
        self._cleaning.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved
        return self._cleaning
