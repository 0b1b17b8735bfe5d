"""A trajectory: from its admission to its end it owns one sandbox, and what it holds is its own."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from types import TracebackType
from typing import Self

from arl_tangram.context import Runtime
from arl_tangram.errors import (
    InfrastructureError,
    NoTrajectoryError,
    RuntimeClosedError,
    ShutdownError,
    UsageError,
    WrongLoopError,
)
from arl_tangram.execution import Workshop
from arl_tangram.managers.manager import ManagedSandbox
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.uninterrupted import settled


class Trajectory:
    """One rollout; entered with `async with tangram.trajectory(...)`.

    Attributes:
        runtime: whose it is.
        memory_bytes: what it holds; the memory of its actions is part of that.
    """

    def __init__(
        self,
        runtime: Runtime,
        workshop: Workshop,
        demand: Demand,
        *,
        image: str | None,
        memory_bytes: int,
        group: str | None,
    ) -> None:
        self.runtime = runtime
        self._group = group
        self._workshop = workshop
        self._demand = demand
        self._image = image
        self.memory_bytes = memory_bytes
        self._id = workshop.dispatcher.new_id()
        self._sandbox: ManagedSandbox | None = None
        self._creating: asyncio.Task[ManagedSandbox] | None = None
        self._state: str = "new"  # → waiting → admitted → open → closed
        self._previous: Trajectory | None = None
        self._closing: asyncio.Task[None] | None = None
        self._admitted: asyncio.Future[None] = workshop.loop.create_future()

    @property
    def id(self) -> int:
        """Unique in its runtime."""
        return self._id

    @property
    def group(self) -> str | None:
        """The name that the user gave to its group."""
        return self._group

    @property
    def is_open(self) -> bool:
        """Whether actions can be called in it."""
        return self._state == "open"

    @property
    def sandbox(self) -> ManagedSandbox | None:
        """Its sandbox; None in a runtime without a pool of cores."""
        return self._sandbox

    async def __aenter__(self) -> Self:
        """Wait for what it holds (memory, reserved cores), create its sandbox, and become the current trajectory.

        Cancelling takes it out of the queue, or removes what has been created.

        Raises:
            SandboxStartError: the sandbox could not be created.
            ShutdownError: the runtime was closed meanwhile.
        """
        if asyncio.get_running_loop() is not self._workshop.loop:
            raise WrongLoopError("this trajectory belongs to another event loop")
        if self._state != "new":
            raise UsageError("a trajectory can be entered once; call tangram.trajectory() for each")
        if not self.runtime.is_open:
            raise RuntimeClosedError("the runtime was closed before the trajectory was entered")
        await self._admission()
        try:
            await self._create_sandbox()
        except BaseException:
            await self.aclose()
            raise
        self._state = "open"
        self._previous = trajectory_var.get()
        trajectory_var.set(self)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End its actions that still wait or run, and remove its sandbox."""
        trajectory_var.set(self._previous)
        await self.aclose()

    async def aclose(self) -> None:
        """End the trajectory: bounded, idempotent; cancelling takes effect when that is done."""
        if self._closing is None:
            self._state = "closed"
            self._closing = self._workshop.loop.create_task(self._close())
        await settled(self._closing)
        self._closing.result()

    async def _admission(self) -> None:
        pending = PendingAction(self._id, self._demand, self._workshop.loop.time())
        self._workshop.dispatcher.open(pending, self, group=self.group)
        self._state = "waiting"
        try:
            await self._admitted
        except asyncio.CancelledError:
            if self._state == "waiting":
                self._workshop.dispatcher.withdraw(self._id)
                self._state = "closed"
            elif self._state == "admitted":
                await self.aclose()
            raise

    async def _create_sandbox(self) -> None:
        """Create the sandbox in a task of its own, which `_close` can end if the runtime closes meanwhile."""
        cpu = self._workshop.cpu
        if cpu is not None and self._closing is None:
            self._creating = self._workshop.loop.create_task(
                cpu.create_sandbox(image=self._image, memory_bytes=self.memory_bytes)
            )
            await asyncio.wait([self._creating])
        if self._closing is not None:
            raise ShutdownError("the runtime was closed while a trajectory was opening")
        if self._creating is not None:
            self._sandbox = self._creating.result()

    async def _close(self) -> None:
        try:
            ended = [i for i in self._workshop.invocations() if i.pending.trajectory == self._id]
            for invocation in ended:
                invocation.call_off(NoTrajectoryError(f"the trajectory ended while {invocation.name} was in it"))
            tasks = [i.task for i in ended if i.task is not None and not i.lingering]
            if tasks:
                await asyncio.wait(tasks, timeout=self._workshop.kill_grace_s)
            if self._creating is not None:
                await self._remove_sandbox(self._creating)
        finally:
            self._workshop.trajectories.pop(self, None)
            self._workshop.dispatcher.close(self._id)

    @staticmethod
    async def _remove_sandbox(creating: asyncio.Task[ManagedSandbox]) -> None:
        """Remove the sandbox that was created, or end its creation."""
        creating.cancel()
        if not creating.done():
            await asyncio.wait([creating])
        if not creating.cancelled() and creating.exception() is None:
            await creating.result().aclose()

    # Told by the dispatcher.

    def granted(self, running: RunningAction | None) -> None:
        """It holds what it asked for from now on."""
        self._state = "admitted"
        self._workshop.trajectories[self] = None  # from here on, a closing runtime ends it
        if not self._admitted.done():
            self._admitted.set_result(None)

    def expired(self) -> None:
        """Trajectories have no deadline for waiting."""
        raise AssertionError("a trajectory has no queue_timeout")

    def failed(self, error: Exception) -> None:
        """The scheduler failed."""
        self._refuse(InfrastructureError(f"a trajectory could not be opened: the scheduler failed: {error!r}"))

    def shut_down(self) -> None:
        """The runtime closes while it waits."""
        self._workshop.dispatcher.withdraw(self._id)
        self._refuse(ShutdownError("the runtime was closed while a trajectory waited to be opened"))

    def _refuse(self, error: InfrastructureError) -> None:
        self._state = "closed"
        if not self._admitted.done():
            self._admitted.set_exception(error)
            self._admitted.exception()  # retrieved: who waited may have been cancelled


trajectory_var: ContextVar[Trajectory | None] = ContextVar("arl_tangram_trajectory", default=None)
