"""`Tangram`: opens the pools, takes calls, runs trajectories, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeVar

from arl_tangram.action import BoundAction, invocable_of
from arl_tangram.context import (
    Invocable,
    TrajectoryScope,
    active_var,
    current_runtime,
    open_runtimes,
    running_loop,
    runtime_var,
)
from arl_tangram.doorway import Doorway, check_blocking, is_coroutine
from arl_tangram.errors import (
    ConfigurationError,
    RuntimeClosedError,
    ShutdownError,
    UsageError,
)
from arl_tangram.lent_devices import LentDevices
from arl_tangram.loop_thread import LoopThread
from arl_tangram.managers.manager import CpuPool, GpuPool
from arl_tangram.managers.processes import place
from arl_tangram.managers.quota import Quota
from arl_tangram.model.quantities import MILLI, bytes_of_gib, capacity_units, is_name
from arl_tangram.model.statistics import DimensionStatistics, Statistics
from arl_tangram.model.topology import is_breaker, resource_of
from arl_tangram.opening import opened
from arl_tangram.scheduling.feasibility import trajectory_demand
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies import Plan, Policy
from arl_tangram.setup import checked
from arl_tangram.submitting import Submitting
from arl_tangram.trace.report import render
from arl_tangram.trace.sink import Sink
from arl_tangram.trajectories import Trajectory, check_outside_of_actions, trajectory_var
from arl_tangram.uninterrupted import settled, sure_to_begin

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

CLEAN_S = 5.0  # for what a body leaves behind to be killed, beyond the grace time
FORCED_S = 2.0
_MOMENT_S = 0.05

_logger = logging.getLogger("arl_tangram")


class Tangram:
    """The runtime: shares pools of cores and quotas among all actions of this process.

    Open it with `async with`; inside, `await action(...)` and `tangram.run(action, ...)` find it. It lives on the event
    loop on which it was opened; calls from other loops and threads go there, and share what there is. A program without
    an event loop opens it with `with`: then it has a loop on a thread of its own.

    Args:
        resources: at most one pool of cores (`LocalPool`, `DockerPool`), at most one `GpuPool`, and any number of
            `Quota`.
        policy: how candidates share the cores, or a function of your own that plans a `policies.Group`;
            `policies.elastic()` by default.
        order: who comes first among those of one priority: `"fcfs"`, in order of arrival; `"shortest"`, expected to be
            done soonest, with ageing; `"trajectory"`, whose trajectory has been open for longest.
        trace: a path to write a JSONL trace to, or a `Sink`, or None.
        kill_grace_s: seconds that a cancelled body has to end before its caller is answered without it.
        max_threads: plain function bodies that may run at once, those that never return included.
        max_processes: bodies that may run in worker processes at once; by default twice as many as the pool has
            cores of this machine, and at least 8. As many workers as there are such cores are kept while they are idle.

    Raises:
        ConfigurationError: pools, quotas or options that cannot work.
    """

    def __init__(
        self,
        *resources: CpuPool | GpuPool | Quota,
        policy: Policy | Plan | None = None,
        order: Order = "fcfs",
        trace: str | PathLike[str] | Sink | None = None,
        kill_grace_s: float = 5.0,
        max_threads: int = 128,
        max_processes: int | None = None,
    ) -> None:
        self._setup = checked(
            resources,
            policy=policy,
            order=order,
            trace=trace,
            kill_grace_s=kill_grace_s,
            max_threads=max_threads,
            max_processes=max_processes,
        )
        self._state: Literal["new", "opening", "open", "closing", "closed"] = "new"
        self.open_on: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._closed_at_s: float | None = None

    def __repr__(self) -> str:
        parts = [repr(part) for part in (self._setup.pool, self._setup.gpus, *self._setup.quotas) if part is not None]
        return f"<Tangram, {self._state}, {', '.join(parts) or 'no pool'}>"

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
        self._opened = await opened(self._setup, self._doorway, self._set_closed)
        self._dispatcher = self._opened.dispatcher
        self._core = self._dispatcher.core
        self._workshop = self._opened.workshop
        self._submitting = Submitting(self, self._workshop, self._setup.policy.reserved_cores)
        self._state = "open"
        if self._workshop.cpu is not None:
            self._workshop.cpu.on_capacity(self._follow_capacity)
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
            self._opened.loop_closed()
            return
        if not self._doorway.is_here:
            with suppress(RuntimeClosedError, ShutdownError):  # then it is closed, or its loop is
                await self._doorway.visit(self.aclose)
            return
        self._doorway.closing()
        if self._state == "open":
            open_runtimes.remove(self)
            self._state = "closing"
            self._closing = sure_to_begin(self._opened.close())
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
        except BaseException:
            self._thread.stop()
            raise
        self._previous = runtime_var.get()
        runtime_var.set(self)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it, as `aclose` does, and end its thread. A Ctrl-C after another one makes that go at once."""
        runtime_var.set(self._previous)
        if self._pid != os.getpid():
            return
        try:
            if not self._doorway.forced:
                self._thread_door.wait(self.aclose, patient=not isinstance(exc, KeyboardInterrupt))
        finally:
            forced = self._doorway.forced or self._thread_door.forced
            if forced:
                with suppress(RuntimeError):  # it is closed already
                    self._loop.call_soon_threadsafe(self._opened.end_now)
            self._thread.stop(FORCED_S if forced else None)

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

    # Steering.

    def pause(self) -> None:
        """Start nothing new from now on: calls and trajectories wait.

        What runs goes on, with the actions that it calls. Deadlines for waiting (`queue_timeout`) go on, too.
        """
        self._check_open()
        self._doorway.do(lambda: self._dispatcher.halt(True))

    async def drain(self) -> None:
        """Pause, and wait until nothing runs any more, such as before weights are changed or a checkpoint is written.

        How long that takes is up to the running bodies and their `timeout`. Cancelling stops the wait, not the pause.

        Raises:
            UsageError: `resume()` is called meanwhile, or this is in an action, which would wait for itself.
            ShutdownError: the runtime is closed meanwhile.
        """
        if (inside := _running_action()) is not None:
            raise UsageError(f"{inside} would wait for itself in drain(); call it from outside of actions")
        if not self._is_here():
            await self._doorway.visit(self.drain)
            return
        self.pause()
        await self._dispatcher.until_idle()

    def resume(self) -> None:
        """End the pause, and with it every `drain` that still waits."""
        self._check_open()
        self._doorway.do(lambda: self._dispatcher.halt(False))

    async def cancel_group(self, group: str) -> int:
        """End all actions, waiting and running, of the trajectories of a group that wait or are open.

        Their callers get `GroupCancelledError`, and so does who calls another action in one of these trajectories.

        Returns:
            How many actions were ended. Their units are back then, except those of bodies that did not listen.
        """
        inside, trajectory = _running_action(), trajectory_var.get()
        if inside is not None and trajectory is not None and trajectory.group == group:
            raise UsageError(f"{inside} would end itself by cancel_group({group!r}); call it from the rollout")
        if not is_name(group):
            raise UsageError(f"cancel_group() takes the name of a group, not {group!r}")
        if not self._is_here():
            return await self._doorway.visit(lambda: self.cancel_group(group))
        known = [*self._dispatcher.waiters(), *self._workshop.trajectories]
        members = [found for found in known if isinstance(found, Trajectory) and found.group == group]
        ended = asyncio.gather(*(trajectory.cancel() for trajectory in members))
        await settled(ended)
        return sum(ended.result())

    def set_capacity(self, name: str, capacity: float) -> None:
        """Change what there is of a resource.

        More can be used at once. What is used beyond less stays until it is given back. Who waits for more than there
        will ever be gets `InfeasibleError`.

        Args:
            name: as in `statistics().dimensions`, such as `"cpu"` or `"quota:search/calls"`.
            capacity: in the units shown there: cores, GiB, calls, tokens, threads; to a thousandth where those are.

        Raises:
            ConfigurationError: no such resource, a capacity that it cannot have, or what a pool of GPUs has.
        """
        self._check_open()
        self._doorway.do(lambda: self._set_capacity(name, capacity))

    def _set_capacity(self, name: str, capacity: float) -> None:
        topology = self._core.topology
        if not is_name(name) or name not in topology.index or is_breaker(name):
            known = ", ".join(repr(other) for other in topology.index if not is_breaker(other))
            raise ConfigurationError(f"there is no resource {name!r}; there are {known}")
        if topology.seats >> topology.index[name] & 1:
            raise ConfigurationError(
                f"set_capacity({name!r}): that is what the pool of GPUs has: devices come and go with lend(), and a "
                "service has the places that its max_concurrency= says"
            )
        dimension = topology.dimensions[topology.index[name]]
        units = capacity_units(capacity, dimension.scale, f"set_capacity({name!r})", ConfigurationError)
        if resource_of(name) is not None and self._workshop.cpu is not None:
            self._workshop.cpu.check_capacity(name, units)
            self._workshop.cpu.resize(name, units)
        self._follow_capacity(name, units)

    def _follow_capacity(self, name: str, units: int) -> None:
        """Schedule by what there is of a resource now."""
        if self._state == "open":
            self._dispatcher.set_capacity(self._core.topology.index[name], units)
            self._submitting.forget()

    def lend(self, devices: Sequence[str]) -> LentDevices:
        """Let the pool of GPUs have more devices for a phase, such as the trainer's own while it does not train.

        Used as `async with tg.lend(["cuda:0", "cuda:1"]):`. At its end nothing new is placed there, what runs there
        goes on to its end, and then they are free: all memory of the library on them is given back. Together, they
        are a node of their own, so that services may be spread over them.

        Args:
            devices: as in `GpuPool(devices=...)`, such as UUIDs or `"cpu:1:4GiB"`; none that the pool has.

        Raises:
            ConfigurationError: there is no pool of GPUs; when it is entered, there are no such devices.
            RestoreError: when it is left, something there does not let go of its memory; `give_back()` of what this
                returns asks once more.
        """
        self._check_open()
        if self._workshop.gpu is None:
            raise ConfigurationError("lend() needs a pool of GPUs, such as that of Tangram(tangram.GpuPool(...))")
        return LentDevices(
            self._workshop.gpu, self._dispatcher, self._doorway, tuple(devices), on_change=self._submitting.forget
        )

    # Trajectories and looking in.

    def trajectory(self, *, image: str | None = None, memory_gib: float = 0, group: str | None = None) -> Trajectory:
        """Return a trajectory to enter with `async with`, or with `with`; see `tangram.trajectory`."""
        if not self._is_here():
            self._doorway.check()
        check_outside_of_actions()
        memory_bytes = bytes_of_gib(memory_gib, "trajectory(memory_gib=)", ConfigurationError)
        if group is not None and not is_name(group):
            raise ConfigurationError(f"trajectory(group=) takes a name or None, not {group!r}")
        if self._workshop.cpu is not None:
            self._workshop.cpu.check_image(image)
            self._workshop.cpu.check_memory(memory_bytes)
        elif image is not None:
            raise ConfigurationError(f"trajectory(image={image!r}) needs a pool that has sandboxes; there is none")
        reserved = self._setup.policy.reserved_cores * MILLI
        demand = trajectory_demand(self._core.topology, memory_bytes=memory_bytes, reserved=reserved)
        return Trajectory(
            self, self._workshop, self._doorway, demand, image=image, memory_bytes=memory_bytes, group=group
        )

    def statistics(self) -> Statistics:
        """Return what waits, what runs, and what is used of each resource right now."""
        self._check_opened()
        return self._doorway.do(self._statistics)

    def _statistics(self) -> Statistics:
        core = self._core
        now_s = self._loop.time()
        core.advance(now_s)
        cpu, gpu, breakers = self._workshop.cpu, self._workshop.gpu, self._workshop.breakers
        return Statistics(
            waiting=core.waiting + len(self._workshop.retrying.waiting()),
            running=core.running,
            lingering=tuple(i.name for i in self._workshop.live.values() if i.lingering),
            trajectories=core.trajectories,
            dimensions={
                d.name: DimensionStatistics(core.capacity(i) / d.scale, core.used(i) / d.scale, core.free(i) / d.scale)
                for i, d in enumerate(core.topology.dimensions)
                if not is_breaker(d.name)
            },
            breakers={} if breakers is None else {name: str(state) for name, state in breakers.states(now_s).items()},
            daemons={} if cpu is None else cpu.latency(),
            services={} if gpu is None else gpu.statistics(),
        )

    def report(self) -> str:
        """Return a text: action completion times and their parts by action, utilisation by pool, what was learned."""
        self._check_opened()
        return self._doorway.do(self._report)

    def _report(self) -> str:
        self._dispatcher.tell()
        now_s = self._loop.time() if self._closed_at_s is None else self._closed_at_s
        cpu, gpu, breakers = self._workshop.cpu, self._workshop.gpu, self._workshop.breakers
        notes = (
            *(() if cpu is None else cpu.notes()),
            *(() if gpu is None else gpu.notes()),
            *(() if breakers is None else breakers.notes(now_s)),
        )
        return render(self._opened.summary, now_s=now_s, learned=self._core.durations.learned(), notes=notes)

    def describe(self) -> str:
        """Say what enforces grants of cores here, in one line, and in one more which GPUs there are, if any."""
        self._check_opened()
        return self._doorway.do(self._describe)

    def _describe(self) -> str:
        cpu, gpu = self._workshop.cpu, self._workshop.gpu
        cores = "no pool of cores" if cpu is None else cpu.describe()
        return cores if gpu is None else f"{cores}\n{gpu.describe()}"


