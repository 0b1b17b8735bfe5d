"""The grants of cores on one daemon: applies them, takes them back, and moves them when cores go or come."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from functools import partial

from arl_tangram.errors import AllocationError, InfrastructureError, SandboxLostError
from arl_tangram.managers.cores import Cores, Placement
from arl_tangram.managers.docker.available import AvailableCores, CoreWatch
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.managers.lease import SandboxLease
from arl_tangram.managers.manager import CpuLease
from arl_tangram.managers.usage import UsageMeter


class Leases:
    """The grants of cores on one daemon.

    Args:
        cores: of the pool on this daemon.
        said: what the daemon is called in messages.
        available: where it is seen which cores are online; None while that is not known.
        on_capacity: told how many cores there are when some have gone or come.
    """

    def __init__(
        self,
        cores: Cores,
        *,
        said: str,
        available: Callable[[], AvailableCores | None],
        on_capacity: Callable[[int], None],
    ) -> None:
        self._cores = cores
        self._said = said
        self._available = available
        self._watch = CoreWatch(cores, on_moved=self._place, on_capacity=on_capacity)
        self._leased: dict[int, DockerSandbox] = {}
        self._numbers = itertools.count(1)

    def lease(self, milli_cores: int, sandbox: DockerSandbox | None, *, again: bool) -> CpuLease:
        """Apply a grant; see `DockerManager.lease`."""
        if not self._watch.is_following and (available := self._available()) is not None:
            self._watch.follow(available)
        self._watch.look()  # no core is given away that is offline now
        key = next(self._numbers)
        try:
            moved = self._cores.take(key, milli_cores, beyond=again)
        except ValueError as error:
            if not self._cores.offline:
                raise  # a defect of whoever asks
            raise AllocationError(f"cores of {self._said} went offline before they could be given: {error}") from error
        meter = UsageMeter()
        lease = SandboxLease(
            sandbox, meter, lambda: self._cores.placement(key).core_ids, partial(self._give_back, key, meter)
        )
        if sandbox is not None:
            self._leased[key] = sandbox
            try:
                sandbox.place(moved.pop(key))
            except OSError as error:
                lease.release()
                if isinstance(error, InfrastructureError):
                    raise
                sandbox.check()
                raise SandboxLostError(f"sandbox {sandbox.id} does not take its cores: {error}") from error
            sandbox.begin(milli_cores, meter)
        self._place(moved)
        return lease

    def tell_if_short(self) -> None:
        """Tell how many cores there are if some are offline."""
        if self._cores.is_short:
            self._watch.tell()

    def close(self) -> None:
        """Look no more which cores are online."""
        self._watch.close()

    def _give_back(self, key: int, meter: UsageMeter) -> None:
        sandbox = self._leased.pop(key, None)
        if sandbox is not None:
            sandbox.end(meter)
        self._place(self._cores.give_back(key))

    def _place(self, moved: Mapping[int, Placement]) -> None:
        """Move fractions whose shared cores have changed."""
        for key, placement in moved.items():
            if key in self._leased:
                with contextlib.suppress(OSError):  # that sandbox is dying, which its own action hears
                    self._leased[key].place(placement)
