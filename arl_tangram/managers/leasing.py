"""The grants of cores of one pool: applies them to sandboxes, changes them, takes them back, and moves fractions."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from arl_tangram.errors import AllocationError, InfrastructureError, SandboxLostError
from arl_tangram.managers.cores import Cores, Placement
from arl_tangram.managers.lease import Killable, SandboxLease
from arl_tangram.managers.usage import UsageMeter


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
        """Let it have next to no time, on all cores of the pool, until it is placed again, ended or killed.

        New commands wait for that, and the deadlines of those that run stand still.

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


class Leasing:
    """The grants of cores of one pool.

    Args:
        cores: of the pool.
        look: called before any are given or changed: sees which are online.
    """

    def __init__(self, cores: Cores, *, look: Callable[[], None] = lambda: None) -> None:
        self._cores = cores
        self._look = look
        self._leased: dict[int, Placeable] = {}
        self._numbers = itertools.count(1)

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
            release=partial(self._give_back, key, meter),
        )
        self.place(moved)  # first: they have moved, whatever becomes of this one
        if sandbox is not None:
            self._leased[key] = sandbox
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
                    self._leased[key].place(placement)

    def _resize(self, key: int, milli_cores: int) -> None:
        self._look()
        try:
            moved = self._cores.change(key, milli_cores)
        except ValueError as error:
            if not self._cores.offline:
                raise  # a defect of whoever asks
            raise AllocationError(f"cores went offline before they could be given: {error}") from error
        own = moved.pop(key)
        self.place(moved)  # first: they have moved, whatever becomes of this one
        if (sandbox := self._leased.get(key)) is not None:
            sandbox.check()
            _apply(sandbox, partial(sandbox.place, own) if own.core_ids else sandbox.suspend)

    def _give_back(self, key: int, meter: UsageMeter) -> None:
        sandbox = self._leased.pop(key, None)
        if sandbox is not None:
            sandbox.end(meter)
        self.place(self._cores.give_back(key))


def _apply(sandbox: Placeable, change: Callable[[], None]) -> None:
    try:
        change()
    except OSError as error:
        if isinstance(error, InfrastructureError):
            raise
        sandbox.check()
        raise SandboxLostError(f"sandbox {sandbox.id} does not take its cores: {error}") from error
