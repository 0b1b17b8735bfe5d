"""Plain functions in worker processes: pinned, ended whatever they do, replaced, and nothing of them left."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import (
    BodyExitedError,
    LocalPool,
    OutOfMemoryError,
    Quota,
    RunTimeout,
    ShutdownError,
    Tangram,
    WorkerDiedError,
    WorkerStartError,
)
from arl_tangram.managers.processes import pool as pool_module
from arl_tangram.testing import assert_idle
from contract.sandbox_contract import longest_turn_s
from integration import process_bodies as bodies
from integration.process_bodies import is_gone
from virtual_time import until


def local_pool(tmp_path: Path) -> LocalPool:
    return LocalPool(cores=2, isolation="none", root=str(tmp_path / "root"))


async def announced(pid_file: Path) -> list[int]:
    await until(pid_file.exists)
    return _numbers(pid_file)


def _numbers(pid_file: Path) -> list[int]:
    return [int(word) for word in pid_file.read_text().split()]


class Gate:
    """A named pipe at which a body waits."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)

    async def open(self) -> None:
        """Let the body through, once it is there."""
        await until(self._has_opened)

    def _has_opened(self) -> bool:
        try:
            os.close(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True


# Workers: one per call, kept, pinned, told of their grant.


async def test_a_worker_is_used_again_and_is_another_process() -> None:
    async with Tangram() as tg:
        pids = {await bodies.identify() for _ in range(20)}
        assert len(pids) == 1
        assert os.getpid() not in pids
        assert_idle(tg)


async def test_affinity_and_environment_follow_the_grant(tmp_path: Path) -> None:
    before = os.environ.get(bodies.THREADS)
    async with Tangram(local_pool(tmp_path)) as tg:
        first, cores, threads, allocation = await bodies.look()
        assert (len(cores), threads, allocation.cores) == (1, "1", 1)
        assert cores == set(allocation.core_ids)
        second, cores, threads, allocation = await bodies.look_wide()
        assert (len(cores), threads, allocation.cores) == (2, "2", 2)
        assert second == first, "an idle worker is used before a new one is started"
        both = await asyncio.gather(bodies.look(), bodies.look())
        assert both[0][1].isdisjoint(both[1][1])
        assert_idle(tg)
    assert os.environ.get(bodies.THREADS) == before


async def test_threads_that_a_library_keeps_in_a_worker_are_pinned_too(tmp_path: Path) -> None:
    async with Tangram(local_pool(tmp_path)):
        await bodies.keep_a_thread()
        places = await bodies.pinned_threads()
        assert len(places) >= 2
        assert {len(cores) for cores in places} == {1}


async def test_what_a_body_changes_around_it_is_changed_back(tmp_path: Path) -> None:
    async with Tangram(max_processes=1):
        pid = await bodies.identify()
        await bodies.disturb(str(tmp_path))
        assert await bodies.undisturbed() == (pid, False, True, os.sched_getaffinity(0), os.getcwd())


async def test_no_more_bodies_run_at_once_than_allowed(tmp_path: Path) -> None:
    gates = [Gate(tmp_path / f"gate{number}") for number in range(3)]
    async with Tangram(Quota("api", concurrency=8), max_processes=2) as tg:
        calls = [asyncio.create_task(bodies.hold_quota(gate.path)) for gate in gates]
        await until(lambda: tg.statistics().running == 2)
        assert tg.statistics().waiting == 1
        assert tg.statistics().dimensions["processes"].free == 0
        for gate, call in zip(gates, calls, strict=True):
            await gate.open()
            assert await call != os.getpid()
        assert_idle(tg)


async def test_no_more_workers_are_kept_than_there_are_cores(tmp_path: Path) -> None:
    gates = [Gate(tmp_path / f"gate{number}") for number in range(3)]
    async with Tangram(local_pool(tmp_path), Quota("api", concurrency=8)) as tg:
        calls = [asyncio.create_task(bodies.hold_quota(gate.path)) for gate in gates]
        for gate in gates:
            await gate.open()
        pids = {await call for call in calls}
        assert len(pids) == 3
        assert sum(is_gone(pid) for pid in pids) == 1
        assert_idle(tg)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "1"])
def test_a_number_of_processes_that_is_not_possible_is_refused(number: Any) -> None:
    with pytest.raises(tangram.ConfigurationError, match="max_processes"):
        Tangram(max_processes=number)


