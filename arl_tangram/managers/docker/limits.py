"""The limits of one container: what is granted, put in effect by direct writes or by the daemon, and read back."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Protocol

from arl_tangram.errors import AllocationError, InfrastructureError, SandboxLostError
from arl_tangram.managers.cores import Placement
from arl_tangram.managers.docker.allotment import (
    IDLE_QUOTA_US,
    LOOK_INSIDE,
    SUSPENDED_QUOTA_US,
    Allotment,
    allotment_of,
    check_in_effect,
    check_seen_inside,
)
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.group import SessionGroup
from arl_tangram.managers.host.cgroup import PERIOD_US, SandboxGroup, cpulist

IDLE_AFTER_S = 0.25
LOOK_LIMIT_S = 10.0
CLOSE_LIMIT_S = 1.0
FREEZE_LIMIT_S = 2.0
# What the kernel answers to cores that there are not, or not any more.
NOT_TAKEN = (errno.EINVAL, errno.ERANGE, errno.ENOSPC, errno.EACCES, errno.EBUSY)

Shell = Callable[[str], Awaitable[tuple[int, bytes, bytes]]]


class Limits(Protocol):
    """What one container may use; owns the order of the changes."""

    @property
    def is_direct(self) -> bool:
        """Whether this process writes the container's cgroups itself."""
        ...

    def want(self, grant: Placement | None) -> None:
        """Put a grant in effect before its commands start; None: idle, on all cores with little time. Synchronous.

        Direct writes are done at once. What a daemon must do is begun here, and awaited with `settled`.

        Raises:
            AllocationError: direct, and never for None: something else is in effect, and the container is idle again.
            OSError: direct, and never for None: the container is gone.
        """
        ...

    async def settled(self) -> None:
        """Wait until what was wanted last is in effect; at once if that is to be idle. Cancelling changes nothing.

        Raises:
            AllocationError: something else is in effect.
            SandboxLostError: the container is gone, or its daemon does not answer.
        """
        ...

    async def freeze(self) -> None:
        """Suspend what runs: it stands still, or (through a daemon) gets next to no time. Bounded.

        Raises:
            AllocationError: it did not work.
            SandboxLostError: the container is gone.
        """
        ...

    async def thaw(self) -> None:
        """Resume what was suspended. Bounded; raises as `freeze` does."""
        ...

    def session_group(self, number: int) -> SessionGroup | None:
        """Return the cgroup for a session, which need not exist; None if this process cannot have one."""
        ...

    def cpu_s(self) -> float | None:
        """Return the CPU time that all of the container took; None if this process cannot read it."""
        ...

    def see_inside(self, shell: Shell) -> None:
        """Take what runs a script of ours in the container; it must not wait for `settled`."""
        ...

    async def aclose(self) -> None:
        """Change nothing more, and leave nothing suspended. Bounded, never raises."""
        ...


