"""A trajectory: from its admission to its end it owns one sandbox, and what it holds is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Self

from arl_tangram.context import Runtime, active_var
from arl_tangram.doorway import Doorway
from arl_tangram.errors import (
    ForkedRuntimeError,
    GroupCancelledError,
    InfrastructureError,
    NestedActionError,
    NoTrajectoryError,
    RuntimeClosedError,
    ShutdownError,
    TangramError,
    UsageError,
)
from arl_tangram.execution import Invocation, calls
from arl_tangram.managers.manager import ManagedSandbox
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.retrying import Retried
from arl_tangram.uninterrupted import settled, unstoppable
from arl_tangram.workshop import Workshop

# Said when a trajectory is left: it was ended with the runtime, or belongs to the parent of this forked child.
_ENDED = (RuntimeClosedError, ShutdownError, ForkedRuntimeError)


class Trajectory:
    """One rollout; entered with `async with tangram.trajectory(...)`.

    Attributes:
        runtime: whose it is.
        memory_bytes: what it holds; the memory of its actions is part of that.
        node: the number of the node where its sandbox is, from its admission on.
    """

    def __init__(
        self,
        runtime: Runtime,
        workshop: Workshop,
        doorway: Doorway,
        demand: Demand,
        *,
        image: str | None,
        memory_bytes: int,
        group: str | None,
    ) -> None:
        self.runtime = runtime
        self._group = group
        self._workshop = workshop
        self._doorway = doorway
        self._demand = demand
        self._image = image
        self.memory_bytes = memory_bytes
        self.node = 0
        self._id = workshop.dispatcher.new_id()
        self._sandbox: ManagedSandbox | None = None
        self._creating: asyncio.Task[ManagedSandbox] | None = None
        self._state: str = "new"  # → waiting → admitted → open → closed
        self._previous: Trajectory | None = None
        self._closing: asyncio.Task[None] | None = None
        self._cancelled: TangramError | None = None
        self._admitted: asyncio.Future[None] = workshop.loop.create_future()

    def __repr__(self) -> str:
        return f"<Trajectory {self._id}, {self._state}" + (f", of the group {self._group!r}>" if self._group else ">")

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

    def check_open(self, action: str) -> None:
        """Check that an action can be called in it.

        Raises:
            GroupCancelledError: its group was cancelled.
            InfrastructureError: it was lost.
            NoTrajectoryError: it is not open.
        """
        if isinstance(self._cancelled, GroupCancelledError):
            raise GroupCancelledError(f"{action} was called in a trajectory of {self._group!r}, a cancelled group")
        if self._cancelled is not None:
            raise type(self._cancelled)(f"{action} was called in a trajectory that is lost: {self._cancelled}")
        if not self.is_open:
            raise NoTrajectoryError(f"{action} was called in a trajectory that is closed")

    @property
    def sandbox(self) -> ManagedSandbox | None:
        """Its sandbox; None in a runtime without a pool of cores."""
        return self._sandbox

    async def __aenter__(self) -> Self:
        """Wait for what it holds (memory, reserved cores), create its sandbox, and become the current trajectory.

        Cancelling takes it out of the queue, or removes what has been created.

        Raises:
            InfeasibleError: the capacity was set to less than it asks for meanwhile.
            SandboxStartError: the sandbox could not be created.
            ShutdownError: the runtime was closed meanwhile.
        """
        if self._doorway.is_here:
            await self._enter()
        else:
            try:
                await self._doorway.visit(self._enter)
            except asyncio.CancelledError:
                if self._state == "open":  # all the same
                    await self.aclose()
                raise
        self._become_current()
        return self

    def __enter__(self) -> Self:
        """Enter it where no event loop runs; see `__aenter__`."""
        try:
            self._doorway.wait(self._enter)
        except KeyboardInterrupt:
            if self._state == "open":
                self._doorway.wait(self.aclose, patient=False)
            raise
        self._become_current()
        return self

    def _become_current(self) -> None:
        self._previous = trajectory_var.get()
        trajectory_var.set(self)

    async def _enter(self) -> None:
        check_outside_of_actions()
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

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End its actions that still wait or run, and remove its sandbox."""
        trajectory_var.set(self._previous)
        await self.aclose()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave it where no event loop runs; see `__aexit__`."""
        trajectory_var.set(self._previous)
        if self._state != "closed" or self._closing is not None:
            with suppress(*_ENDED):
                self._doorway.wait(self.aclose, patient=not isinstance(exc, KeyboardInterrupt))

    async def aclose(self) -> None:
        """End the trajectory: bounded, idempotent; cancelling takes effect when that is done."""
        if not self._doorway.is_here:
            with suppress(*_ENDED):
                await self._doorway.visit(self.aclose)
            return
        if self._closing is None:
            self._state = "closed"
            self._closing = unstoppable(self._close())
        await settled(self._closing)
        self._closing.result()

    async def _admission(self) -> None:
        pending = PendingAction(self._id, self._demand, self._workshop.time())
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
        if cpu is not None and self._closing is None and self._cancelled is None:
            self._creating = self._workshop.loop.create_task(
                cpu.create_sandbox(image=self._image, memory_bytes=self.memory_bytes, node=self.node)
            )
            await asyncio.wait([self._creating])
        if self._cancelled is not None:
            raise self._cancelled
        if self._closing is not None:
            raise ShutdownError("the runtime was closed while a trajectory was opening")
        if self._creating is not None:
            self._sandbox = self._creating.result()

    async def cancel(self) -> int:
        """End its actions that wait or run, or its own wait for admission, because its group is cancelled.

        Returns:
            How many actions were ended.
        """
        self._give_up(GroupCancelledError(f"the group {self._group!r} was cancelled"))
        return await self._end_actions(lambda _: GroupCancelledError(f"the group {self._group!r} was cancelled"))

    def call_off(self, error: TangramError) -> None:
        """Let all its actions that wait or run, and its own wait for admission, end with an error, without a wait."""
        self._give_up(error)
        for invocation in self._actions():
            invocation.call_off(type(error)(str(error)))

    def _give_up(self, error: TangramError) -> None:
        """Let nothing more be called in it."""
        self._cancelled = error
        if self._state == "waiting":
            self._workshop.dispatcher.withdraw(self._id)
            self._refuse(error)
        elif self._creating is not None:
            self._creating.cancel()  # if it is created already, this does nothing

    def _actions(self) -> list[Invocation | Retried]:
        """Return its actions that have not ended."""
        return [i for i in calls(self._workshop) if i.pending.trajectory == self._id and not i.ended]

    async def _end_actions(self, why: Callable[[str], TangramError]) -> int:
        """End its actions, wait for those that listen, for the grace time, and return how many there were."""
        ended = self._actions()
        for invocation in ended:
            invocation.call_off(why(invocation.name))
        tasks = [i.task for i in ended if i.task is not None and not i.lingering]
        if tasks:
            await asyncio.wait(tasks, timeout=self._workshop.kill_grace_s)
        return len(ended)

    async def _close(self) -> None:
        try:
            await self._end_actions(lambda name: NoTrajectoryError(f"the trajectory ended while {name} was in it"))
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
        self.node = self._workshop.dispatcher.node_of(self._id)
        self._workshop.trajectories[self] = None  # from here on, a closing runtime ends it
        if not self._admitted.done():
            self._admitted.set_result(None)

    def expired(self) -> None:
        """Trajectories have no deadline for waiting."""
        raise AssertionError("a trajectory has no queue_timeout")

    def failed(self, error: Exception) -> None:
        """The scheduler failed, or it can never be admitted, which a `TangramError` says."""
        if not isinstance(error, TangramError):
            error = InfrastructureError(f"a trajectory could not be opened: the scheduler failed: {error!r}")
        self._refuse(error)

    def shut_down(self) -> None:
        """The runtime closes while it waits."""
        self._workshop.dispatcher.withdraw(self._id)
        self._refuse(ShutdownError("the runtime was closed while a trajectory waited to be opened"))

    def _refuse(self, error: TangramError) -> None:
        self._state = "closed"
        if not self._admitted.done():
            self._admitted.set_exception(error)
            self._admitted.exception()  # retrieved: who waited may have been cancelled


def check_outside_of_actions() -> None:
    """Check that no body of an action opens a trajectory: what both hold could wait for each other.

    Raises:
        NestedActionError: one does.
    """
    active = active_var.get()
    if active is not None and not active.ended:
        raise NestedActionError(f"{active.name} → trajectory: an action cannot open a trajectory")


trajectory_var: ContextVar[Trajectory | None] = ContextVar("arl_tangram_trajectory", default=None)
