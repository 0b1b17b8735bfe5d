"""Running actions that share their cores: they are suspended and go on, grow and shrink, and are ended at any time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

import arl_tangram as tangram
from arl_tangram import (
    ConfigurationError,
    Elastic,
    GroupCancelledError,
    InfrastructureError,
    NoTrajectoryError,
    RunTimeout,
    SandboxLostError,
    ShutdownError,
    Tangram,
    current_allocation,
    current_sandbox,
    policies,
)
from arl_tangram.execution import resize
from arl_tangram.integrations.rollouts.rollout import Rollout
from arl_tangram.managers.manager import ManagedSandbox
from arl_tangram.model.events import ActionEnded
from arl_tangram.model.lifecycle import FinishedAction, Outcome
from arl_tangram.testing import FakeManager, FakePool, FakeSandbox, assert_idle
from arl_tangram.timed_policy import TimedShare, watched_share
from arl_tangram.trace.reader import read_trace
from arl_tangram.trace.sink import MemorySink
from counting_pools import CountingPool
from injection import Scene, at_every_step
from virtual_time import turns, virtual

STEP_S = 0.125
EQUAL = policies.equal_shares()


def now_s() -> float:
    return asyncio.get_running_loop().time()


def box() -> FakeSandbox:
    return cast(FakeSandbox, current_sandbox())


async def work(for_s: float) -> float:
    """Run one command after the other; when it is suspended, the one that has begun goes on, and the next one waits."""
    for _ in range(round(for_s / STEP_S)):
        await box().exec(["step"])
        await asyncio.sleep(STEP_S)
    return now_s()


@tangram.action(cpu=2)
async def steady(for_s: float = 1.0) -> float:
    return await work(for_s)


@tangram.action(cpu=2, priority=-1)
async def urgent(for_s: float = 1.0) -> float:
    await asyncio.sleep(for_s)
    return now_s()


@tangram.action(cpu=2, timeout=1.5)
async def timed(for_s: float) -> float:
    return await work(for_s)


@tangram.action(cpu=2)
async def deaf(for_s: float) -> None:
    end_s = now_s() + for_s
    while now_s() < end_s:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(end_s - now_s())


@tangram.action()
async def elsewhere(for_s: float) -> None:
    await asyncio.sleep(for_s)


async def in_a_sandbox(action: Any, *args: Any, after_s: float = 0.0, group: str | None = None) -> Any:
    """Call an action in a trajectory of its own."""
    await asyncio.sleep(after_s)
    async with tangram.trajectory(group=group):
        return await action(*args)


@asynccontextmanager
async def sharing(**options: Any) -> AsyncIterator[tuple[Tangram, MemorySink]]:
    """Open two cores that are shared; at the end, all is back."""
    sink = MemorySink()
    pool = CountingPool(cores=options.pop("cores", 2), share=EQUAL, clean_s=options.pop("clean_s", 0.0))
    async with Tangram(pool, trace=sink, **options) as tg:
        yield tg, sink
        await turns(6)
        assert_idle(tg)
        assert pool.is_whole
    for event in sink.events:
        if isinstance(event, ActionEnded):
            assert_adds_up(event)


def ended(sink: MemorySink, name: str = "") -> list[FinishedAction]:
    found = [event.action for event in sink.events if isinstance(event, ActionEnded)]
    return [action for action in found if action.name.endswith(name)]


def assert_adds_up(event: ActionEnded) -> None:
    """See that the parts of a call's time are all of it."""
    action = event.action
    parts = action.queueing_s + action.execution_s + action.overhead_s + action.suspended_s
    assert parts == action.act_s == event.at_s - action.submitted_at_s
    assert min(action.queueing_s, action.execution_s, action.overhead_s, action.suspended_s) >= 0


def begin(*calls: Any) -> list[asyncio.Task[Any]]:
    return [asyncio.ensure_future(call) for call in calls]


