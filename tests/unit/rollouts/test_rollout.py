"""One rollout: its calls share a sandbox, its deadline holds, and a failure of the infrastructure ends it."""

from __future__ import annotations

import asyncio
import re

import pytest

import arl_tangram as tangram
from arl_tangram import (
    ConfigurationError,
    InfeasibleError,
    InfrastructureError,
    NoTrajectoryError,
    QueueTimeout,
    RunTimeout,
    SandboxLostError,
    SandboxStartError,
    Tangram,
    UsageError,
)
from arl_tangram.integrations.rollouts import Rollout, Tool, Used, current_rollout, use_alone
from arl_tangram.testing import FakePool, assert_idle
from unit.rollouts import actions_here as here
from virtual_time import turns, virtual

WRITE = Tool.declare(here.write)
HANG = Tool.declare(here.hang)
LOSE = Tool.declare(here.lose)


def time() -> float:
    return asyncio.get_running_loop().time()


def sandboxes(tg: Tangram) -> int:
    """Return how many trajectories there are."""
    return tg.statistics().trajectories


@virtual
async def test_calls_of_one_rollout_share_a_sandbox_and_another_rollout_has_its_own() -> None:
    async with Tangram(FakePool()) as tg:
        async with Rollout(tg) as one, Rollout(tg) as two:
            assert sandboxes(tg) == 0, "nothing is held before the first call"
            told = await asyncio.gather(*(one.use(WRITE, {"text": text}) for text in "abc"), two.call(here.write, "d"))
            assert sandboxes(tg) == 2
            assert [str(getattr(used, "text", used)).split(":")[1] for used in told] == ["a", "ab", "abc", "d"]
            assert await two.call(here.write, text="e") == "fake-2:de"
        assert_idle(tg)


@virtual
async def test_a_rollout_without_calls_opens_nothing() -> None:
    async with Tangram(FakePool(cores=1, sandboxes=1)) as tg, Rollout(tg), Rollout(tg):
        assert sandboxes(tg) == 0


@virtual
async def test_the_current_rollout_is_the_one_around() -> None:
    async with Tangram(FakePool()) as tg:
        assert current_rollout() is None
        async with Rollout(tg) as outer:
            assert current_rollout() is outer
            async with Rollout(tg) as inner:
                assert current_rollout() is inner
                assert await asyncio.create_task(_current()) is inner
            assert current_rollout() is outer
        assert current_rollout() is None


async def _current() -> Rollout | None:
    return current_rollout()


@virtual
async def test_a_call_leaves_no_trajectory_behind_in_its_task() -> None:
    @tangram.action(cpu=1)
    async def where() -> str:
        return tangram.current_sandbox().id

    async with Tangram(FakePool()) as tg, tg.trajectory(), Rollout(tg) as rollout:
        assert await where() == "fake-1"
        assert await rollout.call(where) == "fake-2"
        assert await where() == "fake-1"


@virtual
async def test_own_failures_are_texts_and_the_rollout_goes_on() -> None:
    fail, say = Tool.declare(here.fail), Tool.declare(here.holder.say)
    impatient = Tool.declare(here.hang, timeout_s=2)
    async with Tangram(FakePool()) as tg, Rollout(tg) as rollout:
        assert await rollout.use(fail, {"text": "x"}) == Used("Error: fail failed: KeyError: 'x'", False, "KeyError")
        late = await rollout.use(impatient, {})
        assert late == Used("Error: hang ran for too long and was stopped", False, "RunTimeout")
        assert await rollout.use(say, {"mroe": "you"}) == Used(
            "Error: wrong arguments for say: there is no 'mroe', but 'more'", False, "ArgumentsError"
        )
        assert (await rollout.use(say, ["you"])).error == "ArgumentsError"
        assert await rollout.use(say, {"more": "you"}) == Used("hello you", True, None)
        with pytest.raises(KeyError):
            await rollout.call(here.fail, "x")
        assert rollout.failure is None
        assert time() == pytest.approx(2)


