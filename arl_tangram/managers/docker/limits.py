"""The limits of one container: what is granted, put in effect, and read back, in one of two ways."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from arl_tangram.errors import InfrastructureError
from arl_tangram.managers.docker.allotment import Wish
from arl_tangram.managers.docker.group import SessionGroup

Shell = Callable[[str], Awaitable[tuple[int, bytes, bytes]]]


class Limits(Protocol):
    """What one container may use; owns the order of the changes."""

    @property
    def is_direct(self) -> bool:
        """Whether this process writes the container's cgroups itself."""
        ...

    def want(self, wish: Wish) -> None:
        """Put a grant in effect before its commands start, or while they run; or change to idle, or to suspended.

        Synchronous. Direct writes are done at once. What a daemon must do is begun here, and awaited with `settled`.

        Raises:
            AllocationError: direct, and never for None: something else is in effect, and the container is idle again.
            OSError: direct, and never for None: the container is gone.
        """
        ...

    async def settled(self) -> None:
        """Wait until what was wanted last is in effect; at once if that is to be idle. Cancelling changes nothing.

        Raises:
            AllocationError: something else is in effect.
            SandboxLostError: the container is gone, or (`DaemonAwayError`) its daemon does not answer.
        """
        ...

    def rush(self) -> AbstractAsyncContextManager[None]:
        """Let a suspended container have CPU time without limit meanwhile: what is killed needs some to end.

        For one that is not suspended it does nothing. It never raises, and what is wanted meanwhile counts afterwards.
        """
        ...

    def session_group(self, number: int) -> SessionGroup | None:
        """Return the cgroup for a session, which need not exist; None if this process cannot have one."""
        ...

    def cpu_s(self) -> float | None:
        """Return the CPU time that all of the container took; None if this process cannot read it."""
        ...

    def forget(self) -> None:
        """Take nothing for granted: others may have changed what is in effect. The next `want` goes all the way."""
        ...

    def listen(self, on_granted: Callable[[], None], on_failed: Callable[[InfrastructureError], None]) -> None:
        """Take what is called each time that a grant is in effect, and when a change fails for good.

        Args:
            on_granted: also called when nothing runs yet and the grant failed, which `settled` then raises.
            on_failed: through a daemon only: what runs cannot have what its action has now, however often it is tried.
        """
        ...

    def see_inside(self, shell: Shell) -> None:
        """Take what runs a script of ours in the container; it must not wait for `settled`."""
        ...

    async def aclose(self) -> None:
        """Change nothing more, and leave nothing suspended. Bounded, never raises."""
        ...