class DirectLimits:
    """Writes the cgroup files of a container of this machine.

    Args:
        group: the container's cgroups, found and proved by `find_group`.
        idle_cores: asks for the cores of the pool, which an idle container may use.
    """

    is_direct = True

    def __init__(self, group: SandboxGroup, *, idle_cores: Callable[[], Sequence[int]]) -> None:
        self._group = group
        self._idle_cores = idle_cores
        self._lock = threading.Lock()  # of the quota: what is killed is killed on other threads
        self._rushing = 0
        self._quota_us: int | None = IDLE_QUOTA_US
        self._failure: AllocationError | None = None
        self._frozen = False

    def want(self, grant: Placement | None) -> None:
        """Write, and read back; see `Limits.want`. The same grant is written again: others can have changed it."""
        self._failure = None
        wanted = allotment_of(grant, self._idle_cores())
        try:
            self._write(wanted)
            check_in_effect(wanted, self._read())
        except OSError as error:
            if grant is None:
                return  # it is gone, or some cores of the pool are; an action that it matters to hears it
            if error.errno in NOT_TAKEN or isinstance(error, AllocationError):
                self._failure = _as_allocation_error(error, wanted)
                with contextlib.suppress(OSError):
                    self._write(allotment_of(None, self._group.effective_cores()))
                raise self._failure from error
            raise

    async def settled(self) -> None:
        """Raise what the last `want` raised."""
        if self._failure is not None:
            raise self._failure

    async def freeze(self) -> None:
        """Freeze the container, and wait until all of it stands still; see `Limits.freeze`."""
        self._frozen = True
        try:
            self._group.freeze()
            deadline = time.monotonic() + FREEZE_LIMIT_S
            while not self._group.is_frozen():
                if time.monotonic() > deadline:
                    await self.thaw()
                    raise AllocationError(f"the container did not stand still within {FREEZE_LIMIT_S:g} s")
                await asyncio.sleep(0.0005)
        except OSError as error:
            raise _as_lost(error) from error

    async def thaw(self) -> None:
        """Let the container go on; see `Limits.thaw`."""
        self._frozen = False
        try:
            self._group.thaw()
        except OSError as error:
            raise _as_lost(error) from error

    def session_group(self, number: int) -> SessionGroup:
        """Return the cgroup for a session; see `Limits.session_group`."""
        return SessionGroup(self._group.version, self._group.folders["freezer"] / f"arl_tangram-{number}", self._rush)

    def cpu_s(self) -> float | None:
        """Return the CPU time that all of the container took; None when it is gone."""
        try:
            return self._group.cpu_s()
        except (OSError, KeyError):
            return None

    def see_inside(self, shell: Shell) -> None:
        """Take nothing: the files tell."""

    async def aclose(self) -> None:
        """Thaw what is frozen, which could not be killed; see `Limits.aclose`."""
        if self._frozen:
            with contextlib.suppress(SandboxLostError):
                await self.thaw()

    def _write(self, wanted: Allotment) -> None:
        """Write both, the narrower first: at no moment is more permitted than by one of the two allotments."""
        rises = wanted.quota_us is None or (self._quota_us is not None and wanted.quota_us >= self._quota_us)
        if rises:
            self._group.set_cores(wanted.core_ids)
        with self._lock:
            self._quota_us = wanted.quota_us
            self._group.set_quota_us(None if self._rushing else wanted.quota_us)
        if not rises:
            self._group.set_cores(wanted.core_ids)

    def _read(self) -> Allotment:
        """Read back; while the quota is lifted, it counts as what it is going to be."""
        with self._lock:
            quota_us = self._quota_us if self._rushing else self._group.quota_us()
        return Allotment(self._group.effective_cores(), quota_us)

    @contextlib.contextmanager
    def _rush(self) -> Generator[None]:
        """Lift the quota for a while; on any thread."""
        with self._lock, contextlib.suppress(OSError):
            self._rushing += 1
            self._group.set_quota_us(None)
        try:
            yield
        finally:
            with self._lock, contextlib.suppress(OSError):
                self._rushing -= 1
                if not self._rushing:
                    self._group.set_quota_us(self._quota_us)


class Updater(Protocol):
    """A daemon, as far as limits are concerned."""

    async def update(self, container_id: str, /, *, quota_us: int, period_us: int, cpus: str) -> None:
        """Change the limits of a container; no quota is -1. Raises `DaemonError`, at its own deadline at the latest."""
        ...