@virtual
async def test_one_that_is_suspended_goes_on_where_it_was() -> None:
    async with sharing() as (_, sink):
        first, second = begin(in_a_sandbox(steady, 1.0), in_a_sandbox(urgent, 1.0, after_s=0.5))
        assert await second == 1.5
        assert await first == 1.875
        (action,) = ended(sink, "steady")
        assert (action.suspended_s, action.switches, action.cores) == (1.0, 2, 2.0)
        assert (action.queueing_s, action.execution_s, action.act_s) == (0.0, 0.875, 1.875)
        (other,) = ended(sink, "urgent")
        assert (other.suspended_s, other.switches, other.act_s) == (0.0, 0, 1.0)


@virtual
async def test_the_body_sees_what_it_has_and_what_it_may_have() -> None:
    seen: list[Any] = []

    @tangram.action(cpu=Elastic(1, 8, resizable=True))
    async def growing() -> list[float]:
        for _ in range(3):
            seen.append((current_allocation().cores, current_allocation().max_units))
            await asyncio.sleep(0.5)
        return box().sizes

    async with sharing(cores=4) as (_, sink):
        first, second = begin(in_a_sandbox(growing), in_a_sandbox(urgent, 0.5, after_s=0.375))
        assert await first == [4.0, 2.0, 4.0]
        await second
        assert seen == [(4, 4), (2, 4), (4, 4)]
        (action,) = ended(sink, "growing")
        assert (action.suspended_s, action.switches, action.cores) == (0.0, 2, 4.0)


@virtual
async def test_what_is_suspended_shows_the_cores_that_it_had() -> None:
    @tangram.action(cpu=2)
    async def looking() -> tuple[float, bool]:
        await asyncio.sleep(1.0)
        return current_allocation().cores, box().suspended

    async with sharing():
        first, second = begin(in_a_sandbox(looking), in_a_sandbox(urgent, 1.0, after_s=0.5))
        assert await first == (2, True)
        await second


@virtual
@pytest.mark.parametrize("share", [None, EQUAL])
async def test_who_may_not_be_resized_has_at_most_what_it_has(share: Any) -> None:
    @tangram.action(cpu=Elastic(1, 3, resizable=share is None))
    async def looking() -> int:
        return current_allocation().max_units

    async with Tangram(FakePool(cores=4, share=share)):
        assert await in_a_sandbox(looking) == 3
        assert await looking() == 3  # outside of a sandbox, on cores that nobody changes


@virtual
async def test_the_most_that_it_may_have_is_told_with_the_lease() -> None:
    told: list[int] = []

    class Manager(FakeManager):
        def lease(self, milli_cores: int, sandbox: ManagedSandbox | None, *, again: bool = False, most: int = 0) -> Any:
            told.append(most)
            return super().lease(milli_cores, sandbox, again=again, most=most)

    class Pool(FakePool):
        def manager(self) -> FakeManager:
            return Manager(self)

    growing = tangram.action(cpu=Elastic(1, 8, resizable=True))(urgent.body)
    async with Tangram(Pool(cores=4, share="resize")):
        await in_a_sandbox(growing, 0.0)
        await in_a_sandbox(urgent, 0.0)
        await growing(0.0)
    async with Tangram(Pool(cores=4)):
        await in_a_sandbox(growing, 0.0)
    assert told == [4000, 0, 0, 0]


@virtual
async def test_one_that_is_not_preemptible_keeps_its_cores() -> None:
    async with sharing() as (_, sink):
        kept = steady.with_options(preemptible=False)
        first, second = begin(in_a_sandbox(kept, 1.0), in_a_sandbox(urgent, 1.0, after_s=0.5))
        assert await first == 1.0
        assert await second == 2.0
        assert ended(sink, "steady")[0].switches == 0


# Deadlines.


@virtual
async def test_the_timeout_stands_still_while_it_is_suspended() -> None:
    async with sharing() as (_, sink):
        first, second = begin(in_a_sandbox(timed, 1.5), in_a_sandbox(urgent, 1.0, after_s=0.5))
        assert await first == 2.375
        await second
        late, again = begin(in_a_sandbox(timed, 2.0), in_a_sandbox(urgent, 1.0, after_s=0.5))
        begun_s = now_s()
        with pytest.raises(RunTimeout):
            await late
        assert now_s() - begun_s == 2.5
        await again
        (_, action) = ended(sink, "timed")
        assert (action.outcome, action.suspended_s, action.execution_s) == (Outcome.RUN_TIMEOUT, 1.0, 1.5)


