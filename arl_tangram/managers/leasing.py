"""The grants of cores of one pool: applies them to sandboxes, changes them, takes them back, and moves fractions."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from arl_tangram.errors import AllocationError, InfrastructureError, SandboxLostError
from arl_tangram.managers.cores import Cores, Placement
from arl_tangram.managers.lease import Killable, SandboxLease
from arl_tangram.managers.usage import UsageMeter
from arl_tangram.model.quantities import MILLI

_logger = logging.getLogger(__name__)


class Placeable(Killable, Protocol):
    """A sandbox, as far as the cores of its actions are concerned."""

    @property
    def id(self) -> str:
        """Its name in messages."""
        ...

    def check(self) -> None:
        """Raise why it is lost, if it is."""
        ...

    def place(self, placement: Placement, /) -> None:
        """Let it have these cores; what is suspended goes on.

        Raises:
            OSError: it does not take them.
        """
        ...

    def suspend(self) -> None:
        """Let it have next to no time, on the cores that it had, until it is placed again, ended or killed.

        Those are others' from now on, in whose way it is not; what runs in it sees as many cores as before. New
        commands wait for that, and the deadlines of those that run stand still.

        Raises:
            OSError: it does not take that.
        """
        ...

    def begin(self, milli_cores: int, meter: UsageMeter, /) -> None:
        """Open it for the commands of an action.

        Args:
            milli_cores: the most that it ever has, which its commands are told.
            meter: adds up what they take.
        """
        ...

    def end(self, meter: UsageMeter | None = None, /) -> None:
        """Close it for commands until the next action begins; with a meter, unless that has happened already.

        What is suspended goes on.
        """
        ...


@dataclass(slots=True)
class _Leased:
    """A sandbox with cores.

    Attributes:
        had: its cores before it was suspended the last time.
        stays_awake: whether it is not to be suspended any more.
    """

    sandbox: Placeable
    had: Placement | None = None
    stays_awake: bool = False


class Leasing:
    """The grants of cores of one pool.

    Args:
        cores: of the pool.
        look: called before any are given or changed: sees which are online.
    """

    def __init__(self, cores: Cores, *, look: Callable[[], None] = lambda: None) -> None:
        self._cores = cores
        self._look = look
        self._leased: dict[int, _Leased] = {}
        self._numbers = itertools.count(1)
        self._has_told = False

    def lease(self, milli_cores: int, sandbox: Placeable | None, *, again: bool, most: int = 0) -> SandboxLease:
        """Apply a grant; if that fails, nothing of it is left. See `CpuManager.lease`.

        Args:
            milli_cores: how much.
            sandbox: what is placed on the cores; None for a host body.
            again: whether it may use cores that have left the pool.
            most: milli-cores that it may ever have, if that is more.

        Raises:
            ValueError: there is no room.
            AllocationError: the sandbox does not have the cores.
            SandboxLostError: the sandbox is gone.
        """
        self._look()
        key, meter = next(self._numbers), UsageMeter()
        moved = self._cores.take(key, milli_cores, beyond=again)
        own = moved.pop(key)
        lease = SandboxLease(
            sandbox,
            meter,
            core_ids=lambda: self._cores.placement(key).core_ids,
            resize=partial(self._resize, key),
            wake=partial(self._wake, key),
            release=partial(self._give_back, key, meter),
        )
        self.place(moved)  # first: they have moved, whatever becomes of this one
        if sandbox is not None:
            self._leased[key] = _Leased(sandbox)
            try:
                _apply(sandbox, partial(sandbox.place, own))
            except BaseException:
                lease.release()
                sandbox.end()  # it has not begun, so the release did not do that
                raise
            sandbox.begin(max(milli_cores, most), meter)
        return lease

    def place(self, moved: Mapping[int, Placement]) -> None:
        """Move fractions whose shared cores have changed."""
        for key, placement in moved.items():
            if key in self._leased:
                with contextlib.suppress(OSError):  # that sandbox is dying, which its own action hears
                    self._leased[key].sandbox.place(placement)

    def _resize(self, key: int, milli_cores: int) -> None:
        self._look()
        before = self._cores.placement(key)
        moved = self._change(key, milli_cores)
        own = moved.pop(key)
        self.place(moved)  # first: they have moved, whatever becomes of this one
        if (leased := self._leased.get(key)) is not None:
            if before.core_ids:
                leased.had = before
            leased.sandbox.check()
            if own.core_ids:
                _apply(leased.sandbox, partial(leased.sandbox.place, own))
            elif not leased.stays_awake:
                _apply(leased.sandbox, leased.sandbox.suspend)

    def _change(self, key: int, milli_cores: int) -> dict[int, Placement]:
        """Change a grant; with too few cores online, it gets those that there are, as long as it has any then."""
        try:
            return self._cores.change(key, milli_cores)
        except ValueError as error:
            if not self._cores.offline:
                raise  # a defect of whoever asks
            count = len(self._cores.placement(key).core_ids) + self._cores.free
            if count == 0:
                raise AllocationError(f"cores went offline before they could be given: {error}") from error
            if not self._has_told:
                self._has_told = True
                _logger.warning("cores went offline before a running action could have them: %s", error)
            return self._cores.change(key, count * MILLI)

    def _wake(self, key: int) -> None:
        if (leased := self._leased.get(key)) is None:
            return
        leased.stays_awake = True
        if leased.had is not None and not self._cores.placement(key).core_ids:
            self._look()
            with contextlib.suppress(OSError):  # what is dying needs no time, which its own action hears
                leased.sandbox.place(self._as_far_as_online(leased.had))

    def _as_far_as_online(self, had: Placement) -> Placement:
        away = self._cores.offline
        if away.isdisjoint(had.core_ids):
            return had
        online = tuple([core for core in had.core_ids if core not in away]) or self._cores.core_ids[:1]
        return Placement(online, len(online) * MILLI)

    def _give_back(self, key: int, meter: UsageMeter) -> None:
        leased = self._leased.pop(key, None)
        if leased is not None:
            leased.sandbox.end(meter)
        self.place(self._cores.give_back(key))


def _apply(sandbox: Placeable, change: Callable[[], None]) -> None:
    try:
        change()
    except OSError as error:
        if isinstance(error, InfrastructureError):
            raise
        sandbox.check()
        raise SandboxLostError(f"sandbox {sandbox.id} does not take its cores: {error}") from error
