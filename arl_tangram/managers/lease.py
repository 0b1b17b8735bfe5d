"""Cores in use by one running action, in a sandbox or by a host body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from arl_tangram.managers.manager import ExecUsage
from arl_tangram.managers.usage import UsageMeter


class Killable(Protocol):
    """A sandbox, as far as the end of an action is concerned."""

    @property
    def may_be_alive(self) -> bool:
        """Whether something that was started in it may be alive."""
        ...

    async def kill(self) -> None:
        """Kill everything that was started in it, and start nothing more; bounded, also when cancelled.

        Raises:
            SandboxLostError: something survived, and the sandbox was destroyed.
        """
        ...


class SandboxLease:
    """Cores in use by one running action.

    Args:
        sandbox: where its commands run, or None for a host body.
        meter: adds up what its commands take.
        core_ids: asks for the host's numbers of the cores.
        resize: lets the sandbox have as many milli-cores from now on.
        wake: lets a suspended sandbox go on without any.
        release: gives the cores back.
    """

    def __init__(
        self,
        sandbox: Killable | None,
        meter: UsageMeter,
        *,
        core_ids: Callable[[], tuple[int, ...]],
        resize: Callable[[int], None],
        wake: Callable[[], None],
        release: Callable[[], None],
    ) -> None:
        self._sandbox = sandbox
        self._core_ids = core_ids
        self._resize = resize
        self._wake = wake
        self._release = release
        self._held: tuple[int, ...] | None = None
        self._meter = meter

    @property
    def core_ids(self) -> tuple[int, ...]:
        """The host's numbers of the cores, none while it is suspended; those of a fraction can change as well."""
        return self._core_ids() if self._held is None else self._held

    async def applied(self) -> None:
        """They are, from the beginning on."""

    def resize(self, milli_cores: int) -> None:
        """Let the sandbox have other cores from now on; see `CpuLease.resize`. Nothing happens once it is released.

        If an error is raised, the cores are counted as changed nevertheless, unless it is that there are none online.
        """
        if self._held is None:
            self._resize(milli_cores)

    def wake(self) -> None:
        """Let what an interrupted body cleans up go on; see `CpuLease.wake`. Nothing happens once it is released."""
        if self._held is None:
            self._wake()

    @property
    def usage(self) -> ExecUsage:
        """What the commands took so far."""
        return self._meter.usage

    def needs_cleanup(self) -> bool:
        """Whether something that the action started may still run, so that `clean` must be awaited."""
        return self._sandbox is not None and self._sandbox.may_be_alive

    async def clean(self) -> None:
        """Kill everything that the action started in its sandbox; bounded, also when cancelled.

        Raises:
            SandboxLostError: something survived, and the sandbox was destroyed.
        """
        if self._sandbox is not None:
            await self._sandbox.kill()

    def release(self) -> None:
        """Give the cores back; idempotent, synchronous, cannot fail."""
        if self._held is None:
            self._held = self._core_ids()
            self._release()
