"""Real commands in actions that share two cores of this machine: they grow, shrink, are suspended and go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import Elastic, LocalPool, RunTimeout, Tangram, current_sandbox, policies
from arl_tangram.integrations.rollouts.rollout import Rollout
from arl_tangram.model.events import ActionEnded, ActionLent, ActionResized, Event
from arl_tangram.model.lifecycle import FinishedAction, Outcome
from arl_tangram.testing import assert_idle
from arl_tangram.trace.sink import MemorySink
from contract.sandbox_contract import mark, processes, shell, until_there_is

LONG_S = 60.0
COUNT = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; echo $i"
# Without the variable, which says the most that it may have, and which nproc believes.
SEES = "until [ $(env -u OMP_NUM_THREADS nproc) = {0} ]; do :; done; echo sees {0}; "


class Told(MemorySink):
    """Keeps the events of a runtime, and lets a test wait for one."""

    runtime: Tangram

    def __init__(self) -> None:
        super().__init__()
        self._told = asyncio.Event()

    def write(self, event: Event) -> None:
        super().write(event)
        self._told.set()

    async def until_resized(self, units: int) -> None:
        """Wait until somebody has so many milli-cores by a change."""
        async with asyncio.timeout(LONG_S):
            while not any(isinstance(event, ActionResized) and event.units == units for event in self.events):
                self._told.clear()
                await self._told.wait()

    def ended(self, name: str) -> FinishedAction:
        (found,) = [e.action for e in self.events if isinstance(e, ActionEnded) and e.action.name.endswith(name)]
        return found


@tangram.action(cpu=2)
async def steady(command: str, timeout: float | None = None) -> tuple[int, str]:
    done = await current_sandbox().exec(shell(command), timeout=timeout)
    return done.exit_code, done.stdout.decode()


growing = tangram.action(cpu=Elastic(1, 2, resizable=True))(steady.body)


@tangram.action(cpu=2, priority=-1)
async def urgent(until: asyncio.Event) -> None:
    await until.wait()


@tangram.action(cpu=1, priority=-1)
async def small(until: asyncio.Event) -> None:
    await until.wait()


@asynccontextmanager
async def sharing(tmp_path: Path) -> AsyncIterator[Told]:
    told = Told()
    async with Tangram(
        LocalPool(cores=2, root=tmp_path, isolation="none", share=policies.equal_shares()), trace=told
    ) as tg:
        assert "running actions share their cores by equal shares" in tg.describe()
        told.runtime = tg
        yield told
        assert_idle(tg)
    for event in told.events:
        if isinstance(event, ActionEnded):
            action = event.action
            assert action.act_s == pytest.approx(event.at_s - action.submitted_at_s, abs=1e-9)
            assert min(action.queueing_s, action.execution_s, action.overhead_s, action.suspended_s) >= 0


async def in_a_sandbox(action: Any, *args: Any) -> Any:
    async with tangram.trajectory():
        return await action(*args)


def begin(call: Any) -> asyncio.Task[Any]:
    return asyncio.ensure_future(call)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not condition():  # noqa: ASYNC110 - what a command does sets no event here
            await asyncio.sleep(0.005)


async def test_a_command_grows_into_what_falls_free_and_shrinks_for_others(tmp_path: Path) -> None:
    async with sharing(tmp_path) as told:
        go, seen = asyncio.Event(), tmp_path / "seen"
        seen.touch()
        command = (
            "echo $OMP_NUM_THREADS; (" + SEES.format(2) + SEES.format(1) + SEES.format(2) + f") | tee {seen}; exit 3"
        )
        call = begin(in_a_sandbox(growing, command))
        await until(lambda: "sees 2" in seen.read_text())
        other = begin(in_a_sandbox(small, go))
        await told.until_resized(1000)
        await until(lambda: "sees 1" in seen.read_text())
        go.set()
        async with asyncio.timeout(LONG_S):
            assert await call == (3, "2\nsees 2\nsees 1\nsees 2\n")
        await other
        assert (told.ended("steady").switches, told.ended("steady").suspended_s) == (2, 0.0)


async def test_deadlines_stand_still_while_it_is_suspended(tmp_path: Path) -> None:
    held_s = 3.0
    hurried = steady.with_options(timeout=2.5)
    async with sharing(tmp_path) as told:
        go, mine, file = asyncio.Event(), mark(), tmp_path / "go"
        call = begin(in_a_sandbox(hurried, f": {mine}; until [ -e {file} ]; do sleep 0.01; done; echo went", 2.0))
        await until_there_is(mine)
        other = begin(in_a_sandbox(urgent, go))
        await told.until_resized(0)
        await asyncio.sleep(held_s)
        file.touch()
        go.set()
        assert await call == (0, "went\n")
        await other
        assert told.ended("steady").suspended_s >= held_s


async def test_after_that_they_go_on(tmp_path: Path) -> None:
    held_s = 1.0
    hurried = steady.with_options(timeout=0.75)
    async with sharing(tmp_path) as told:
        go, mine = asyncio.Event(), mark()
        call = begin(in_a_sandbox(hurried, f": {mine}; while :; do sleep 0.01; done"))
        await until_there_is(mine)
        other = begin(in_a_sandbox(urgent, go))
        await told.until_resized(0)
        await asyncio.sleep(held_s)
        assert not call.done()
        go.set()
        with pytest.raises(tangram.RunTimeout):
            await call
        await other
        assert not processes(mine)
        assert told.ended("steady").suspended_s >= held_s
        assert told.ended("steady").execution_s >= 0.7


async def test_one_that_was_suspended_does_all_its_work(tmp_path: Path) -> None:
    async with sharing(tmp_path) as told:
        go, mine = asyncio.Event(), mark()
        command = f": {mine}; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo $i; exit 7"
        call = begin(in_a_sandbox(steady.with_options(timeout=LONG_S), command, LONG_S))
        await until_there_is(mine)
        other = begin(in_a_sandbox(urgent, go))
        await told.until_resized(0)
        go.set()
        assert await call == (7, "300000\n")
        await other
        assert told.ended("steady").switches == 2


async def test_cancelled_while_suspended_it_ends_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    async with sharing(tmp_path) as told:
        go, mine = asyncio.Event(), mark()
        call = begin(in_a_sandbox(steady, f": {mine}; (while :; do :; done) & (while :; do :; done) & wait"))
        await until_there_is(mine)
        other = begin(in_a_sandbox(urgent, go))
        await told.until_resized(0)
        async with asyncio.timeout(5):
            call.cancel()
            await asyncio.wait([call])
        assert not processes(mine)
        assert told.ended("steady").outcome is Outcome.CANCELLED
        go.set()
        await other


async def test_new_commands_and_files_wait_until_it_goes_on(tmp_path: Path) -> None:
    begun = asyncio.Event()

    @tangram.action(cpu=2, timeout=LONG_S)
    async def writing() -> bytes:
        begun.set()
        await suspended.wait()
        await current_sandbox().write_file("a", b"42")
        return (await current_sandbox().exec(shell("cat a"))).stdout

    async with sharing(tmp_path) as told:
        go, suspended = asyncio.Event(), asyncio.Event()
        call = begin(in_a_sandbox(writing))
        await begun.wait()
        other = begin(in_a_sandbox(urgent, go))
        await told.until_resized(0)
        suspended.set()
        done, _ = await asyncio.wait([call], timeout=0.3)
        assert not done
        go.set()
        assert await call == b"42"
        await other
        assert told.ended("writing").suspended_s >= 0.3
        assert told.ended("writing").overhead_s < 0.3


@pytest.mark.parametrize("running", [False, True])
async def test_a_command_goes_on_with_the_next_cores_while_its_body_calls_others(tmp_path: Path, running: bool) -> None:
    """It waits for them, or runs when they are taken; and what is called needs it."""
    begun, came, mine = asyncio.Event(), asyncio.Event(), mark()

    @tangram.action()
    async def elsewhere() -> None:
        await came.wait()

    @tangram.action(cpu=2, timeout=LONG_S)
    async def outer() -> tuple[int, str]:
        command = f": {mine}; sleep 1; touch {tmp_path / 'file'}; echo on"
        begun.set()
        if not running:
            await suspended.wait()
        call = begin(current_sandbox().exec(shell(command)))
        await suspended.wait()
        done, _ = await asyncio.gather(call, elsewhere())
        return done.exit_code, done.stdout.decode()

    async with sharing(tmp_path / "root") as told:
        go, suspended = asyncio.Event(), asyncio.Event()
        call = begin(in_a_sandbox(outer))
        await (until_there_is(mine) if running else begun.wait())
        other = begin(in_a_sandbox(urgent, go))
        await told.until_resized(0)
        suspended.set()
        await until(lambda: any(isinstance(event, ActionLent) for event in told.events))
        go.set()
        await until((tmp_path / "file").exists)
        came.set()
        assert await call == (0, "on\n")
        await other


@pytest.mark.parametrize("ended_by", ["its caller", "its group", "the deadline of its rollout"])
async def test_ended_while_suspended_it_cleans_up_without_waiting_for_cores(tmp_path: Path, ended_by: str) -> None:
    mine, kept = mark(), list[bytes]()

    @tangram.action(cpu=2)
    async def careful() -> None:
        box = current_sandbox()
        try:
            await box.exec(shell(f": {mine}; while :; do :; done"))
        finally:
            await box.write_file("log", b"written")
            kept.append((await box.exec(shell(f"cat log; {COUNT}"))).stdout)

    async with sharing(tmp_path / "root") as told:
        go, deadline_s = asyncio.Event(), 4.0 if ended_by == "the deadline of its rollout" else None
        async with Rollout(told.runtime, group="g", deadline_s=deadline_s) as rollout:
            call = begin(rollout.call(careful))
            await until_there_is(mine)
            other = begin(in_a_sandbox(urgent, go))
            await told.until_resized(0)
            began_s = time.monotonic()
            if ended_by == "its caller":
                call.cancel()
            elif ended_by == "its group":
                await told.runtime.cancel_group("g")
            await asyncio.wait([call])
            if deadline_s is not None:
                with pytest.raises(RunTimeout, match="time of its rollout"):
                    await call
                began_s += deadline_s
            assert time.monotonic() - began_s < 4.0  # the grace time is 5 s
        assert kept == [b"written50000\n"]
        assert not processes(mine)
        assert not other.done()
        go.set()
        await other


async def test_one_that_is_suspended_calls_others_in_its_sandbox(tmp_path: Path) -> None:
    inner = steady.with_options(priority=-2)
    begun = asyncio.Event()

    @tangram.action(cpu=2, timeout=LONG_S)
    async def outer() -> list[tuple[int, str]]:
        first = await current_sandbox().exec(shell("echo outer > a"))
        begun.set()
        await suspended.wait()
        called = await inner("cat a; echo inner > a")
        last = await current_sandbox().exec(shell("cat a"))
        return [(first.exit_code, ""), called, (last.exit_code, last.stdout.decode())]

    async with sharing(tmp_path) as told:
        go, suspended = asyncio.Event(), asyncio.Event()
        call = begin(in_a_sandbox(outer))
        await begun.wait()
        other = begin(in_a_sandbox(urgent, go))
        await told.until_resized(0)
        suspended.set()
        await until(lambda: any(isinstance(e, ActionEnded) for e in told.events))
        assert not call.done()  # it has no cores yet
        go.set()
        assert await call == [(0, ""), (0, "outer\n"), (0, "inner\n")]
        await other
