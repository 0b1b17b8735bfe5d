"""A whole runtime whose running actions share their cores, under any order of what can happen to it, in virtual time.

Whatever happens, nothing is used twice or left behind, every call is answered, the parts of its time are all of it, and
its timeout counts none of the time for which it was suspended.
"""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import arl_tangram as tangram
from arl_tangram import Elastic, InfeasibleError, NestedActionError, NoTrajectoryError, Quota, ShutdownError, Tangram
from arl_tangram.errors import NoRuntimeError, RuntimeClosedError, RunTimeout, UsageError
from arl_tangram.model.events import ActionEnded, ActionResized
from arl_tangram.model.lifecycle import FinishedAction, Outcome
from arl_tangram.scheduling import policies
from arl_tangram.testing import FakeSandbox, assert_idle
from arl_tangram.trace.sink import MemorySink
from counting_pools import CountingPool
from virtual_time import VirtualLoop, run_virtually, turns

STEP_S = 0.125
ROLLOUTS = 8
TIMEOUTS_S = (0.1875, 0.6875)
POLICIES = (policies.equal_shares(), policies.least_attained(), policies.size_aware())
KINDS: tuple[dict[str, Any], ...] = (
    {"cpu": 1},
    {"cpu": 2},
    {"cpu": Elastic(1, 4, resizable=True)},
    {"cpu": Elastic.of(2, 4, resizable=True), "preemptible": False},
    {"cpu": Elastic(1, 3)},
    {"cpu": 1, "preemptible": False},
    {"cpu": 0.5},
    {"cpu": 2, "memory_gib": 4},
    {"cpu": 1, "quota": {"api": 1}},
)


_ENDS = (InfeasibleError, NestedActionError, NoTrajectoryError, ShutdownError, RuntimeClosedError, NoRuntimeError)


class OwnError(Exception):
    """What a body raises."""


@dataclass(frozen=True)
class Call:
    """One call, and what its body does.

    Attributes:
        kind: the number of its cost.
        at_s: when it is made.
        rollout: where; None outside of any.
        steps: commands that it runs one after the other.
        priority: lower goes first.
        timeout: seconds that it may run, or None.
        cancel_s: seconds after which its caller cancels it, or None.
        end: "return", "raise", or "deaf", which hears of nothing.
        child: the kind of a call that it makes half-way, or None.
    """

    kind: int
    at_s: float
    rollout: int | None
    steps: int
    priority: int
    timeout: float | None
    cancel_s: float | None
    end: str
    child: int | None


@dataclass(frozen=True)
class World:
    """A runtime, and what happens to it as a whole."""

    cores: int
    policy: int
    clean_s: float
    capacity: tuple[float, int] | None
    paused: tuple[float, float] | None
    close_s: float | None


TIMES_S = st.integers(0, 16).map(lambda eighths: eighths / 8)
CALLS = st.builds(
    Call,
    kind=st.sampled_from([0, 1, 2, *range(len(KINDS))]),
    at_s=TIMES_S,
    rollout=st.sampled_from([None, *range(ROLLOUTS)]),
    steps=st.integers(1, 8),
    priority=st.sampled_from([0, 0, -1, 1]),
    timeout=st.sampled_from([None, None, *TIMEOUTS_S]),
    cancel_s=st.sampled_from([None, None, None, 0.25, 1.0]),
    end=st.sampled_from(["return", "return", "return", "return", "raise", "deaf"]),
    child=st.sampled_from([None, None, None, 0, 2, 6]),
)
WORLDS = st.builds(
    World,
    cores=st.sampled_from([2, 2, 4]),
    policy=st.integers(0, len(POLICIES) - 1),
    clean_s=st.sampled_from([0.0, 0.0, 0.125]),
    capacity=st.none() | st.tuples(TIMES_S, st.integers(1, 5)),
    paused=st.none() | st.tuples(TIMES_S, TIMES_S),
    close_s=st.none() | TIMES_S.map(lambda at_s: at_s + 0.5),
)


async def body(call: Call) -> str:
    box: Any = None
    with suppress(tangram.NoSandboxError):
        box = cast(FakeSandbox, tangram.current_sandbox())
    for step in range(call.steps):
        if box is not None:
            await box.exec(["step"])
        await _sleep(call)
        if call.child is not None and step == call.steps // 2:
            await _declared(call.child)(Call(call.child, 0.0, call.rollout, 2, 0, None, None, "return", None))
    if call.end == "raise":
        raise OwnError
    return "done"


async def _sleep(call: Call) -> None:
    if call.end != "deaf":
        await asyncio.sleep(STEP_S)
        return
    loop = asyncio.get_running_loop()
    end_s = loop.time() + STEP_S
    while loop.time() < end_s:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(end_s - loop.time())


def _declared(kind: int) -> Any:
    return tangram.action(**KINDS[kind])(body)


