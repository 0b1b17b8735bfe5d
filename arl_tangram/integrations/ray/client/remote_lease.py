"""Cores in use by one running action on a node: applied by its agent with the first command, or when asked for."""

from __future__ import annotations

import asyncio
from typing import Any

from arl_tangram.errors import AllocationError, InfrastructureError
from arl_tangram.integrations.ray.client.calls import AgentCalls
from arl_tangram.integrations.ray.wire import AgentReply, LeaseNow, LeaseTold
from arl_tangram.managers.manager import ExecUsage
from arl_tangram.managers.usage import UsageMeter
from arl_tangram.uninterrupted import finish_anyway

CLEAN_S = 30.0
"""Seconds that an agent has to kill what an action left behind; a manager takes a few."""


class RemoteLease:
    """Cores in use by one running action, in a sandbox or by a host body; made by `RemoteCores.lease`.

    Args:
        calls: to the agent of the node.
        told: what the agent is told of it.
        sandbox: the number of the sandbox; None for a host body.
        apply_s: the most seconds until its agent must have applied them, where nothing else is asked of it.
    """

    def __init__(self, calls: AgentCalls, told: LeaseTold, sandbox: int | None, *, apply_s: float) -> None:
        self._calls = calls
        self._apply_s = apply_s
        self._arguments: dict[str, Any] = {"lease": told, "sandbox": sandbox}
        self._meter = UsageMeter()
        self._now = LeaseNow(0, False, 0.0, 0.0, ())
        self._going = 0
        self._is_unheard = False  # whether a command was asked for, and what came of it is not known
        self._is_cleaned = False
        self._is_told = False
        self._is_over = False

    @property
    def core_ids(self) -> tuple[int, ...]:
        """The numbers of the cores there; none until they are applied."""
        return self._now.core_ids

    async def applied(self) -> None:
        """Wait until `core_ids` are known; cancelling only ends the wait.

        Raises:
            InfrastructureError: they are lost, or their agent is silent.
        """
        if not self._now.core_ids:
            await self.do("apply", {}, limit_s=self._apply_s)

    def resize(self, milli_cores: int) -> None:
        """Raise: in a shared runtime, nobody changes what runs."""
        raise AllocationError("a shared runtime lets running actions keep their cores")

    def wake(self) -> None:
        """Nothing is suspended there."""

    @property
    def usage(self) -> ExecUsage:
        """What the commands took so far: the time inside `exec` as it is seen here, the rest as it is seen there."""
        inside_s = self._meter.usage.overhead_s
        return ExecUsage(max(0.0, inside_s - self._now.own_s), self._now.cpu_s)

    def needs_cleanup(self) -> bool:
        """Whether something that the action started may still run, so that `clean` must be awaited."""
        return not self._is_cleaned and (self._going > 0 or self._now.alive or self._is_unheard)

    async def clean(self) -> None:
        """Kill everything that the action started, and give the cores back; bounded, also when cancelled.

        Raises:
            SandboxLostError: something survived, and the sandbox was destroyed; or its node does not answer.
        """
        await finish_anyway(self._clean())

    def release(self) -> None:
        """Give the cores back; idempotent, synchronous, cannot fail."""
        if not self._is_over:
            self._is_over = True
            if self._is_told:
                self._calls.settle("release", self._arguments)

    # For its sandbox.

    @property
    def is_over(self) -> bool:
        """Whether the cores are given back."""
        return self._is_over

    async def run(self, arguments: dict[str, Any]) -> Any:
        """Run a command; see `RemoteSandbox.exec`."""
        now_s = asyncio.get_running_loop().time
        entered_s = now_s()
        self._going += 1
        try:
            return await self.do("exec", arguments)
        finally:
            self._going -= 1
            self._meter.add_call(entered_s, now_s())

    async def do(self, what: str, arguments: dict[str, Any], *, limit_s: float | None = None) -> Any:
        """Let the agent do something with the lease, which it applies if that has not happened yet."""
        self._is_told = True
        is_heard = False

        def heard(reply: AgentReply) -> None:
            nonlocal is_heard
            is_heard = True
            now: LeaseNow | None = reply.value[1] if reply.value is not None else None
            if now is not None and now.turn > self._now.turn:
                self._now = now

        try:
            return (await self._calls.do(what, {**self._arguments, **arguments}, limit_s=limit_s, heard=heard))[0]
        finally:
            self._is_unheard = self._is_unheard or (what == "exec" and not is_heard)

    async def _clean(self) -> None:
        try:
            await self.do("clean", {}, limit_s=CLEAN_S)
        except InfrastructureError:
            self._calls.settle("release", self._arguments)  # which kills, too
            raise
        finally:
            self._is_over = self._is_cleaned = True
