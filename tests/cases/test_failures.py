"""Cases 26 and 38: a failure stays the failure of one call, with its cause; and nothing is done twice because of it."""

from __future__ import annotations

import asyncio
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import Failure
from cases import bodies
from cases.settled import now_s, opened
from counting_pools import CountingPool
from virtual_time import turns, virtual

BAD = 350


@tangram.action(cpu=1)
async def scores(item: int, bad: int = BAD) -> int:
    await asyncio.sleep(0.5)
    if item == bad:
        raise KeyError(item)  # the line of the tool
    return item


@tangram.action()
def scores_on_a_thread(item: int, bad: int = BAD) -> int:
    if item == bad:
        raise KeyError(item)  # the line of the tool on a thread
    return item


@virtual
async def test_case_26_a_failure_is_a_value_and_the_others_finish() -> None:
    async with opened(CountingPool(cores=8)):
        results = await tangram.map(scores, range(500), on_error="return")
        failure = results[BAD]
        assert [r for r in results if not isinstance(r, Failure)] == [i for i in range(500) if i != BAD]
        assert isinstance(failure, Failure)
        assert isinstance(failure.error, KeyError)
        assert failure.error.args == (BAD,)
        assert "raise KeyError(item)  # the line of the tool\n" in failure.traceback


async def in_a_process(item: int) -> int:
    return await bodies.fails_at(item, 13)


@pytest.mark.parametrize(
    ("act", "line"),
    [
        (partial(scores, bad=13), "# the line of the tool\n"),
        (partial(scores_on_a_thread, bad=13), "# the line of the tool on a thread\n"),
        (in_a_process, "# the line of the tool in a process\n"),
    ],
    ids=["async", "thread", "process"],
)
async def test_case_26_the_line_is_told_wherever_the_body_runs(act: Any, line: str) -> None:
    async with opened(CountingPool(cores=8), max_processes=2):
        results = await tangram.map(act, range(20), on_error="return")
        failure = results[13]
        assert sum(isinstance(r, int) for r in results) == 19
        assert isinstance(failure, Failure)
        assert isinstance(failure.error, KeyError)
        assert line in failure.traceback


@virtual
async def test_case_26_who_wants_the_first_error_gets_the_error_and_not_a_cancellation() -> None:
    async with opened(CountingPool(cores=8)) as tg:
        with pytest.raises(KeyError) as raised:
            await tangram.map(partial(scores, bad=3), range(500))
        assert raised.value.args == (3,)
        assert "# the line of the tool" in "".join(traceback.format_exception(raised.value))
        assert now_s() == 0.5
        assert tg.statistics().waiting == 0, "those that had not started never do"


@virtual
async def test_case_26_one_bad_trajectory_does_not_take_the_others_along() -> None:
    """It fails at any of its places: in a tool, between tools, in opening its sandbox."""

    async def rollout(number: int) -> int:
        async with tangram.trajectory():
            await scores(number, 7)
            if number == 8:
                raise ValueError("between two tools")
            return await scores(number, 9)

    async with opened(CountingPool(cores=8)):
        results = await asyncio.gather(*(rollout(number) for number in range(40)), return_exceptions=True)
        failed = {number: result for number, result in enumerate(results) if isinstance(result, BaseException)}
        assert {number: type(error) for number, error in failed.items()} == {7: KeyError, 8: ValueError, 9: KeyError}
        assert [r for r in results if isinstance(r, int)] == [n for n in range(40) if n not in failed]


@virtual
async def test_case_26_a_task_group_tells_the_cause() -> None:
    """The others are cancelled, as a task group does; what it raises is the one error that happened."""
    async with opened(CountingPool(cores=8)) as tg:
        with pytest.raises(ExceptionGroup) as group:  # noqa: PT012 - the group raises at its end
            async with asyncio.TaskGroup() as tasks:
                for item in range(100):
                    tasks.create_task(_score(item))
        assert [type(error) for error in group.value.exceptions] == [KeyError]
        assert "# the line of the tool" in "".join(traceback.format_exception(group.value))
        await turns(3)
        assert tg.statistics().running == 0


async def _score(item: int) -> int:
    return await scores(item, 5)


@virtual
async def test_case_26_failures_of_the_infrastructure_are_told_apart() -> None:
    """A trainer masks those, and trains on the others."""
    limited = scores.with_options(queue_timeout=1.25)
    async with opened(CountingPool(cores=2)):
        results = await tangram.map(partial(limited, bad=1), range(10), on_error="return")
        kinds = [type(r.error) if isinstance(r, Failure) else r for r in results]
        assert kinds == [0, KeyError, 2, 3, 4, 5] + [tangram.QueueTimeout] * 4
        masked = [isinstance(r, Failure) and isinstance(r.error, tangram.InfrastructureError) for r in results]
        assert masked == [False] * 6 + [True] * 4


@pytest.mark.parametrize(
    ("ends", "error", "runs"),
    [
        ("kill", tangram.WorkerDiedError, 3),  # of the infrastructure: tried again where that is declared to do no harm
        ("exit", tangram.BodyExitedError, 2),  # the body's own failures, which would be the same again
        ("stop", tangram.RunTimeout, 2),
    ],
)
async def test_case_38_a_body_whose_worker_is_lost_has_run_once(
    ends: str, error: type[Exception], runs: int, tmp_path: Path
) -> None:
    """What it did before may have had effects."""
    log = tmp_path / "log"
    once = bodies.says_so_and_ends.with_options(timeout=1 if ends == "stop" else 30)
    async with opened(CountingPool(), max_processes=1):
        with pytest.raises(error, match="says_so_and_ends"):
            await once(str(log), ends)
        assert log.read_text() == "ran\n"
        with pytest.raises(error):
            await once.with_options(idempotent=True, retries=1)(str(log), ends)
        assert log.read_text() == "ran\n" * runs
        assert await bodies.name_of_process() > 0, "the next one has another worker"


@virtual
async def test_case_38_a_body_that_never_began_is_not_said_to_have_run() -> None:
    """Giving up while it waits, it ran not even once; and nobody runs it later."""
    ran: list[int] = []

    @tangram.action(cpu=4)
    async def notes(number: int) -> None:
        ran.append(number)
        await asyncio.sleep(0.02)

    impatient = notes.with_options(queue_timeout=0.01, idempotent=True, retries=3)
    async with opened(CountingPool()):
        first = asyncio.create_task(_noted(notes, 1))
        await turns(3)
        with pytest.raises(tangram.QueueTimeout):
            await impatient(2)
        await first
        await asyncio.sleep(0.05)
        assert ran == [1]


async def _noted(act: Any, number: int) -> None:
    await act(number)