@virtual
async def test_a_timeout_that_is_over_while_it_is_suspended_does_not_end_it() -> None:
    async with sharing():
        first, second = begin(in_a_sandbox(timed, 1.0), in_a_sandbox(urgent, 10.0, after_s=0.5))
        assert await first == 10.875
        await second


@virtual
async def test_the_deadline_of_a_rollout_is_a_moment_that_comes_while_it_is_suspended() -> None:
    async with sharing() as (tg, _):
        async with Rollout(tg, deadline_s=1.0) as rollout:
            first, second = begin(rollout.call(timed, 1.5), in_a_sandbox(urgent, 3.0, after_s=0.5))
            with pytest.raises(RunTimeout, match="still ran when the time of its rollout was over"):
                await first
            assert now_s() == 1.0
        await second


@virtual
async def test_the_deadline_of_a_rollout_comes_while_a_body_waits_for_what_it_called() -> None:
    @tangram.action(cpu=2, timeout=0.5)
    async def outer() -> None:
        await elsewhere(2.0)

    async with sharing() as (tg, _), Rollout(tg, deadline_s=1.0) as rollout:
        with pytest.raises(RunTimeout, match="still ran when the time of its rollout was over"):
            await rollout.call(outer)
        assert now_s() == 1.0


@virtual
async def test_a_timeout_is_not_blamed_on_a_rollout_that_is_over_as_well() -> None:
    async with sharing(kill_grace_s=2.0) as (tg, _), Rollout(tg, deadline_s=1.0) as rollout:

        @tangram.action(cpu=2, timeout=0.75)
        async def late() -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(5.0)
            await asyncio.sleep(0.5)

        with pytest.raises(RunTimeout, match=r"longer than its timeout of 0\.75 s"):
            await rollout.call(late)
        assert now_s() == 1.25


@virtual
async def test_the_timeout_stands_still_while_both_suspended_and_waiting_for_others() -> None:
    @tangram.action(cpu=2, timeout=1.5)
    async def outer() -> float:
        await work(0.5)
        await elsewhere(2.0)  # from 0.5 to 2.5, and suspended from 0.75 to 1.75
        return await work(0.875)

    async with sharing() as (_, sink):
        first, second = begin(in_a_sandbox(outer), in_a_sandbox(urgent, 1.0, after_s=0.75))
        assert await first == 3.375
        await second
        assert ended(sink, "outer")[0].act_s == 3.375


@virtual
async def test_one_that_is_suspended_when_its_calls_have_ended_goes_on_with_its_cores() -> None:
    @tangram.action(cpu=2, timeout=1.5)
    async def outer() -> tuple[float, float]:
        await asyncio.sleep(0.75)
        await elsewhere(0.5)  # from 0.75 to 1.25; suspended from 0.5 to 2.5
        back_s = now_s()
        await work(0.5)
        return back_s, now_s()

    async with sharing() as (_, sink):
        first, second = begin(in_a_sandbox(outer), in_a_sandbox(urgent, 2.0, after_s=0.5))
        assert await first == (2.5, 3.0)
        await second
        (action,) = ended(sink, "outer")
        # What it waited for its call counts as such, the rest of the time without cores as suspended.
        assert (action.suspended_s, action.execution_s, action.switches) == (1.5, 1.5, 2)


@virtual
async def test_one_that_is_suspended_calls_in_its_own_sandbox() -> None:
    @tangram.action(cpu=1, priority=-2)
    async def inner() -> float:
        await box().exec(["inner"])
        return await work(0.5)

    @tangram.action(cpu=2)
    async def outer() -> tuple[float, float, list[float]]:
        await asyncio.sleep(0.75)
        inner_s = await inner()
        await box().exec(["outer"])
        return inner_s, now_s(), box().sizes

    async with sharing():
        first, second = begin(in_a_sandbox(outer), in_a_sandbox(urgent, 2.0, after_s=0.5))
        inner_s, back_s, sizes = await first
        await second
        assert inner_s == 1.25  # it took the cores of `urgent`
        assert back_s >= 2.5
        assert sizes == [2.0, 0.0, 1.0, 2.0]


