"""The grants of cores of one pool: applies them to sandboxes, takes them back, and moves fractions that must move."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from arl_tangram.errors import InfrastructureError, SandboxLostError
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
        """Let it have these cores.

        Raises:
            OSError: it does not take them.
        """
        ...

    def begin(self, milli_cores: int, meter: UsageMeter, /) -> None:
        """Open it for the commands of an action."""
        ...

    def end(self, meter: UsageMeter | None = None, /) -> None:
        """Close it for commands until the next action begins; with a meter, unless that has happened already."""
        ...


class Leasing:
    """The grants of cores of one pool.

    Args:
        cores: of the pool.
    """

    def __init__(self, cores: Cores) -> None:
        self._cores = cores
        self._leased: dict[int, Placeable] = {}
        self._numbers = itertools.count(1)

    def lease(self, milli_cores: int, sandbox: Placeable | None, *, again: bool) -> SandboxLease:
        """Apply a grant; if that fails, nothing of it is left. See `CpuManager.lease`.

        Args:
            milli_cores: how much.
            sandbox: what is placed on the cores; None for a host body.
            again: whether it may use cores that have left the pool.

        Raises:
            ValueError: there is no room.
            AllocationError: the sandbox does not have the cores.
            SandboxLostError: the sandbox is gone.
        """
        key, meter = next(self._numbers), UsageMeter()
        moved = self._cores.take(key, milli_cores, beyond=again)
        own = moved.pop(key)
        lease = SandboxLease(
            sandbox, meter, lambda: self._cores.placement(key).core_ids, partial(self._give_back, key, meter)
        )
        self.place(moved)  # first: they have moved, whatever becomes of this one
        if sandbox is not None:
            self._leased[key] = sandbox
            try:
                _place(sandbox, own)
            except BaseException:
                lease.release()
                sandbox.end()  # it has not begun, so the release did not do that
                raise
            sandbox.begin(milli_cores, meter)
        return lease

    def place(self, moved: Mapping[int, Placement]) -> None:
        """Move fractions whose shared cores have changed."""
        for key, placement in moved.items():
            if key in self._leased:
                with contextlib.suppress(OSError):  # that sandbox is dying, which its own action hears
                    self._leased[key].place(placement)

    def _give_back(self, key: int, meter: UsageMeter) -> None:
        sandbox = self._leased.pop(key, None)
        if sandbox is not None:
            sandbox.end(meter)
        self.place(self._cores.give_back(key))


def _place(sandbox: Placeable, placement: Placement) -> None:
    try:
        sandbox.place(placement)
    except OSError as error:
        if isinstance(error, InfrastructureError):
            raise
        sandbox.check()
        raise SandboxLostError(f"sandbox {sandbox.id} does not take its cores: {error}") from error
