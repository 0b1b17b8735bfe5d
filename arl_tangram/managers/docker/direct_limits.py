"""The limits of a container of this machine, written into its cgroups."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from pathlib import Path

from arl_tangram.errors import AllocationError, InfrastructureError
from arl_tangram.managers.cores import Placement
from arl_tangram.managers.docker.allotment import (
    IDLE_QUOTA_US,
    SUSPENDED,
    Allotment,
    Wish,
    allotment_of,
    check_in_effect,
)
from arl_tangram.managers.docker.group import SessionGroup
from arl_tangram.managers.docker.limits import Shell
from arl_tangram.managers.host.cgroup import SandboxGroup

# What the kernel answers to cores that there are not, or not any more.
NOT_TAKEN = (errno.EINVAL, errno.ERANGE, errno.ENOSPC, errno.EACCES, errno.EBUSY)


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
        self._wish: Wish = None
        self._quota_us: int | None = IDLE_QUOTA_US
        self._comes_last = False
        self._is_last = False  # as that was written
        self._failure: AllocationError | None = None
        self._tell_granted: Callable[[], None] = lambda: None

    def want(self, wish: Wish) -> None:
        """Write, and read back; see `Limits.want`. The same wish is written again: others can have changed it."""
        self._wish = wish
        self._failure = None
        wanted = allotment_of(wish, self._idle_cores())
        try:
            self._write(wanted)
            check_in_effect(wanted, self._read(wanted))
            if isinstance(wish, Placement):
                self._tell_granted()
        except OSError as error:
            if wish is None:
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

    @contextlib.asynccontextmanager
    async def rush(self) -> AsyncGenerator[None]:
        """Lift the quota of a suspended container for a while; see `Limits.rush`."""
        with self._rush() if self._wish == SUSPENDED else contextlib.nullcontext():
            yield

    def session_group(self, number: int) -> SessionGroup:
        """Return the cgroup for a session; see `Limits.session_group`."""
        return SessionGroup(self._group.version, self._group.folders["freezer"] / f"arl_tangram-{number}", self._rush)

    def cpu_s(self) -> float | None:
        """Return the CPU time that all of the container took; None when it is gone."""
        try:
            return self._group.cpu_s()
        except (OSError, KeyError):
            return None

    @property
    def time_folder(self) -> Path:
        """The container's cgroup of the controller `cpu`."""
        return self._group.folders["cpu"]

    def forget(self) -> None:
        """Do nothing: every wish is written."""

    def listen(self, on_granted: Callable[[], None], on_failed: Callable[[InfrastructureError], None]) -> None:
        """Take who is told of a grant; a failure is raised at once."""
        self._tell_granted = on_granted

    def see_inside(self, shell: Shell) -> None:
        """Take nothing: the files tell."""

    async def aclose(self) -> None:
        """Leave nothing suspended; see `Limits.aclose`."""
        if self._wish == SUSPENDED:
            self.want(None)  # what cannot be removed yet takes less long to die than suspended

    def _write(self, wanted: Allotment) -> None:
        """Write both, the narrower first: at no moment is more permitted than by one of the two allotments."""
        rises = wanted.quota_us is None or (self._quota_us is not None and wanted.quota_us >= self._quota_us)
        if rises and wanted.core_ids:
            self._group.set_cores(wanted.core_ids)
        with self._lock:
            self._quota_us, self._comes_last = wanted.quota_us, wanted.comes_last
            self._write_time()
        if not rises and wanted.core_ids:
            self._group.set_cores(wanted.core_ids)

    def _write_time(self) -> None:
        """Limit its time, or lift these limits while something in it is being killed."""
        self._group.set_quota_us(None if self._rushing else self._quota_us)
        is_last = self._comes_last and not self._rushing
        if is_last is not self._is_last:
            self._group.set_weight(least=is_last)
            self._is_last = is_last

    def _read(self, wanted: Allotment) -> Allotment:
        """Read back; while the quota is lifted, it counts as what it is going to be, and so do cores that may stay."""
        with self._lock:
            quota_us = self._quota_us if self._rushing else self._group.quota_us()
        return Allotment(wanted.core_ids and self._group.effective_cores(), quota_us, wanted.comes_last)

    @contextlib.contextmanager
    def _rush(self) -> Generator[None]:
        """Lift the limits of its time for a while; on any thread."""
        with self._lock, contextlib.suppress(OSError):
            self._rushing += 1
            self._write_time()
        try:
            yield
        finally:
            with self._lock, contextlib.suppress(OSError):
                self._rushing -= 1
                self._write_time()


def _as_allocation_error(error: OSError, wanted: Allotment) -> AllocationError:
    if isinstance(error, AllocationError):
        return error
    return AllocationError(f"wanted {wanted}; the kernel does not take it: {error}")