def _not_open(state: str) -> RuntimeClosedError:
    """Return the error for what only an open runtime can do."""
    what_to_do = ": open it first, with `async with tg:` or `await tg.start()`" if state == "new" else ""
    return RuntimeClosedError(f"this runtime is {state}, not open{what_to_do}")


def _running_action() -> str | None:
    """Return the name of the action whose body this is said in, if it runs."""
    active = active_var.get()
    return None if active is None or active.ended else active.name


def trajectory(*, image: str | None = None, memory_gib: float = 0, group: str | None = None) -> TrajectoryScope:
    """Return a trajectory of the current runtime, to be entered with `async with`; without an event loop, with `with`.

    It owns one sandbox, in which its `async def` actions with a `cpu` cost run, one at a time, in the
    order of their calls. It holds memory, and no cores between its actions.

    Args:
        image: what the sandbox is made from, if the pool has images.
        memory_gib: GiB that it holds from its admission to its end; it waits until they are free.
        group: a name for what belongs together, such as all rollouts of one prompt.

    Raises:
        NoRuntimeError: there is no current runtime.
        ConfigurationError: an image that the pool cannot provide, or an amount that is not possible.
        InfeasibleError: more memory than there is.
    """
    return current_runtime().trajectory(image=image, memory_gib=memory_gib, group=group)


def run_sync(action: BoundAction[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Schedule a call of an action on the current runtime and block for it; for callers without an event loop.

    It works in every thread. In the body of a plain function on a thread, this is how an action calls another. A Ctrl-C
    cancels the call, and is raised when it has ended; a second one is raised at once.

    Raises:
        UsageError: an event loop runs in this thread (await the action instead), or what was given is not an action.
        TangramError: as for `run`; what the body raises passes unchanged.
    """
    owner = getattr(action, "__self__", None)
    given = args if owner is None else (owner, *args)
    return current_runtime().invoke_sync(invocable_of(action), given, kwargs)  # type: ignore[no-any-return]