# The end of a body: on time, whatever it does.


@pytest.mark.parametrize("body", [bodies.endless, bodies.deaf, bodies.bomb, bodies.sleepy], ids=lambda b: b.__name__)
async def test_case_16_a_timeout_ends_any_body_and_another_worker_serves_the_next(body: Any, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    async with Tangram(local_pool(tmp_path)) as tg:
        began_s = time.monotonic()
        call = asyncio.ensure_future(body.with_options(timeout=0.2)(str(pid_file)))
        assert await longest_turn_s(call) < 0.05, "the loop goes on meanwhile"
        with pytest.raises(RunTimeout):
            await call
        took_s = time.monotonic() - began_s
        (pid,) = await announced(pid_file)
        assert is_gone(pid), "its units are back, so it must be gone"
        assert_idle(tg)
        assert await bodies.identify() != pid
    assert took_s < 30


async def test_case_14_one_endless_reward_does_not_hold_up_the_others(tmp_path: Path) -> None:
    answers = ["x" if number == 100 else "y" for number in range(512)]
    began_s = time.monotonic()
    async with Tangram(local_pool(tmp_path)) as tg:
        scores = await tangram.map(bodies.reward, answers, on_error="return")
        assert_idle(tg)
    assert scores.count(1.0) == 511
    assert isinstance(scores[100], tangram.Failure)
    assert isinstance(scores[100].error, RunTimeout)
    assert time.monotonic() - began_s < 30


async def test_a_cancelled_caller_returns_when_the_worker_is_gone(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    async with Tangram(local_pool(tmp_path)) as tg:
        call = asyncio.create_task(bodies.deaf(str(pid_file)))
        (pid,) = await announced(pid_file)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert is_gone(pid)
        assert_idle(tg)


async def test_the_timeout_counts_from_when_the_body_begins() -> None:
    """An interpreter does not start within a hundredth of a second, and nothing of that is the body's."""
    async with Tangram() as tg:
        assert await bodies.identify.with_options(timeout=0.01)()
        assert_idle(tg)


async def test_all_that_a_body_has_started_ends_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    async with Tangram(local_pool(tmp_path)) as tg:
        call = asyncio.create_task(bodies.family(str(pid_file)))
        pids = await announced(pid_file)
        assert len(pids) == 3
        assert not any(is_gone(pid) for pid in pids)
        call.cancel()
        await asyncio.wait([call])
        await until(lambda: all(is_gone(pid) for pid in pids))
        assert_idle(tg)


async def test_a_worker_in_which_a_process_was_left_is_not_used_again(tmp_path: Path) -> None:
    async with Tangram(local_pool(tmp_path)) as tg:
        worker, left = await bodies.litter()
        assert is_gone(worker)
        await until(lambda: is_gone(left))
        assert await bodies.identify() != worker
        assert_idle(tg)


async def test_closing_the_runtime_ends_what_runs_and_what_is_idle(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    async with Tangram(local_pool(tmp_path)):
        call = asyncio.create_task(bodies.deaf(str(pid_file)))
        (running,) = await announced(pid_file)
        idle = await bodies.identify()
        assert idle != running
    assert is_gone(running)
    assert is_gone(idle)
    with pytest.raises(ShutdownError):
        await call


async def test_cancelling_at_every_turn_of_the_loop_leaves_nothing(tmp_path: Path) -> None:
    """With a new worker and one that is there; in most of the later turns nothing happens but waiting."""
    async with Tangram(local_pool(tmp_path)) as tg:
        for is_warm in (False, True):
            turn = 0
            while await _struck(turn, is_warm=is_warm):
                assert_idle(tg)
                turn = turn + 1 if turn < 6 else turn * 4
            assert turn > 3
            assert_idle(tg)


async def _struck(at: int, *, is_warm: bool) -> bool:
    """Cancel a call at a turn of the loop; return whether it lasted that long."""
    pid = await bodies.identify()
    if not is_warm:
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not os.path.exists(f"/proc/{pid}"))
    call = asyncio.create_task(bodies.look())
    for _ in range(at):
        if call.done():
            break
        await asyncio.sleep(0)
    struck = call.cancel()
    await asyncio.wait([call])
    assert call.cancelled() == struck
    return struck


async def test_all_ends_together_leave_every_unit_and_no_process(tmp_path: Path) -> None:
    """Results, errors, timeouts, deaths and cancelled callers at once, on more calls than there are cores."""
    async with Tangram(local_pool(tmp_path), Quota("api", concurrency=3)) as tg:
        calls: list[asyncio.Task[Any]] = []
        for number in range(8):
            pid_file = str(tmp_path / f"pid{number}")
            calls += [
                asyncio.create_task(bodies.look()),
                asyncio.create_task(bodies.throw(ValueError(number))),
                asyncio.create_task(bodies.leave(number)),
                asyncio.create_task(bodies.endless.with_options(timeout=0.05)(pid_file)),
                asyncio.create_task(bodies.look_wide()),
            ]
            await asyncio.wait([calls[-4]], timeout=0.01)
            calls[-5].cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        kinds = [type(result) for result in results]
        assert kinds.count(RunTimeout) == kinds.count(BodyExitedError) == kinds.count(ValueError) == 8
        assert kinds.count(tuple) + kinds.count(asyncio.CancelledError) == 16
        assert_idle(tg)


@pytest.mark.parametrize("again_after", [1, 2, 5, 50])
async def test_cancelling_twice_does_not_return_before_the_worker_is_gone(again_after: int, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    async with Tangram(local_pool(tmp_path)) as tg:
        call = asyncio.create_task(bodies.deaf(str(pid_file)))
        (pid,) = await announced(pid_file)
        call.cancel()
        for _ in range(again_after):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert is_gone(pid)
        assert_idle(tg)


async def test_a_process_that_cannot_be_killed_does_not_keep_the_runtime_from_closing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that waits for a disk that does not answer: the signal is sent, and nothing happens."""
    pid_file = tmp_path / "pid"
    monkeypatch.setattr("arl_tangram.managers.processes.worker._kill_tree", lambda pid, process: None)
    monkeypatch.setattr("arl_tangram.managers.processes.worker.Worker.strike", lambda worker: None)
    monkeypatch.setattr(pool_module, "CLOSE_LIMIT_S", 0.1)
    async with Tangram(local_pool(tmp_path), kill_grace_s=0.1) as tg:
        call = asyncio.create_task(bodies.endless.with_options(timeout=0.1)(str(pid_file)))
        with pytest.raises(RunTimeout):
            await call
        (pid,) = await announced(pid_file)
        assert tg.statistics().lingering == (bodies.endless.spec.name,), "its units stay in use"
        assert tg.statistics().dimensions["cpu"].used == 1
    assert "cannot be killed now" in caplog.text
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(os.waitpid, pid, 0)


# Death of a worker.


@pytest.mark.parametrize(
    ("body", "args", "kind", "exit_code", "number"),
    [
        (bodies.leave, (0,), BodyExitedError, 0, None),
        (bodies.leave, (3,), BodyExitedError, 3, None),
        (bodies.fault, (), BodyExitedError, None, signal.SIGSEGV),
        (bodies.signalled, (signal.SIGABRT,), BodyExitedError, None, signal.SIGABRT),
        (bodies.signalled, (signal.SIGFPE,), BodyExitedError, None, signal.SIGFPE),
        (bodies.signalled, (signal.SIGALRM,), BodyExitedError, None, signal.SIGALRM),
        (bodies.signalled, (signal.SIGTERM,), WorkerDiedError, None, signal.SIGTERM),
        (bodies.signalled, (signal.SIGKILL,), WorkerDiedError, None, signal.SIGKILL),
        (bodies.kill_self_in_a_message, (), WorkerDiedError, None, signal.SIGKILL),
        (bodies.babble, (), WorkerDiedError, None, signal.SIGKILL),
    ],
    ids=[
        "_exit 0", "_exit 3", "segfault", "abort", "arithmetic", "alarm", "terminate", "kill",
        "case 24: half a message", "rubbish",
    ],
)  # fmt: skip
async def test_case_24_the_death_of_a_worker_is_told_at_once(
    body: Any,
    args: tuple[Any, ...],
    kind: type[BodyExitedError | WorkerDiedError],
    exit_code: int | None,
    number: int | None,
    tmp_path: Path,
) -> None:
    gate = Gate(tmp_path / "gate")
    async with Tangram(local_pool(tmp_path)) as tg:
        other = asyncio.create_task(bodies.hold(gate.path))
        began_s = time.monotonic()
        with pytest.raises(kind, match=body.__name__) as caught:
            await body(*args)
        assert time.monotonic() - began_s < 10, "nobody waits for more of the message"
        assert isinstance(caught.value, tangram.InfrastructureError) == (kind is WorkerDiedError)
        assert (caught.value.exit_code, caught.value.signal) == (exit_code, number)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.exit_code, again.signal) == (str(caught.value), exit_code, number)
        await gate.open()
        assert await other, "another worker is not affected"
        assert await bodies.give("next") == "next"
        assert_idle(tg)


async def test_a_worker_that_ended_while_it_was_idle_is_replaced_unseen() -> None:
    async with Tangram() as tg:
        pid = await bodies.identify()
        os.kill(pid, signal.SIGKILL)
        assert await bodies.identify() != pid  # handed over before, or after, the death was heard of
        pid = await bodies.identify()
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not os.path.exists(f"/proc/{pid}"))
        assert await bodies.identify() != pid
        assert_idle(tg)


async def test_a_body_that_forks_and_returns_twice_answers_once() -> None:
    async with Tangram() as tg:
        pid = await bodies.fork_and_return()
        assert [await bodies.give(number) for number in range(3)] == [0, 1, 2]
        assert is_gone(pid) or await bodies.identify() == pid
        assert_idle(tg)


async def test_a_worker_that_cannot_be_started_is_an_infrastructure_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Tangram() as tg:
        monkeypatch.setattr("arl_tangram.managers.processes.worker.interpreter", lambda: ("/no/such/python",))
        with pytest.raises(WorkerStartError, match=r"identify.*cannot be started"):
            await bodies.identify()
        monkeypatch.setattr("arl_tangram.managers.processes.worker.interpreter", lambda: ("/bin/false",))
        with pytest.raises(WorkerStartError, match="did not start: exited with code 1"):
            await bodies.identify()
        monkeypatch.undo()
        assert await bodies.identify()
        assert_idle(tg)


async def test_a_worker_that_does_not_come_to_its_body_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arl_tangram.managers.processes.worker.interpreter", lambda: ("/bin/sleep", "600"))
    monkeypatch.setattr("arl_tangram.managers.processes.worker.BOOT", "0")
    monkeypatch.setattr("arl_tangram.managers.processes.worker.FLAGS", ())
    monkeypatch.setattr("arl_tangram.managers.processes.worker.BEGIN_LIMIT_S", 0.1)
    async with Tangram() as tg:
        with pytest.raises(WorkerStartError, match=r"had not begun after 0\.1 s"):
            await bodies.identify()
        assert_idle(tg)


async def test_a_forked_child_disturbs_no_worker() -> None:
    async with Tangram() as tg:
        pid = await bodies.identify()
        if (child := os.fork()) == 0:
            os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
        assert await bodies.identify() == pid
        assert_idle(tg)


# Memory.


async def test_a_body_may_allocate_what_it_declares_and_no_more(tmp_path: Path) -> None:
    async with Tangram(local_pool(tmp_path)) as tg:
        for _ in range(2):
            assert await bodies.allocate(128 << 20) == 128 << 20
            with pytest.raises(MemoryError):
                await bodies.allocate(512 << 20)
        with pytest.raises(MemoryError):
            await bodies.allocate_with_nothing()
        assert len(await bodies.give_large(300 << 20)) == 300 << 20, "the limit is that of the call"
        assert_idle(tg)


@pytest.mark.parametrize(
    ("body", "kills", "expected"),
    [
        (bodies.killed_with_memory, 1, OutOfMemoryError),
        (bodies.killed_with_memory, 0, WorkerDiedError),
        (bodies.killed, 1, WorkerDiedError),
    ],
    ids=["declared", "declared, killed by somebody else", "not declared"],
)
async def test_a_body_that_the_kernel_kills_for_its_memory_has_failed_itself(
    body: Any, kills: int, expected: type[Exception], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernel's counter is read in the worker before, and here after."""
    now = await asyncio.to_thread(pool_module.oom_kills)
    assert now >= 0
    monkeypatch.setattr(pool_module, "oom_kills", lambda: now + kills)
    async with Tangram(local_pool(tmp_path)) as tg:
        with pytest.raises(expected) as caught:
            await body()
        assert isinstance(caught.value, tangram.InfrastructureError) == (expected is WorkerDiedError)
        assert ("of memory" in str(caught.value)) == bool(kills)
        assert_idle(tg)