@virtual
@pytest.mark.parametrize("files", [False, True])
async def test_a_command_that_waits_keeps_what_is_lent_from_ending_it(files: bool) -> None:
    """As it would keep the cores if it ran; file operations need none, and go on meanwhile."""

    @tangram.action(cpu=2)
    async def outer() -> tuple[float, Any]:
        await asyncio.sleep(0.75)  # suspended from 0.5 to 2.5

        async def call() -> float:
            await elsewhere(0.25)
            return now_s()

        waiting = box().write_file("file", b"x") if files else box().exec(["waits"])
        _, called_s = await asyncio.gather(waiting, call())
        return now_s(), called_s

    async with sharing():
        first, second = begin(in_a_sandbox(outer), in_a_sandbox(urgent, 2.0, after_s=0.5))
        back_s, called_s = await first
        assert (back_s, called_s) == (2.5, 2.5 if files else 1.0)
        await second


@virtual
async def test_a_command_that_waits_goes_on_with_the_next_cores_though_its_body_waits_for_others() -> None:
    """Those may be waiting for what that command does."""

    @tangram.action(cpu=2)
    async def outer() -> tuple[float, float]:
        await asyncio.sleep(0.75)  # suspended from 0.5 to 1.5, and from 2.0 to 3.0

        async def command() -> float:
            await box().exec(["waits"])
            return now_s()

        command_s, _ = await asyncio.gather(command(), elsewhere(4.0))
        return command_s, await work(0.25)

    async with sharing() as (_, sink):
        (first,) = begin(in_a_sandbox(outer))
        others = begin(*(in_a_sandbox(urgent, 1.0, after_s=after_s) for after_s in (0.5, 2.0, 4.5)))
        assert await first == (1.5, 5.5 + 0.25)
        await asyncio.gather(*others)
        (action,) = ended(sink, "outer")
        assert (action.switches, action.suspended_s) == (6, 0.25 + 0.75)  # what it waited for its call counts as such


# Ends.


async def suspended_call(after_s: float = 1.0, action: Any = steady, **options: Any) -> list[asyncio.Task[Any]]:
    """Return a call that is suspended now, from 0.5 to 10.5, and the one for which it is."""
    calls = begin(in_a_sandbox(action, 1.0, **options), in_a_sandbox(urgent, 10.0, after_s=0.5))
    await asyncio.sleep(after_s)
    return calls


@virtual
@pytest.mark.parametrize("clean_s", [0.0, 0.25])
async def test_its_caller_ends_one_that_is_suspended_at_once(clean_s: float) -> None:
    async with sharing(clean_s=clean_s) as (_, sink):
        first, second = await suspended_call()
        first.cancel()
        await asyncio.wait([first])
        assert now_s() == 1.0 + clean_s
        (action,) = ended(sink, "steady")
        assert (action.outcome, action.suspended_s, action.execution_s) == (Outcome.CANCELLED, 0.5 + clean_s, 0.5)
        await second


@virtual
async def test_its_group_ends_one_that_is_suspended() -> None:
    async with sharing() as (tg, _):
        first, second = await suspended_call(group="g")
        assert await tg.cancel_group("g") == 1
        with pytest.raises(GroupCancelledError):
            await first
        assert now_s() == 1.0
        await second


@virtual
async def test_its_trajectory_ends_one_that_is_suspended() -> None:
    async with sharing():
        async with tangram.trajectory():
            call = asyncio.ensure_future(steady(1.0))
            (second,) = begin(in_a_sandbox(urgent, 2.0, after_s=0.5))
            await asyncio.sleep(1.0)
        with pytest.raises(NoTrajectoryError):
            await call
        assert now_s() == 1.0
        await second


