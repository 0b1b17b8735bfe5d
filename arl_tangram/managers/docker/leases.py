"""The grants of cores on one daemon: as in any pool, but cores go offline and come back."""

from __future__ import annotations

from collections.abc import Callable

from arl_tangram.errors import AllocationError
from arl_tangram.managers.cores import Cores
from arl_tangram.managers.docker.available import AvailableCores, CoreWatch
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.managers.leasing import Leasing
from arl_tangram.managers.manager import CpuLease


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
        self._leasing = Leasing(cores, look=self.look)
        self._watch = CoreWatch(cores, on_moved=self._leasing.place, on_capacity=on_capacity)

    def lease(self, milli_cores: int, sandbox: DockerSandbox | None, *, again: bool, most: int) -> CpuLease:
        """Apply a grant; see `DockerManager.lease`."""
        try:
            return self._leasing.lease(milli_cores, sandbox, again=again, most=most)
        except ValueError as error:
            if not self._cores.offline:
                raise  # a defect of whoever asks
            raise AllocationError(f"cores of {self._said} went offline before they could be given: {error}") from error

    def look(self) -> None:
        """See which cores are online, so that none is given away or asked for that is not."""
        if not self._watch.is_following and (available := self._available()) is not None:
            self._watch.follow(available)
        self._watch.look()

    def tell_if_short(self) -> None:
        """Tell how many cores there are if some are offline."""
        if self._cores.is_short:
            self._watch.tell()

    def close(self) -> None:
        """Look no more which cores are online."""
        self._watch.close()
