"""`Tangram`: opens the pools, takes calls, runs trajectories, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from os import PathLike
from typing import ParamSpec, TypeVar

from arl_tangram.action import BoundAction, invocable_of
from arl_tangram.calling import Calling
from arl_tangram.closing import Opened
from arl_tangram.context import TrajectoryScope, current_runtime
from arl_tangram.doorway import Doorway
from arl_tangram.errors import ConfigurationError
from arl_tangram.inside import check_cancel_group, check_drain
from arl_tangram.lent_devices import LentDevices
from arl_tangram.managers.manager import CpuPool, GpuPool
from arl_tangram.managers.quota import Quota
from arl_tangram.model.quantities import capacity_units, is_name
from arl_tangram.model.statistics import Statistics
from arl_tangram.model.topology import is_breaker, resource_of
from arl_tangram.opening import opened
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies import Plan, Policy
from arl_tangram.scheduling.usage import usage_of
from arl_tangram.setup import Setup, checked
from arl_tangram.trace.figures import Figures
from arl_tangram.trace.report import render
from arl_tangram.trace.sink import Sink
from arl_tangram.trajectories import Trajectory
from arl_tangram.uninterrupted import settled

P = ParamSpec("P")
R = TypeVar("R")


class Tangram(Calling):
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
        super().__init__()

    def __repr__(self) -> str:
        parts = [repr(part) for part in (self._setup.pool, self._setup.gpus, *self._setup.quotas) if part is not None]
        return f"<Tangram, {self._state}, {', '.join(parts) or 'no pool'}>"

    @property
    def setup(self) -> Setup:
        """What it was declared with."""
        return self._setup

    async def _open(self, doorway: Doorway) -> Opened:
        """Start the managers, and sweep what killed runs left behind."""
        self._opened = await opened(self._setup, doorway, self._set_closed)
        self._dispatcher = self._opened.dispatcher
        self._core = self._dispatcher.core
        if (cpu := self._opened.workshop.cpu) is not None:
            cpu.on_capacity(self._follow_capacity)
        return self._opened

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
        check_drain()
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
        check_cancel_group(group)
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
        gpu = self._opened.gpu
        if gpu is None:
            raise ConfigurationError("lend() needs a pool of GPUs, such as that of Tangram(tangram.GpuPool(...))")
        return LentDevices(gpu, self._dispatcher, self._doorway, tuple(devices), on_change=self._submitting.forget)

    # Looking in.

    def statistics(self) -> Statistics:
        """Return what waits, what runs, and what is used of each resource right now."""
        self._check_opened()
        return self._doorway.do(self._statistics)

    def _statistics(self) -> Statistics:
        core = self._core
        now_s = self._loop.time()
        core.advance(now_s)
        cpu, gpu, breakers = self._workshop.cpu, self._opened.gpu, self._opened.breakers
        return Statistics(
            waiting=core.waiting + len(self._workshop.retrying.waiting()),
            running=core.running,
            lingering=tuple(i.name for i in self._workshop.live.values() if i.lingering),
            trajectories=core.trajectories,
            dimensions=usage_of(core),
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
        now_s = self._now_s()
        cpu, gpu, breakers = self._workshop.cpu, self._opened.gpu, self._opened.breakers
        sharing = self._opened.sharing_in_words()
        notes = (
            *(() if cpu is None else cpu.notes()),
            *(() if sharing is None else (sharing,)),
            *(() if gpu is None else gpu.notes()),
            *(() if breakers is None else breakers.notes(now_s)),
        )
        return render(self._opened.summary, now_s=now_s, learned=self._core.durations.learned(), notes=notes)

    def figures(self) -> Figures:
        """Return the figures of the report as values: sums since it was opened, and means and quantiles of these."""
        self._check_opened()
        return self._doorway.do(self._figures)

    def _figures(self) -> Figures:
        self._dispatcher.tell()
        return self._opened.summary.figures(self._now_s())

    def _now_s(self) -> float:
        """Return until when what is held counts."""
        return self._loop.time() if self._closed_at_s is None else self._closed_at_s

    def describe(self) -> str:
        """Say what enforces grants of cores here, in one line, and in one more which GPUs there are, if any."""
        self._check_opened()
        return self._doorway.do(self._describe)

    def _describe(self) -> str:
        cpu, gpu, sharing = self._workshop.cpu, self._opened.gpu, self._opened.sharing_in_words()
        cores = "no pool of cores" if cpu is None else cpu.describe()
        cores = cores if sharing is None else f"{cores}; {sharing}"
        return cores if gpu is None else f"{cores}\n{gpu.describe()}"


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