@virtual
@pytest.mark.parametrize(
    ("for_s", "error"),
    [(1000, None), (0, tangram.OutOfMemoryError("1 GiB")), (0, tangram.BodyExitedError("gone", exit_code=1))],
    ids=["slow", "memory", "exit"],
)
async def test_a_set_up_that_breaks_is_not_the_models_doing(for_s: float, error: Exception | None) -> None:
    @tangram.action(cpu=1, timeout=10)
    async def prepare() -> None:
        await asyncio.sleep(for_s)
        if error is not None:
            raise error

    async with Tangram(FakePool()) as tg, Rollout(tg) as rollout:
        with pytest.raises(SandboxStartError, match="prepare, which sets up a sandbox, failed: ") as told:
            await rollout.set_up(prepare)
        assert rollout.failure is told.value
        with pytest.raises(SandboxStartError):
            await rollout.use(WRITE, {"text": "x"})


@virtual
async def test_a_set_up_has_the_sandbox_of_the_rollout_and_its_own_errors() -> None:
    async with Tangram(FakePool()) as tg, Rollout(tg) as rollout:
        await rollout.set_up(here.write, text="a")
        assert (await rollout.use(WRITE, {"text": "b"})).text == "fake-1:ab"
        with pytest.raises(KeyError):
            await rollout.set_up(here.fail, "a bug")
        assert rollout.failure is None


@virtual
async def test_a_failure_of_the_infrastructure_is_kept_told_once_and_raised_again() -> None:
    told: list[InfrastructureError] = []
    async with Tangram(FakePool()) as tg, Rollout(tg) as rollout:
        rollout.on_failure(told.append)
        await rollout.use(WRITE, {"text": "x"})
        with pytest.raises(SandboxLostError) as first:
            await rollout.use(LOSE, {})
        assert rollout.failure is first.value
        for call in (lambda: rollout.use(WRITE, {"text": "y"}), lambda: rollout.call(here.write, "y")):
            with pytest.raises(SandboxLostError) as again:
                await call()
            assert again.value is first.value
        assert tg.figures().total.calls == 2, "nothing ran after it"
        rollout.on_failure(told.append)
        assert told == [first.value, first.value], "once to each who listens, and at once to who comes later"


@virtual
async def test_the_first_of_several_failures_is_kept() -> None:
    @tangram.action()
    async def lose_after(for_s: float) -> None:
        await asyncio.sleep(for_s)
        raise SandboxLostError(f"after {for_s:g} s")

    async with Tangram(FakePool()) as tg, Rollout(tg) as rollout:
        told: list[InfrastructureError] = []
        rollout.on_failure(told.append)
        await asyncio.gather(*(rollout.call(lose_after, for_s) for for_s in (2, 1, 3)), return_exceptions=True)
        assert str(rollout.failure) == "after 1 s"
        assert told == [rollout.failure]


@virtual
async def test_a_sandbox_that_cannot_be_had_is_a_failure_of_all_calls_that_wait_for_it() -> None:
    class Broken(FakePool):
        def manager(self):  # type: ignore[no-untyped-def]
            made = super().manager()

            async def create_sandbox(**_: object) -> None:
                await asyncio.sleep(1)
                raise SandboxStartError("no image")

            made.create_sandbox = create_sandbox  # type: ignore[assignment,method-assign]
            return made

    async with Tangram(Broken()) as tg, Rollout(tg) as rollout:
        told = await asyncio.gather(*(rollout.use(WRITE, {"text": "x"}) for _ in range(2)), return_exceptions=True)
        assert [type(error) for error in told] == [SandboxStartError] * 2
        assert isinstance(rollout.failure, SandboxStartError)


@virtual
async def test_what_is_declared_in_a_wrong_way_is_raised_and_not_told_to_the_model() -> None:
    async with Tangram(FakePool()) as tg:
        async with Rollout(tg) as rollout:
            with pytest.raises(InfeasibleError):
                await rollout.use(Tool.declare(here.too_wide), {})
            assert rollout.failure is None
        async with Rollout(tg, memory_gib=1e6) as rollout:
            with pytest.raises(InfeasibleError):
                await rollout.use(WRITE, {"text": "x"})
        with pytest.raises(ConfigurationError, match=re.escape("Rollout(deadline_s=) takes finite seconds")):
            Rollout(tg, deadline_s=0)


