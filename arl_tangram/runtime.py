"""`Tangram`: opens the pools, takes calls, runs trajectories, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from os import PathLike
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeVar

from arl_tangram.action import BoundAction, invocable_of
from arl_tangram.context import Invocable, TrajectoryScope, active_var, current_runtime, open_runtimes, runtime_var
from arl_tangram.dispatch import Dispatcher, watched
from arl_tangram.errors import (
    ArgumentsError,
    ConfigurationError,
    DefinitionError,
    ForkedRuntimeError,
    NestedActionError,
    NoTrajectoryError,
    RuntimeClosedError,
    UsageError,
    WrongLoopError,
)
from arl_tangram.execution import Invocation, Workshop
from arl_tangram.managers.manager import CpuManager, CpuPool
from arl_tangram.managers.processes import BodyProcesses, pack
from arl_tangram.managers.quota import Quota
from arl_tangram.managers.threads import BodyThreads
from arl_tangram.model.events import Event
from arl_tangram.model.lifecycle import ActionSpec, BodyKind, Demand, PendingAction
from arl_tangram.model.quantities import MILLI, bytes_of_gib, seconds, whole
from arl_tangram.model.statistics import DimensionStatistics, Statistics
from arl_tangram.model.topology import CPU, PROCESSES, THREADS, Dimension, Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.feasibility import resolve, trajectory_demand
from arl_tangram.scheduling.order import Order, order_of
from arl_tangram.scheduling.policies import Plan, Policy, elastic
from arl_tangram.scheduling.policies.own import policy_of
from arl_tangram.trace.jsonl import JsonlSink
from arl_tangram.trace.report import render
from arl_tangram.trace.sink import Sink
from arl_tangram.trace.summary import Summary
from arl_tangram.trajectories import Trajectory, trajectory_var
from arl_tangram.uninterrupted import settled

P = ParamSpec("P")
R = TypeVar("R")

_logger = logging.getLogger("arl_tangram")


class Tangram:
    """The runtime: shares pools of cores and quotas among all actions of this process.

    Open it with `async with`; inside, `await action(...)` and `tangram.run(action, ...)` find it.

    Args:
        resources: at most one pool of cores (`LocalPool`) and any number of `Quota`.
        policy: how candidates share the cores, or a function of your own that plans a `policies.Group`;
            `policies.elastic()` by default.
        order: who comes first among those of one priority: `"fcfs"`, in order of arrival; `"shortest"`, expected to be
            done soonest, with ageing; `"trajectory"`, whose trajectory has been open for longest.
        trace: a path to write a JSONL trace to, or a `Sink`, or None.
        kill_grace_s: seconds that a cancelled body has to end before its caller is answered without it.
        max_threads: plain function bodies that may run at once, those that never return included.
        max_processes: bodies that may run in worker processes at once; by default twice as many as there are cores,
            and at least 8. As many workers as there are cores are kept while they are idle.

    Raises:
        ConfigurationError: pools, quotas or options that cannot work.
    """

    def __init__(
        self,
        *resources: CpuPool | Quota,
        policy: Policy | Plan | None = None,
        order: Order = "fcfs",
        trace: str | PathLike[str] | Sink | None = None,
        kill_grace_s: float = 5.0,
        max_threads: int = 128,
        max_processes: int | None = None,
    ) -> None:
        self._quotas = tuple(r for r in resources if isinstance(r, Quota))
        pools = [r for r in resources if not isinstance(r, Quota)]
        for pool in pools:
            if isinstance(pool, type) or not callable(getattr(pool, "manager", None)):
                raise ConfigurationError(f"Tangram() takes pools and quotas, not {pool!r}")
        if len(pools) > 1:
            raise ConfigurationError(f"Tangram() takes one pool of cores, not {len(pools)}: {pools}")
        names = [quota.name for quota in self._quotas]
        if len(set(names)) < len(names):
            raise ConfigurationError(f"two quotas have the same name: {', '.join(names)}")
        self._pool = pools[0] if pools else None
        self._policy = elastic() if policy is None else policy_of(policy)
        self._order: Order = order_of(order)
        self._trace = trace
        self._kill_grace_s = seconds(kill_grace_s, "kill_grace_s", ConfigurationError)
        self._max_threads = whole(max_threads, "max_threads", ConfigurationError, least=1)
        if max_processes is not None:
            max_processes = whole(max_processes, "max_processes", ConfigurationError, least=1)
        self._max_processes = max_processes
        self._state: Literal["new", "opening", "open", "closing", "closed"] = "new"
        self._pid = os.getpid()
        self._closed_at_s: float | None = None

    # Lifecycle.

    async def __aenter__(self) -> Self:
        """Start the managers, sweep what killed runs left behind, and become the current runtime."""
        if self._state != "new":
            raise RuntimeClosedError(f"this runtime is {self._state}; open a new one")
        self._state = "opening"
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as opened:
            opened.callback(self._set_closed)
            cpu = None if self._pool is None else self._pool.manager()
            topology = self._topology(cpu)
            self._sink = self._open_sink(topology)
            if self._sink is not None:
                opened.push_async_callback(self._sink.aclose)
            if cpu is not None:
                opened.push_async_callback(cpu.aclose)
                await cpu.start()
            self._opened = opened.pop_all()  # to be closed by `_close`, in reverse order and all of it
        self._summary = Summary(topology)
        self._core = SchedulerCore(
            topology, watched(self._policy), order=self._order, record=True, submissions=self._sink is not None
        )
        self._dispatcher = Dispatcher(self._core, self._on_events)
        self._workshop = Workshop(
            self._dispatcher,
            cpu,
            BodyThreads(),
            BodyProcesses(most_idle=_cores(cpu)),
            self._kill_grace_s,
            self._on_events,
            self._loop,
            {quota.name: quota for quota in self._quotas},
        )
        self._demands: dict[tuple[int, int, int], tuple[ActionSpec, Demand]] = {}
        self._summary.opened(self._loop.time())
        self._state = "open"
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
        if self._state == "open":
            open_runtimes.remove(self)
            if self._loop.is_closed():
                self._state = "closed"  # nothing runs any more, and nothing can be awaited
                return
            self._state = "closing"
            self._closing = self._loop.create_task(self._close())
        if self._state == "closing":
            await settled(self._closing)
            self._closing.result()

    async def _close(self) -> None:
        async with self._opened:
            for waiter in [*self._dispatcher.waiters(), *self._workshop.live.values()]:
                waiter.shut_down()
            await self._end_bodies()
            # All at once: while one takes its time, another that is being opened must not begin.
            closing = (trajectory.aclose() for trajectory in list(self._workshop.trajectories))
            await asyncio.gather(*closing, return_exceptions=True)  # who left a trajectory is told by its own exit
            self._dispatcher.stop()
            self._workshop.threads.close()
            await self._workshop.processes.aclose()
        self._closed_at_s = self._loop.time()

    def _set_closed(self) -> None:
        self._state = "closed"

    def _topology(self, cpu: CpuManager | None) -> Topology:
        dimensions = [*(cpu.dimensions() if cpu else ()), Dimension(THREADS, self._max_threads)]
        for quota in self._quotas:
            dimensions += quota.dimensions()
        dimensions.append(Dimension(PROCESSES, self._max_processes or max(2 * _cores(cpu), 8)))
        return Topology(dimensions)

    async def _end_bodies(self) -> None:
        """Wait for interrupted bodies, the grace time and a little for their clean-up; then let go of them."""
        tasks = [i.task for i in self._workshop.live.values() if i.task is not None and not i.lingering]
        if tasks:
            await asyncio.wait(tasks, timeout=self._kill_grace_s + 5)
        outliving = list(self._workshop.live.values())
        for invocation in outliving:
            _logger.warning("%s outlives the runtime; what it runs was not ended", invocation.name)
            invocation.detach()
        detached = [i.task for i in outliving if i.task is not None]
        if detached:
            await asyncio.wait(detached, timeout=1)

    def _open_sink(self, topology: Topology) -> Sink | None:
        if self._trace is None or isinstance(self._trace, Sink):
            return self._trace
        return JsonlSink(self._trace, topology=topology, policy=self._policy.name)

    def _on_events(self, events: Sequence[Event]) -> None:
        self._summary.add_all(events)
        if self._sink is None:
            return
        try:
            for event in events:
                self._sink.write(event)
        except Exception:
            # One that is the user's own must not be able to keep a caller from its answer.
            _logger.exception("%r does not take events; the trace ends here", self._sink)
            self._sink = None

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

    def invoke(self, action: Invocable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        """Check one call of what the decorator declared; what it returns submits the call when awaited."""
        submitted_at_s = self._check_usable()
        active = active_var.get()
        if active is not None and not active.ended:
            raise NestedActionError(
                f"{active.name} → {action.spec.name}: an action cannot await another one yet; "
                "call it from the rollout, or call its `.body`"
            )
        if kwargs or len(args) not in action.positional:  # binding costs 2 us, and the commonest calls are plain
            _bind(action, args, kwargs)
        trajectory = trajectory_var.get()
        if trajectory is not None:
            trajectory = self._checked(trajectory, action)
        sandbox = None
        if trajectory is not None and action.spec.kind is BodyKind.ASYNC and action.spec.cost.minimum_cpu > 0:
            sandbox = trajectory.sandbox
        demand = self._demand(action.spec, trajectory)
        pending = PendingAction(
            self._dispatcher.new_id(),
            demand,
            submitted_at_s,
            "" if action.spec.key is None else _key(action.spec, args, kwargs),
            None if trajectory is None else trajectory.id,
            sandbox is not None or demand.reserved > 0,
        )
        if action.spec.kind is BodyKind.PROCESS:  # what cannot be sent is told at once, not after the wait
            args, kwargs = (pack(action, args, kwargs),), {}
        return Invocation(self._workshop, action, args, kwargs, pending, sandbox).result()

    def _checked(self, trajectory: Trajectory, action: Invocable) -> Trajectory | None:
        """Return the trajectory in which an action is called, unless it is that of another runtime."""
        if not trajectory.is_open:
            raise NoTrajectoryError(f"{action.spec.name} was called in a trajectory that is closed")
        return trajectory if trajectory.runtime is self else None

    def _check_usable(self) -> float:
        """Return the time, if a call is possible from here."""
        if self._state != "open":
            raise RuntimeClosedError(f"this runtime is {self._state}, not open")
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is not self._loop:
            raise self._misplaced()
        return self._loop.time()

    def _misplaced(self) -> UsageError:
        """Say why a call from outside of the runtime's event loop is not possible."""
        if self._pid != os.getpid():
            return ForkedRuntimeError(f"this runtime was opened by process {self._pid}; open another in this child")
        if self._loop.is_closed():
            return RuntimeClosedError("the event loop of this runtime was closed, and the runtime with it")
        return WrongLoopError("this runtime belongs to another event loop; calls from others are not possible yet")

    def _check_opened(self) -> None:
        if self._state in {"new", "opening"}:
            raise RuntimeClosedError(f"this runtime is {self._state}, not open")

    def _demand(self, spec: ActionSpec, trajectory: Trajectory | None) -> Demand:
        """Return the cost in this runtime's units; resolved once for all calls that stand alike."""
        reserved, held = (0, 0) if trajectory is None else (self._policy.reserved_cores, trajectory.memory_bytes)
        known = self._demands.get((id(spec), reserved, held))
        if known is not None and known[0] is spec:
            return known[1]
        demand = resolve(spec, self._core.topology, reserved=reserved * MILLI, memory_held=held)
        if len(self._demands) >= 10_000:  # `with_options` in a loop must not grow without bound
            self._demands.clear()
        self._demands[id(spec), reserved, held] = (spec, demand)
        return demand

    # Trajectories and looking in.

    def trajectory(self, *, image: str | None = None, memory_gib: float = 0, group: str | None = None) -> Trajectory:
        """Return a trajectory to enter with `async with`; see `tangram.trajectory`."""
        self._check_usable()
        active = active_var.get()
        if active is not None and not active.ended:  # what it holds and what the action holds could wait for each other
            raise NestedActionError(f"{active.name} → trajectory: an action cannot open a trajectory")
        memory_bytes = bytes_of_gib(memory_gib, "trajectory(memory_gib=)", ConfigurationError)
        if self._workshop.cpu is not None:
            self._workshop.cpu.check_image(image)
        elif image is not None:
            raise ConfigurationError(f"trajectory(image={image!r}) needs a pool that has sandboxes; there is none")
        reserved = self._policy.reserved_cores * MILLI
        demand = trajectory_demand(self._core.topology, memory_bytes=memory_bytes, reserved=reserved)
        return Trajectory(self, self._workshop, demand, image=image, memory_bytes=memory_bytes, group=group)

    def statistics(self) -> Statistics:
        """Return what waits, what runs, and what is used of each resource right now."""
        self._check_opened()
        core = self._core
        core.advance(self._loop.time())
        return Statistics(
            waiting=core.waiting,
            running=core.running,
            lingering=tuple(i.name for i in self._workshop.live.values() if i.lingering),
            trajectories=core.trajectories,
            dimensions={
                d.name: DimensionStatistics(d.capacity / d.scale, core.used(i) / d.scale, core.free(i) / d.scale)
                for i, d in enumerate(core.topology.dimensions)
            },
        )

    def report(self) -> str:
        """Return a text: action completion times and their parts by action, utilisation by pool, what was learned."""
        self._check_opened()
        now_s = self._loop.time() if self._closed_at_s is None else self._closed_at_s
        return render(self._summary, now_s=now_s, learned=self._core.durations.learned())

    def describe(self) -> str:
        """Say in one line what enforces grants of cores here."""
        self._check_opened()
        return "no pool of cores" if self._workshop.cpu is None else self._workshop.cpu.describe()


def trajectory(*, image: str | None = None, memory_gib: float = 0, group: str | None = None) -> TrajectoryScope:
    """Return a trajectory of the current runtime, to be entered with `async with`.

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


def _cores(cpu: CpuManager | None) -> int:
    """Return how many cores there are: those of the pool, else those that this process may use."""
    offered = [d.capacity // d.scale for d in (cpu.dimensions() if cpu is not None else ()) if d.name == CPU]
    return offered[0] if offered else len(os.sched_getaffinity(0))


def _bind(action: Invocable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    try:
        action.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentsError(f"{action.spec.name}{action.signature}: {error}") from None


def _key(spec: ActionSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    assert spec.key is not None
    key = spec.key(*args, **kwargs)
    if not isinstance(key, str):
        raise DefinitionError(f"{spec.name}: key= returned {key!r}; it must return a string")
    return key