async def _make(call: Call, rollouts: list[Any]) -> str:
    """Make a call, and cancel it if that is wanted; return its outcome, which must be one that it can have."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(call.at_s)
    if call.rollout is not None:
        await rollouts[call.rollout].opened.wait()
    action = _declared(call.kind).with_options(priority=call.priority, timeout=call.timeout)
    context = None if call.rollout is None else rollouts[call.rollout].context
    task = loop.create_task(_run(action, call), context=context)
    done, _ = await asyncio.wait([task], timeout=call.cancel_s)
    if not done:
        task.cancel()
        await asyncio.wait([task])
    if task.cancelled():
        assert call.cancel_s is not None
        return "cancelled"
    return task.result()


async def _run(action: Any, call: Call) -> str:
    try:
        return str(await action(call))
    except OwnError:
        assert call.end == "raise"
        return "raised"
    except RunTimeout:
        assert call.timeout is not None
        return "timeout"
    except _ENDS as error:
        return type(error).__name__


class Rollout:
    """A trajectory that is open until it is told to end."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.over = asyncio.Event()
        self.context: Any = None

    async def run(self) -> None:
        try:
            async with tangram.trajectory():
                self.context = contextvars.copy_context()
                self.opened.set()
                await self.over.wait()
        except (ShutdownError, RuntimeClosedError):
            self.opened.set()


async def _play(world: World, calls: list[Call], sink: MemorySink) -> None:
    pool = CountingPool(cores=world.cores, share=POLICIES[world.policy], clean_s=world.clean_s)
    tg = Tangram(pool, Quota("api", calls=4, period_s=1.0, concurrency=2), trace=sink, kill_grace_s=0.25)
    loop = cast(VirtualLoop, asyncio.get_running_loop())
    async with tg:
        loop.before_step = lambda step: _check(tg, pool)
        rollouts = [Rollout() for _ in range(ROLLOUTS)]
        lives = [asyncio.ensure_future(rollout.run()) for rollout in rollouts]
        made = [asyncio.ensure_future(_make(call, rollouts)) for call in calls]
        steering = [asyncio.ensure_future(step) for step in _steering(world, tg)]
        if world.close_s is not None:
            await asyncio.sleep(world.close_s)
            await tg.aclose()
        await asyncio.gather(*steering)
        outcomes = await asyncio.gather(*made)
        for rollout in rollouts:
            rollout.over.set()
        await asyncio.gather(*lives)
        assert len(outcomes) == len(calls)
        if world.close_s is None:
            await asyncio.sleep(4.0)  # those that are deaf end
            await turns(6)
            assert_idle(tg)
        loop.before_step = lambda step: None
    assert not pool.made.sandboxes
    assert tg.statistics().running == 0 or any(call.end == "deaf" for call in calls)


def _steering(world: World, tg: Tangram) -> list[Any]:
    async def resize(at_s: float, cores: int) -> None:
        await asyncio.sleep(at_s)
        with suppress(RuntimeClosedError, UsageError):
            tg.set_capacity("cpu", cores)

    async def pause(at_s: float, for_s: float) -> None:
        await asyncio.sleep(at_s)
        with suppress(RuntimeClosedError):
            tg.pause()
        await asyncio.sleep(for_s)
        with suppress(RuntimeClosedError):
            tg.resume()

    steps: list[Any] = [] if world.capacity is None else [resize(*world.capacity)]
    return steps if world.paused is None else [*steps, pause(*world.paused)]


def _check(tg: Tangram, pool: CountingPool) -> None:
    """See that nothing is used twice, and that the manager has at least as much free as the scheduler counts."""
    if not tg.is_open:
        return
    dimensions = tg.statistics().dimensions
    for name, dimension in dimensions.items():
        assert dimension.used + dimension.free == dimension.capacity, name
        assert dimension.free >= 0 or name.startswith("quota:"), name
    assert dimensions["cpu"].free * 1000 <= pool.made.milli_free


def _check_times(event: ActionEnded, sink: MemorySink, calls: list[Call]) -> None:
    action = event.action
    assert action.act_s == pytest.approx(event.at_s - action.submitted_at_s, abs=1e-9)
    assert min(action.queueing_s, action.execution_s, action.overhead_s, action.suspended_s) >= 0
    assert action.switches == _switches(action, event, sink)
    if action.suspended_s:
        assert action.switches
    if action.outcome is Outcome.RUN_TIMEOUT and all(call.child is None and call.end != "deaf" for call in calls):
        assert any(action.execution_s == pytest.approx(timeout, abs=1e-9) for timeout in TIMEOUTS_S)


def _switches(action: FinishedAction, event: ActionEnded, sink: MemorySink) -> int:
    before = sink.events[: next(i for i, other in enumerate(sink.events) if other is event)]
    return sum(isinstance(other, ActionResized) and other.id == action.id for other in before)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=WORLDS, calls=st.lists(CALLS, min_size=4, max_size=24))
def test_whatever_happens_nothing_is_lost(world: World, calls: list[Call]) -> None:
    sink = MemorySink()
    run_virtually(_play(world, calls, sink))
    for event in sink.events:
        if isinstance(event, ActionEnded):
            _check_times(event, sink, calls)
