"""A runtime as calls see it: it opens and closes, takes calls from everywhere, and opens trajectories."""

from __future__ import annotations

import asyncio
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeVar

from arl_tangram.action import BoundAction, invocable_of
from arl_tangram.closing import Opened
from arl_tangram.context import Invocable, open_runtimes, running_loop, runtime_var
from arl_tangram.doorway import Doorway, check_blocking, is_coroutine
from arl_tangram.errors import ConfigurationError, RuntimeClosedError, ShutdownError, UsageError
from arl_tangram.loop_thread import LoopThread
from arl_tangram.managers.processes import place
from arl_tangram.model.lifecycle import Demand
from arl_tangram.model.quantities import MILLI, bytes_of_gib, is_name, plain
from arl_tangram.scheduling.feasibility import trajectory_demand
from arl_tangram.submitting import Submitting
from arl_tangram.trace.figures import Figures
from arl_tangram.trajectories import Trajectory, check_outside_of_actions
from arl_tangram.uninterrupted import settled, sure_to_begin

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

FORCED_S = 2.0


class Calling(ABC):
    """A runtime without its pools, which `_open` brings; one that was closed is not opened again."""

    def __init__(self) -> None:
        self._state: Literal["new", "opening", "open", "closing", "closed"] = "new"
        self.open_on: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._closed_at_s: float | None = None

    @abstractmethod
    async def _open(self, doorway: Doorway) -> Opened:
        """Open what it consists of, on the running loop; `_set_closed` is to be called when that is closed."""

    @abstractmethod
    def figures(self) -> Figures:
        """Return the figures of the report as values; blocks for them."""

    # Lifecycle.

    async def __aenter__(self) -> Self:
        """Open it; see `start`."""
        return await self.start()

    async def start(self) -> Self:
        """Start the managers, sweep what killed runs left behind, and become the current runtime; the same as entering.

        For programs that cannot wrap what they do in an `async with`; they end with `await tg.aclose()`.
        """
        self._check_new()
        if (loop := running_loop()) is None:
            raise UsageError("no event loop of asyncio runs here; without one, open it using `with Tangram(...)`")
        self._state = "opening"
        self._pid = os.getpid()
        self._loop = loop
        self._doorway = Doorway(self._loop)
        self._parts = await self._open(self._doorway)
        self._workshop = self._parts.workshop
        self._submitting = Submitting(self, self._workshop, self._parts.reserved_cores)
        self._state = "open"
        self.open_on = self._loop
        open_runtimes.append(self)
        self._previous = runtime_var.get()
        runtime_var.set(self)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End what still waits or runs, remove everything that was created, and close; bounded."""
        runtime_var.set(self._previous)  # by value: set-up and tear-down may run in different contexts
        await self.aclose()

    async def aclose(self) -> None:
        """Close the runtime: callers that still wait get `ShutdownError`; idempotent, bounded.

        Cancelling takes effect when that is done.
        """
        if self._pid != os.getpid():
            return  # a forked child: all that is open belongs to its parent
        if self._state not in {"open", "closing"}:
            return
        self.open_on = None
        if self._loop.is_closed():
            if self._state == "open":
                open_runtimes.remove(self)
            self._state = "closed"  # nothing runs any more, and nothing can be awaited
            self._parts.loop_closed()
            return
        if not self._doorway.is_here:
            with suppress(RuntimeClosedError, ShutdownError):  # then it is closed, or its loop is
                await self._doorway.visit(self.aclose)
            return
        self._doorway.closing()
        if self._state == "open":
            open_runtimes.remove(self)
            self._state = "closing"
            self._closing = sure_to_begin(self._parts.close())
        await settled(self._closing)
        self._closing.result()

    def _check_new(self) -> None:
        if (why := place.check_not_imported()) is not None:
            raise UsageError(why)
        if self._state in {"opening", "open"}:
            raise UsageError(f"this runtime is {self._state} already")
        if self._state != "new":
            raise RuntimeClosedError(f"this runtime is {self._state}; open a new one")

    def __enter__(self) -> Self:
        """Open it on an event loop on a thread of its own; for programs without a loop.

        Raises:
            UsageError: an event loop runs in this thread; use `async with`.
        """
        self._check_new()
        check_blocking("`with Tangram()`")
        self._thread = LoopThread(self.aclose)
        try:
            self._thread_door = self._thread.start()
            self._thread_door.wait(self.start)
            self._previous = runtime_var.get()
            runtime_var.set(self)
        except BaseException:
            self._end_thread(forced=False)
            raise
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it, as `aclose` does, and end its thread. A Ctrl-C after another one makes that go at once."""
        if self._pid != os.getpid():
            runtime_var.set(self._previous)
            return
        try:
            runtime_var.set(self._previous)
            if not self._doorway.forced:
                self._thread_door.wait(self.aclose, patient=not isinstance(exc, KeyboardInterrupt))
        finally:
            self._end_thread(forced=self._doorway.forced or self._thread_door.forced)

    def _end_thread(self, *, forced: bool) -> None:
        """End the thread of the loop, and what is still open there; a Ctrl-C meanwhile makes that go at once."""
        try:
            if not forced:
                self._thread.stop()
        except BaseException:
            forced = True
            raise
        finally:
            if forced:
                if self._state in {"open", "closing"}:
                    with suppress(RuntimeError):  # it is closed already
                        self._loop.call_soon_threadsafe(self._parts.end_now)
                self._thread.stop(FORCED_S)

    def _set_closed(self) -> None:
        self._state = "closed"
        self._closed_at_s = self._loop.time()

    # Calls.

    @property
    def is_open(self) -> bool:
        """Whether it accepts actions: it was opened and not closed, and its event loop still exists."""
        return self._state == "open" and not self._loop.is_closed()

    @property
    def pid(self) -> int:
        """The process that opened it."""
        return self._pid

    async def run(self, action: BoundAction[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Schedule a call of an action on this runtime.

        Raises:
            UsageError: what was given is not an action, or this runtime cannot be used from here.
            InfeasibleError: no pool can ever meet its cost.
            InfrastructureError: the infrastructure failed; what the body raises passes unchanged.
        """
        owner = getattr(action, "__self__", None)
        if owner is not None:
            return await self.invoke(invocable_of(action), (owner, *args), kwargs)  # type: ignore[no-any-return]
        return await self.invoke(invocable_of(action), args, kwargs)  # type: ignore[no-any-return]

    def run_sync(self, action: BoundAction[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Schedule a call of an action on this runtime and block for it; see `tangram.run_sync`."""
        owner = getattr(action, "__self__", None)
        given = args if owner is None else (owner, *args)
        return self.invoke_sync(invocable_of(action), given, kwargs)  # type: ignore[no-any-return]

    def wait(self, coroutine: Coroutine[Any, Any, T], /) -> T:
        """Run a coroutine on the event loop of this runtime, block for its end, and return or raise what it does.

        A Ctrl-C cancels it, and is raised when it has ended; a second one is raised at once.

        Raises:
            UsageError: an event loop runs in this thread (await it instead), or the runtime cannot be used from here.
            ShutdownError: the runtime was closed meanwhile.
        """
        if not is_coroutine(coroutine):
            raise UsageError(f"wait() takes a coroutine, such as wait(tg.drain()), not {coroutine!r}")
        try:
            self._check_open()
            return self._doorway.wait(lambda: coroutine)
        finally:
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()

    def invoke_sync(self, action: Invocable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Make one call of what the decorator declared, and block for its result."""
        self._check_open()
        return self._doorway.wait(lambda: self.invoke(action, args, kwargs))

    def invoke(self, action: Invocable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        """Check one call of what the decorator declared; what it returns submits the call when awaited."""
        if (self.open_on is None or self.open_on is not running_loop()) and not self._is_here():
            return self._doorway.visit(lambda: self.invoke(action, args, kwargs))
        return self._submitting.call(action, args, kwargs)

    def _is_here(self) -> bool:
        """Return whether this is said on the runtime's own loop; from elsewhere, it has to go through the doorway."""
        if self._state != "open":
            raise _not_open(self._state)
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _check_open(self) -> None:
        if self._state != "open":
            raise _not_open(self._state)

    def _check_opened(self) -> None:
        if self._state in {"new", "opening"}:
            raise _not_open(self._state)

    # Trajectories.

    def trajectory(self, *, image: str | None = None, memory_gib: float = 0, group: str | None = None) -> Trajectory:
        """Return a trajectory to enter with `async with`, or with `with`; see `tangram.trajectory`."""
        if not self._is_here():
            self._doorway.check()
        check_outside_of_actions()
        memory_bytes = bytes_of_gib(memory_gib, "trajectory(memory_gib=)", ConfigurationError)
        if group is not None and not is_name(group):
            raise ConfigurationError(f"trajectory(group=) takes a name or None, not {group!r}")
        group = None if group is None else plain(group)
        if self._workshop.cpu is not None:
            self._workshop.cpu.check_image(image)
            self._workshop.cpu.check_memory(memory_bytes)
        elif image is not None:
            raise ConfigurationError(f"trajectory(image={image!r}) needs a pool that has sandboxes; there is none")
        demand = self._held_demand(image, memory_bytes)
        return Trajectory(
            self, self._workshop, self._doorway, demand, image=image, memory_bytes=memory_bytes, group=group
        )

    def _held_demand(self, image: str | None, memory_bytes: int) -> Demand:
        """Return what a trajectory is to hold.

        Raises:
            InfeasibleError: no node has as much.
        """
        reserved = self._parts.reserved_cores * MILLI
        return trajectory_demand(self._workshop.dispatcher.topology, memory_bytes=memory_bytes, reserved=reserved)


def _not_open(state: str) -> RuntimeClosedError:
    """Return the error for what only an open runtime can do."""
    what_to_do = ": open it first, with `async with tg:` or `await tg.start()`" if state == "new" else ""
    return RuntimeClosedError(f"this runtime is {state}, not open{what_to_do}")