@virtual
async def test_closing_the_runtime_ends_one_that_is_suspended() -> None:
    pool = CountingPool(cores=2, share=EQUAL)
    async with Tangram(pool):
        first, second = await suspended_call()
    for call in (first, second):
        with pytest.raises(ShutdownError):
            await call
    assert now_s() == 1.0
    assert pool.is_whole


@virtual
async def test_a_body_that_does_not_listen_lingers_suspended() -> None:
    async with sharing(kill_grace_s=0.5) as (tg, sink):
        first, second = begin(in_a_sandbox(deaf, 3.0), in_a_sandbox(urgent, 1.0, after_s=0.5))
        await asyncio.sleep(0.75)
        first.cancel()
        await asyncio.wait([first])
        (name,) = tg.statistics().lingering
        assert name.endswith("deaf")
        assert await second == 1.5
        await asyncio.sleep(2.0)
        (action,) = ended(sink, "deaf")
        assert (action.suspended_s, action.switches) == (0.75, 1)


@virtual
async def test_draining_waits_for_one_that_is_suspended() -> None:
    async with sharing() as (tg, _):
        first, second = begin(in_a_sandbox(steady, 1.0), in_a_sandbox(urgent, 1.0, after_s=0.5))
        await asyncio.sleep(1.0)
        assert tg.statistics().running == 2
        await tg.drain()
        assert now_s() == 1.875
        tg.resume()
        assert (await first, await second) == (1.875, 1.5)


@virtual
async def test_cores_that_are_not_taken_end_the_body_with_that_error() -> None:
    async with sharing() as (_, sink):
        boxes: list[FakeSandbox] = []

        @tangram.action(cpu=2)
        async def losing() -> None:
            boxes.append(box())
            await asyncio.sleep(5.0)

        first, second = begin(in_a_sandbox(losing), in_a_sandbox(urgent, 1.0, after_s=0.5))
        await asyncio.sleep(0.25)
        boxes[0].closed = True
        with pytest.raises(SandboxLostError, match="is closed"):
            await first
        assert now_s() == 0.5
        assert await second == 1.5
        assert ended(sink, "losing")[0].outcome is Outcome.INFRASTRUCTURE


@virtual
async def test_one_whose_cores_are_lost_while_it_waits_to_go_on_hears_of_it() -> None:
    @tangram.action(cpu=2)
    async def outer() -> None:
        await asyncio.sleep(0.75)
        lost.append(box())
        await elsewhere(0.5)

    class Manager(FakeManager):
        def lease(self, milli_cores: int, sandbox: ManagedSandbox | None, *, again: bool = False, most: int = 0) -> Any:
            if sandbox in lost:
                raise SandboxLostError("it is gone")
            return super().lease(milli_cores, sandbox, again=again, most=most)

    class Pool(FakePool):
        def manager(self) -> FakeManager:
            return Manager(self)

    lost: list[object] = []
    async with Tangram(Pool(cores=2, share=EQUAL)) as tg:
        first, second = begin(in_a_sandbox(outer), in_a_sandbox(urgent, 2.0, after_s=0.5))
        with pytest.raises(SandboxLostError, match="it is gone"):
            await first
        assert now_s() == 2.5
        await second
        await turns(3)
        assert_idle(tg)


@virtual
async def test_an_attempt_that_is_lost_while_suspended_is_tried_again() -> None:
    attempts: list[float] = []

    @tangram.action(cpu=2, idempotent=True, retries=1)
    async def flaky() -> float:
        attempts.append(now_s())
        await asyncio.sleep(0.75)
        if box().suspended:
            raise InfrastructureError("lost")
        return now_s()

    async with sharing() as (tg, sink):
        tg._workshop.retrying._chance = Random(0)
        first, second = begin(in_a_sandbox(flaky), in_a_sandbox(urgent, 1.0, after_s=0.5))
        await first
        await second
        assert [action.suspended_s for action in ended(sink, "flaky")] == [0.25, 0.0]
        assert attempts[1] >= 1.5


