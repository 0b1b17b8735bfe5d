"""Which cores containers can have now: cores go offline and come back, and the cgroup above the containers' tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from arl_tangram.managers.cores import Cores, Placement
from arl_tangram.managers.host.cgroup import SandboxGroup
from arl_tangram.managers.host.hierarchy import FILES
from arl_tangram.managers.host.machine import parse_cpulist

LOOK_EVERY_S = 1.0  # only while cores are missing


class AvailableCores:
    """Reads the cores of the cgroup that contains those of the containers.

    Args:
        file: what tells the cores that are in effect there.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._told = ""

    @classmethod
    def above(cls, group: SandboxGroup) -> AvailableCores | None:
        """Return those of the cgroup above a container's; None if it tells nothing."""
        # Of version 2, a cgroup between may be without the controller.
        for parent in list(group.folders["cpuset"].parents)[:8]:
            file = parent / FILES[group.version].effective_cpus
            if file.exists():
                return cls(file)
        return None

    def read(self) -> Collection[int] | None:
        """Return the cores if they have changed since the last time; None if not, or if nothing is told."""
        try:
            told = self._file.read_text()
        except OSError:
            return None
        if told == self._told:
            return None
        self._told = told
        return parse_cpulist(told) or None


class CoreWatch:
    """Keeps the cores of a pool to those that are online.

    A cgroup gives no sign when its cores change, so it is read before each grant, which takes 0.01 ms, and now and
    then while some are missing: somebody may wait for just those.

    Args:
        cores: of the pool.
        on_moved: takes the fractions that were moved away from a core.
        on_capacity: told how many cores there are, when that has changed; in a turn of the loop of its own.
    """

    def __init__(
        self,
        cores: Cores,
        *,
        on_moved: Callable[[Mapping[int, Placement]], None],
        on_capacity: Callable[[int], None],
    ) -> None:
        self._cores = cores
        self._on_moved = on_moved
        self._on_capacity = on_capacity
        self._available: AvailableCores | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._telling: asyncio.Handle | None = None

    @property
    def is_following(self) -> bool:
        """Whether it knows where to look."""
        return self._available is not None

    def follow(self, available: AvailableCores) -> None:
        """Look there from now on."""
        self._available = available
        self.look()

    def look(self) -> None:
        """Take cores that are gone from the pool, and give it those that are back."""
        if self._available is None or (core_ids := self._available.read()) is None:
            return
        before = self._cores.capacity
        self._on_moved(self._cores.set_available(core_ids))
        if self._cores.capacity != before:
            self.tell()
        self._arm()

    def tell(self) -> None:
        """Tell how many cores there are, in another turn of the loop."""
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_soon(self._tell)

    def close(self) -> None:
        """Look no more."""
        self._available = None
        for handle in (self._timer, self._telling):
            if handle is not None:
                handle.cancel()

    def _tell(self) -> None:
        self._telling = None
        self._on_capacity(self._cores.capacity)

    def _look_again(self) -> None:
        self._timer = None
        self.look()
        self._arm()

    def _arm(self) -> None:
        """Look again after a while if cores are missing."""
        if self._timer is None and self._cores.is_short:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look_again)
