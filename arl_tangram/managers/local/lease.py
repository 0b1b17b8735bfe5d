"""Cores in use by one running action on this machine."""

from __future__ import annotations

from collections.abc import Callable

from arl_tangram.managers.local.sandbox import LocalSandbox
from arl_tangram.managers.local.usage import UsageMeter
from arl_tangram.managers.manager import ExecUsage


class LocalLease:
    """Cores in use by one running action; made by `LocalManager.lease`."""

    def __init__(
        self,
        sandbox: LocalSandbox | None,
        meter: UsageMeter,
        core_ids: Callable[[], tuple[int, ...]],
        release: Callable[[], None],
    ) -> None:
        self._sandbox = sandbox
        self._core_ids = core_ids
        self._release = release
        self._held: tuple[int, ...] | None = None
        self._meter = meter

    @property
    def core_ids(self) -> tuple[int, ...]:
        """The host's numbers of the cores; those of a fraction can change while it is held."""
        return self._core_ids() if self._held is None else self._held

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