@virtual
async def test_one_that_has_ended_in_the_same_turn_is_left_alone() -> None:
    async with sharing() as (tg, _):
        call = asyncio.ensure_future(in_a_sandbox(steady, 0.5))
        await asyncio.sleep(0.25)
        (live,) = tg._workshop.live.values()
        run = cast(Any, live).run
        assert await call == 0.5
        resize(tg._workshop, run.running._replace(units=0))
        run.resize(run.running._replace(units=0))
        assert run.switching is None


@virtual
@pytest.mark.parametrize("clean_s", [0.0, 0.25])
async def test_what_an_interrupted_body_cleans_up_does_not_wait_for_cores(clean_s: float) -> None:
    boxes: list[FakeSandbox] = []

    @tangram.action(cpu=2)
    async def careful() -> None:
        boxes.append(box())
        try:
            await asyncio.sleep(0.75)
            await box().exec(["never"])
        finally:
            await box().write_file("log", b"x")
            await box().exec(["clean"])
            await asyncio.sleep(0.25)
            await box().exec(["clean more"])

    async with sharing(clean_s=clean_s) as (_, sink):
        (first,) = begin(in_a_sandbox(careful))
        others = begin(in_a_sandbox(urgent, 0.625, after_s=0.5), in_a_sandbox(urgent, 5.0, after_s=1.125))
        await asyncio.sleep(1.0)  # from 1.125 to 1.2, it has cores and loses them again
        first.cancel()
        await asyncio.wait([first])
        assert now_s() == 1.25 + clean_s
        assert boxes[0].files == {"log": b"x"}
        assert boxes[0].commands == [("clean",), ("clean more",)]
        assert ended(sink, "careful")[0].outcome is Outcome.CANCELLED
        await asyncio.gather(*others)


# At every step.


async def suspended_and_going_on(scene: Scene) -> None:
    scene.victim(in_a_sandbox(steady, 1.0))
    (other,) = begin(in_a_sandbox(urgent, 0.5, after_s=0.5))
    await asyncio.wait([*scene.victims, other])


async def suspended_while_calling(scene: Scene) -> None:
    @tangram.action(cpu=1, priority=-2)
    async def inner() -> None:
        await work(0.25)

    @tangram.action(cpu=2)
    async def outer() -> None:
        await asyncio.sleep(0.5)
        await inner()
        await elsewhere(0.25)
        await work(0.25)

    scene.victim(in_a_sandbox(outer))
    others = begin(in_a_sandbox(urgent, 0.25, after_s=0.375), in_a_sandbox(urgent, 0.5, after_s=0.75))
    await asyncio.wait([*scene.victims, *others])


async def grown_and_shrunk(scene: Scene) -> None:
    growing = tangram.action(cpu=Elastic(1, 4, resizable=True))(steady.body)
    calls = [in_a_sandbox(growing, 0.5, after_s=0.125 * number) for number in range(4)]
    for call in calls[::2]:
        scene.victim(call)
    await asyncio.wait([*scene.victims, *begin(*calls[1::2])])


@pytest.mark.parametrize("scenario", [suspended_and_going_on, suspended_while_calling, grown_and_shrunk])
@pytest.mark.parametrize("clean_s", [0.0, 0.125])
def test_cancelling_at_every_step_loses_nothing(scenario: Any, clean_s: float) -> None:
    def pool() -> CountingPool:
        return CountingPool(cores=2, share=EQUAL, clean_s=clean_s)

    assert at_every_step(scenario, pool=pool, again_after=(2,)) > 50


# Opening.


@virtual
async def test_where_cores_cannot_be_changed_all_is_as_without(caplog: pytest.LogCaptureFixture) -> None:
    class Manager(FakeManager):
        def cannot_resize(self) -> str | None:
            return "no cgroups here"

    class Pool(FakePool):
        def manager(self) -> FakeManager:
            return Manager(self)

    with caplog.at_level(logging.WARNING, "arl_tangram"):
        async with Tangram(Pool(cores=2, share=EQUAL)) as tg:
            first, second = begin(in_a_sandbox(steady, 1.0), in_a_sandbox(urgent, 1.0, after_s=0.5))
            assert (await first, await second) == (1.0, 2.0)
            assert tg.describe().endswith("running actions keep their cores, for all that share= says: no cgroups here")
            assert "no cgroups here" in tg.report()
    assert "share=equal shares is without effect" in caplog.text