class ApiLimits:
    """Has a daemon change the limits of a container: one change at a time, only the one that was wanted last.

    An update that has begun is never given up: the daemon would do it nevertheless, at any time. To be idle is asked
    for a moment later, so that a sandbox whose next action comes at once, with the same grant, needs no update at all.

    Args:
        engine: the daemon.
        container_id: which container, created with the allotment of an idle one.
        idle_cores: asks for the cores of the pool, which an idle container may use.
        idle_after_s: how long after its last grant a container is made idle.
    """

    is_direct = False

    def __init__(
        self,
        engine: Updater,
        container_id: str,
        *,
        idle_cores: Callable[[], Sequence[int]],
        idle_after_s: float = IDLE_AFTER_S,
    ) -> None:
        self._engine = engine
        self._id = container_id
        self._idle_cores = idle_cores
        self._idle_after_s = idle_after_s
        self._grant: Placement | None = None
        self._suspended = False
        self._in_effect: Allotment | None = allotment_of(None, idle_cores())  # None: not known
        self._failure: InfrastructureError | None = None  # of what is wanted now
        self._becoming_idle: asyncio.TimerHandle | None = None
        self._work: asyncio.Task[None] | None = None
        self._shell: Shell | None = None
        self._closed = False

    def want(self, grant: Placement | None) -> None:
        """Remember it, and begin; see `Limits.want`."""
        self._grant = grant
        self._failure = None
        if self._becoming_idle is not None:
            self._becoming_idle.cancel()
            self._becoming_idle = None
        if grant is None and self._in_effect is not None:
            self._becoming_idle = asyncio.get_running_loop().call_later(self._idle_after_s, self._become_idle)
        else:
            self._begin()

    async def settled(self) -> None:
        """Wait for the daemon, and for the look inside; see `Limits.settled`."""
        while self._grant is not None or self._suspended:
            if self._failure is not None:
                raise self._failure
            if not self._begin():
                return
            await self._worked()

    async def freeze(self) -> None:
        """Leave it a hundredth of a core; see `Limits.freeze`."""
        self._suspended = True
        self._failure = None
        await self.settled()

    async def thaw(self) -> None:
        """Give it back what was granted; see `Limits.thaw`."""
        self._suspended = False
        self._failure = None
        await self.settled()

    def session_group(self, number: int) -> None:
        """Return None: cgroups of other machines, or of other users, are not ours to write."""

    def cpu_s(self) -> None:
        """Return None: they are not ours to read either."""

    def see_inside(self, shell: Shell) -> None:
        """Take what runs a script of ours in the container; see `Limits.see_inside`."""
        self._shell = shell

    async def aclose(self) -> None:
        """Wait for an update on its way, for a second at most; see `Limits.aclose`."""
        self._closed = True
        if self._becoming_idle is not None:
            self._becoming_idle.cancel()
        if self._work is not None:
            await asyncio.wait([self._work], timeout=CLOSE_LIMIT_S)
            self._work.cancel()

    async def _worked(self) -> None:
        if self._work is not None:
            await asyncio.wait([self._work])
            if not self._work.cancelled():
                self._work.result()

    def _wanted(self) -> Allotment | None:
        """Return what is to be in effect; None leaves it as it is."""
        if self._suspended:
            cores = allotment_of(self._grant, self._idle_cores()).core_ids
            return Allotment(cores, SUSPENDED_QUOTA_US)
        if self._becoming_idle is not None:
            return None
        return allotment_of(self._grant, self._idle_cores())

    def _begin(self) -> bool:
        """Have the work done if there is any; return whether there is."""
        if self._work is not None and not self._work.done():
            return True
        if self._closed or self._wanted() in (None, self._in_effect):
            return False
        self._work = asyncio.get_running_loop().create_task(self._catch_up(), name=f"limits of {self._id[:12]}")
        return True

    def _become_idle(self) -> None:
        self._becoming_idle = None
        self._begin()

    async def _catch_up(self) -> None:
        """Update until what is in effect is what is wanted, or that fails."""
        while not self._closed and (wanted := self._wanted()) is not None and wanted != self._in_effect:
            self._in_effect = None
            try:
                await self._update(wanted)
            except InfrastructureError as error:
                if wanted == self._wanted():
                    self._failure = error
                    return
            else:
                self._in_effect = wanted

    async def _update(self, wanted: Allotment) -> None:
        quota_us = -1 if wanted.quota_us is None else wanted.quota_us
        try:
            await self._engine.update(self._id, quota_us=quota_us, period_us=PERIOD_US, cpus=cpulist(wanted.core_ids))
        except DaemonError as error:
            raise _refused(error, wanted) from error
        # Idle or suspended, a look would take long, and nothing depends on it.
        if self._shell is not None and self._grant is not None and not self._suspended:
            await self._look(self._shell, wanted)

    async def _look(self, shell: Shell, wanted: Allotment) -> None:
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                _, told, _ = await shell(LOOK_INSIDE)
        except TimeoutError as error:
            raise AllocationError(f"wanted {wanted}; the container does not tell what is in effect") from error
        check_seen_inside(wanted, told)


def _refused(error: DaemonError, wanted: Allotment) -> InfrastructureError:
    if error.kind == "gone" or error.status in (404, 409):
        return SandboxLostError(f"wanted {wanted}: {error}")
    return AllocationError(f"wanted {wanted}; the daemon did not do it: {error}")


def _as_allocation_error(error: OSError, wanted: Allotment) -> AllocationError:
    if isinstance(error, AllocationError):
        return error
    return AllocationError(f"wanted {wanted}; the kernel does not take it: {error}")


def _as_lost(error: OSError) -> OSError:
    if isinstance(error, AllocationError):
        return error
    return SandboxLostError(f"the container is gone: {error}")
