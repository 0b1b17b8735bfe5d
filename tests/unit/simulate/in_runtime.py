"""The same workload in the runtime, on an event loop in virtual time: bodies sleep for as long as calls really take."""

from __future__ import annotations

import asyncio
import heapq
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from typing import Any, cast

import arl_tangram as tangram
from arl_tangram import Tangram
from arl_tangram.context import Invocable
from arl_tangram.errors import QueueTimeout, RunTimeout
from arl_tangram.managers.gpu.fake_pool import FakeUse
from arl_tangram.managers.quota import Quota
from arl_tangram.model.events import ActionEnded, Event
from arl_tangram.model.lifecycle import ActionSpec, BodyKind
from arl_tangram.model.quantities import GIB
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies import Plan, Policy
from arl_tangram.simulate.calls import Arrival, Call, Rollout, Turn, Workload
from arl_tangram.testing import FakeGpuPool, FakePool, assert_idle
from arl_tangram.trace.sink import MemorySink
from virtual_time import VirtualLoop, run_virtually


class _Timer(asyncio.TimerHandle):
    """A timer that comes after those that were set before it for the same time; asyncio promises nothing there."""

    __slots__ = ("number",)

    number: int

    def __lt__(self, other: Any) -> bool:
        return (self._when, self.number) < (other._when, other.number)


class OrderedLoop(VirtualLoop):
    """A loop in virtual time whose timers of one moment fire in the order in which they were set."""

    def __init__(self) -> None:
        super().__init__()
        self._timers = 0

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        self._timers += 1
        timer.number = self._timers
        timer._scheduled = True
        heapq.heappush(self._scheduled, timer)
        return timer


def run_in_runtime(
    workload: Workload,
    policy: Policy | Plan,
    *,
    cores: int,
    memory_gib: int = 64,
    quotas: Sequence[Quota] = (),
    order: Order = "fcfs",
    gpus: FakeGpuPool | None = None,
) -> list[Event]:
    """Return the events of the core, in order."""
    told = told_by_runtime(workload, policy, cores=cores, memory_gib=memory_gib, quotas=quotas, order=order, gpus=gpus)
    return [event for event in told if not isinstance(event, ActionEnded)]


def told_by_runtime(
    workload: Workload,
    policy: Policy | Plan,
    *,
    cores: int,
    memory_gib: int = 64,
    quotas: Sequence[Quota] = (),
    order: Order = "fcfs",
    gpus: FakeGpuPool | None = None,
) -> list[Event]:
    """Return all events, in order, as they would be in a trace."""
    sink = MemorySink()

    async def play() -> None:
        pool = FakePool(cores=cores, memory_gib=memory_gib)
        pools = [pool] if gpus is None else [pool, gpus]
        async with Tangram(*pools, *quotas, policy=policy, order=order, trace=sink) as runtime:
            stage = _Stage(runtime)
            async with asyncio.TaskGroup() as group:
                for arrival in workload.arrivals:
                    group.create_task(stage.arrive(arrival))
                for rollout in workload.rollouts:
                    group.create_task(stage.roll(rollout))
            assert_idle(runtime)

    run_virtually(play(), OrderedLoop())
    return sink.events


class _Stage:
    """Calls actions and opens trajectories as a workload says."""

    def __init__(self, runtime: Tangram) -> None:
        self._runtime = runtime
        self._actions: dict[int, tuple[ActionSpec, Invocable]] = {}

    async def arrive(self, arrival: Arrival) -> None:
        await _until(arrival.at_s)
        await self._call(arrival.call)

    async def roll(self, rollout: Rollout) -> None:
        await _until(rollout.at_s)
        async with tangram.trajectory(memory_gib=rollout.memory_bytes / GIB, group=rollout.group):
            for turn in rollout.turns:
                await self._take(turn)

    async def _take(self, turn: Turn) -> None:
        if turn.thinking_s:
            await asyncio.sleep(turn.thinking_s)
        if len(turn.calls) == 1:
            await self._call(turn.calls[0])
        else:
            await asyncio.gather(*[self._call(call) for call in turn.calls])

    async def _call(self, call: Call) -> None:
        with suppress(RunTimeout, QueueTimeout):
            await self._runtime.invoke(self._action(call.spec), (call,), {})

    def _action(self, spec: ActionSpec) -> Invocable:
        """Return an action with this declaration; the same for the same one."""
        if id(spec) not in self._actions:
            assert spec.kind is BodyKind.ASYNC
            own = replace(spec, key=_key)
            self._actions[id(spec)] = spec, Invocable(own, _body, inspect.signature(_body), range(1, 2))
        return self._actions[id(spec)][1]


async def _body(call: Call) -> None:
    if call.spec.cost.service is None:
        units = int(tangram.current_allocation().cores)
    else:
        units = cast(FakeUse, tangram.current_service()).dop
    await asyncio.sleep(call.duration_s(units))


def _key(call: Call) -> str:
    return call.key


async def _until(at_s: float) -> None:
    loop = asyncio.get_running_loop()
    reached: asyncio.Future[None] = loop.create_future()
    loop.call_at(at_s, reached.set_result, None)
    await reached