@virtual
async def test_what_is_shared_is_said() -> None:
    async with Tangram(FakePool(share="resize")) as tg:
        assert tg.describe() == "fake pool of 8 cores; running actions share their cores by size-aware"
    async with Tangram(FakePool()) as tg:
        assert tg.describe() == "fake pool of 8 cores"


def test_a_trace_names_the_policy_of_shared_cores(tmp_path: Path) -> None:
    with Tangram(FakePool(share="resize"), trace=tmp_path / "run.jsonl"):
        pass
    assert read_trace(tmp_path / "run.jsonl").header.policy == "elastic, share=size-aware"


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"FakePool\(share=\) takes 'resize', a policy .*, not 'always'"):
        FakePool(share=cast(Any, "always"))
    with pytest.raises(ConfigurationError, match=r"not <class .*EqualShares'>; call it$"):
        FakePool(share=cast(Any, policies.EqualShares))
    with pytest.raises(ConfigurationError, match=r"not Elastic\(\), which decides what starts .* Tangram\(policy=\)$"):
        FakePool(share=cast(Any, policies.elastic()))
    with pytest.raises(ConfigurationError, match=r"; it lacks rank, next_s, share$"):
        FakePool(share=cast(Any, SimpleNamespace(name="own")))
    with pytest.raises(ConfigurationError, match=r"not EqualShares\(\), which is for share= of a pool$"):
        Tangram(FakePool(), policy=cast(Any, policies.equal_shares()))
    with pytest.raises(ConfigurationError, match=r"OwnPool\(share=\) takes 'resize', a policy .*, not 'always'"):
        Tangram(OwnPool())
    with pytest.raises(
        ConfigurationError, match=r"policy=reserved.* and FakePool\(share=\) lets running actions share"
    ):
        Tangram(FakePool(share="resize"), policy=policies.reserved(1))


class OwnPool:
    """A pool of the user's own, with what no pool takes."""

    share = "always"

    def manager(self) -> FakeManager:
        raise AssertionError("it is not opened")


class Own:
    """A policy of the user's own: whoever came first."""

    name = "own"

    def __init__(self, takes_s: float = 0.0, fails_at: int = -1) -> None:
        self.takes_s = takes_s
        self.fails_at = fails_at
        self.asked = 0

    def rank(self, sharer: policies.Sharer) -> float:
        return 0.0

    def next_s(self, sharer: policies.Sharer) -> float:
        return float("inf")

    def share(self, sharers: Sequence[policies.Sharer], cores: int, present: int) -> list[int]:
        self.asked += 1
        if self.takes_s:
            time.sleep(self.takes_s)
        if self.asked == self.fails_at:
            raise ValueError("cannot decide")
        return EQUAL.share(sharers, cores, present)


@virtual
async def test_a_policy_of_ones_own_decides_until_it_fails(caplog: pytest.LogCaptureFixture) -> None:
    own = Own(fails_at=3)
    async with Tangram(FakePool(cores=2, share=own)) as tg:
        calls = begin(*(in_a_sandbox(steady, 1.0, after_s=0.25 * number) for number in range(4)))
        await asyncio.gather(*calls)
        assert_idle(tg)
        assert "running actions share their cores equally, as own was refused" in tg.report()
    assert own.asked == 3
    assert "the policy of shared cores was refused: ValueError: cannot decide" in caplog.text


def test_a_policy_that_holds_up_the_loop_fails() -> None:
    assert watched_share(EQUAL) is EQUAL
    slow = watched_share(Own(takes_s=0.002))
    assert slow.name == "own"
    assert slow.share([], 2, 0) == []
    assert slow.rank(cast(Any, None)) == 0.0
    assert slow.next_s(cast(Any, None)) == float("inf")
    with pytest.raises(TimeoutError, match=r"planned for 0\.\d+ s; 0\.001 s are the most"):
        TimedShare(Own(takes_s=0.002), 0.001).share([], 2, 0)