@virtual
async def test_what_runs_at_the_deadline_ends_as_at_a_timeout_and_later_calls_run_nothing() -> None:
    async with Tangram(FakePool()) as tg, Rollout(tg, deadline_s=20) as rollout:
        await rollout.call(here.hang, 5.0)
        assert rollout.left_s == pytest.approx(15)
        used = await rollout.use(HANG, {})
        assert time() == pytest.approx(20)
        assert used == Used("Error: hang ran for too long and was stopped", False, "RunTimeout")
        assert rollout.left_s == 0
        over = await rollout.use(WRITE, {"text": "x"})
        assert over == Used("Error: write was not called: the time for this task is over", False, "RunTimeout")
        with pytest.raises(RunTimeout, match="time of its rollout was over"):
            await rollout.call(here.write, "x")
        assert rollout.failure is None, "else an agent could escape a low reward by taking its time"
        assert (time(), tg.figures().total.calls) == (pytest.approx(20), 2)


@virtual
async def test_what_is_called_after_the_deadline_was_lifted_has_its_own_time() -> None:
    async with Tangram(FakePool()) as tg, Rollout(tg, deadline_s=20) as rollout:
        await rollout.use(HANG, {})
        rollout.lift_deadline()
        assert rollout.left_s is None
        assert await rollout.call(here.hang, 50.0) == "slept"
        with pytest.raises(RunTimeout, match="longer than its timeout of 60 s"):
            await rollout.call(here.hang)


@virtual
async def test_a_call_that_waited_has_no_more_than_the_rest_of_the_time() -> None:
    async with Tangram(FakePool(cores=1)) as tg, Rollout(tg) as other, Rollout(tg, deadline_s=30) as rollout:
        busy = asyncio.ensure_future(other.call(here.hang, 25.0))
        await turns(20)
        with pytest.raises(RunTimeout, match="when the time of its rollout was over"):
            await rollout.call(here.hang)
        assert time() == pytest.approx(30), "5 seconds, not its 60 and not 30"
        await busy


@virtual
async def test_what_waits_at_the_deadline_is_masked() -> None:
    async with Tangram(FakePool(cores=1)) as tg, Rollout(tg) as other:
        busy = asyncio.ensure_future(other.call(here.hang, 50.0))
        await turns(20)
        async with Rollout(tg, deadline_s=30) as rollout:
            with pytest.raises(QueueTimeout):
                await rollout.use(WRITE, {"text": "x"})
            assert time() == pytest.approx(30)
            assert isinstance(rollout.failure, QueueTimeout)
        await busy


@virtual
@pytest.mark.parametrize("deadline_s", [30, None])
async def test_waiting_for_the_sandbox_is_bounded(deadline_s: float | None) -> None:
    async with Tangram(FakePool(sandboxes=1)) as tg:
        async with tg.trajectory():
            async with Rollout(tg, deadline_s=deadline_s) as rollout:
                with pytest.raises(QueueTimeout, match="lose waited for the sandbox"):
                    await rollout.use(LOSE, {})
                assert time() == pytest.approx(deadline_s or 50), "by the deadline, or by its queue_timeout"
                assert isinstance(rollout.failure, QueueTimeout)
            assert tg.statistics().waiting == 0, "it does not go on waiting"
        assert_idle(tg)


@virtual
async def test_a_call_that_is_cancelled_takes_the_sandbox_from_no_other() -> None:
    async with Tangram(FakePool(sandboxes=1)) as tg:
        async with tg.trajectory(), Rollout(tg) as rollout:
            first = asyncio.ensure_future(rollout.use(WRITE, {"text": "a"}))
            second = asyncio.ensure_future(rollout.use(WRITE, {"text": "b"}))
            await turns(5)
            first.cancel()
            await turns(5)
            assert first.cancelled()
            assert not second.done()
            assert tg.statistics().waiting == 1
            second.cancel()
        assert_idle(tg)


@virtual
async def test_leaving_a_rollout_ends_its_calls_and_its_sandbox() -> None:
    async with Tangram(FakePool()) as tg:
        async with Rollout(tg) as rollout:
            running = asyncio.ensure_future(rollout.call(here.hang))
            await turns(20)
            assert tg.statistics().running == 1
        with pytest.raises(NoTrajectoryError):
            await running
        assert_idle(tg)
        with pytest.raises(UsageError, match="inside its `async with`"):
            await rollout.use(WRITE, {"text": "x"})
        with pytest.raises(UsageError, match="entered once"):
            await rollout.__aenter__()
        with pytest.raises(UsageError, match="inside its `async with`"):
            await Rollout(tg).call(here.write, "x")


@virtual
async def test_leaving_while_calls_wait_for_the_sandbox_ends_them() -> None:
    async with Tangram(FakePool(sandboxes=1)) as tg:
        async with tg.trajectory():
            async with Rollout(tg) as rollout:
                waiting = asyncio.ensure_future(rollout.use(WRITE, {"text": "a"}))
                await turns(5)
            with pytest.raises(NoTrajectoryError, match="left while"):
                await waiting
        assert_idle(tg)


@virtual
async def test_a_cancelled_rollout_gives_everything_back() -> None:
    async def rollout(tg: Tangram) -> None:
        async with Rollout(tg) as one:
            await one.use(HANG, {})

    async with Tangram(FakePool()) as tg:
        task = asyncio.ensure_future(rollout(tg))
        await turns(20)
        assert tg.statistics().running == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_idle(tg)


@virtual
async def test_a_group_that_is_cancelled_fails_the_rollout() -> None:
    async with Tangram(FakePool()) as tg, Rollout(tg, group="prompt-1") as rollout:
        running = asyncio.ensure_future(rollout.use(HANG, {}))
        await turns(20)
        assert await tg.cancel_group("prompt-1") == 1
        with pytest.raises(tangram.GroupCancelledError):
            await running
        assert isinstance(rollout.failure, tangram.GroupCancelledError)


@virtual
async def test_without_a_rollout_each_call_has_a_sandbox_of_its_own() -> None:
    async with Tangram(FakePool()) as tg:
        told = [(await use_alone(tg, WRITE, {"text": "x"})).text for _ in range(2)]
        assert told == ["fake-1:x", "fake-2:x"]
        with pytest.raises(SandboxLostError):
            await use_alone(tg, LOSE, {})
        assert current_rollout() is None
        assert_idle(tg)


async def test_the_deadline_holds_in_a_worker_process() -> None:
    async with Tangram() as tg, Rollout(tg, deadline_s=0.5) as rollout:
        with pytest.raises(RunTimeout, match="when the time of its rollout was over"):
            await rollout.call(here.hang_in_a_process)
        assert rollout.failure is None


async def test_a_rollout_can_be_on_another_loop_than_its_runtime() -> None:
    async def elsewhere(tg: Tangram) -> list[str]:
        async with Rollout(tg, deadline_s=60) as rollout:
            return [(await rollout.use(WRITE, {"text": text})).text for text in "ab"]

    async with Tangram(FakePool()) as tg:
        assert await asyncio.to_thread(lambda: asyncio.run(elsewhere(tg))) == ["fake-1:a", "fake-1:ab"]
        assert_idle(tg)


async def test_what_is_used_is_a_tool() -> None:
    @tangram.action(timeout=1)
    async def plain() -> None: ...

    async with Tangram(FakePool()) as tg, Rollout(tg) as rollout:
        with pytest.raises(UsageError, match=r"as Tool\.declare makes one of an action"):
            await rollout.use(plain, {})  # type: ignore[arg-type]


async def test_a_rollout_takes_calls_on_the_loop_where_it_was_entered_only() -> None:
    async with Tangram(FakePool()) as tg:
        async with Rollout(tg) as rollout:
            with pytest.raises(UsageError, match="on the event loop where it was entered"):
                await asyncio.to_thread(lambda: asyncio.run(_used(rollout)))
            assert await _used(rollout) == "fake-1:a"
        assert_idle(tg)


async def _used(rollout: Rollout) -> str:
    return (await rollout.use(WRITE, {"text": "a"})).text
