"""Runs bodies in worker processes: an idle one or a new one for each call, ended where it must be."""

from __future__ import annotations

import asyncio
import logging
import pickle
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from arl_tangram.errors import BodyExitedError, OutOfMemoryError, UsageError, WorkerDiedError, WorkerStartError
from arl_tangram.managers.environment import granted
from arl_tangram.managers.gpu.discovery import visible
from arl_tangram.managers.host.owner import kill_marked
from arl_tangram.managers.processes import place
from arl_tangram.managers.processes.call import Call, Grant, PackedCall
from arl_tangram.managers.processes.frames import Frame, oom_kills
from arl_tangram.managers.processes.outcome import RemoteTraceback, Told, value_or_error
from arl_tangram.managers.processes.worker import Worker, WorkerGone
from arl_tangram.managers.threads import BodyThreads, Returned
from arl_tangram.model.quantities import GIB
from arl_tangram.uninterrupted import finish_anyway, unstoppable

CLOSE_LIMIT_S = 5.0
LARGE_BYTES = 1 << 16
STACK_GLOBAL, EXT1, EXT2, EXT4 = b"\x93", b"\x82", b"\x83", b"\x84"
# Faults, and limits and alarms that a body sets for itself.
OWN_SIGNALS = frozenset({
    signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS,
    signal.SIGXCPU, signal.SIGXFSZ, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGPIPE,
})  # fmt: skip

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class BodyProcesses:
    """Worker processes that run one body at a time; used from one event loop.

    Args:
        most_idle: workers that are kept for later calls.
    """

    def __init__(self, most_idle: int) -> None:
        self._most_idle = most_idle
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._closed = False
        self._threads = BodyThreads()

    async def run(self, packed: PackedCall, grant: Grant, on_begin: Callable[[], None]) -> Returned:
        """Run a body to its end and say how it ended.

        Cancelling kills the worker and everything that the body started, and takes effect when they are gone.

        Args:
            packed: the call.
            grant: what it was granted.
            on_begin: called when the body itself begins, which is after its worker has started and imported it.

        Raises:
            WorkerStartError: no worker could be started; the body has not begun.
            BodyExitedError: the body exited or crashed, and the worker with it.
            WorkerDiedError: the worker was killed while the body ran.
            OutOfMemoryError: the same, because memory was short, and the action declares `memory_gib`.
        """
        environment = granted(grant.milli_cores) if grant.milli_cores else {}
        if grant.allocation.devices:
            environment |= visible.environment(grant.allocation.devices)
        call = Call(packed.reference, grant, environment)
        while True:
            worker, is_used = self._take(call)
            try:
                frame = await worker.run(call, packed.arguments, on_begin)
            except WorkerGone as gone:
                if is_used and not gone.begun:
                    continue  # it had ended while it was idle
                raise await self._explained(grant, worker, gone) from _cause(gone)
            except BaseException:
                await self._end(worker)
                raise
            return await self._finished(worker, grant, frame)

    async def aclose(self) -> None:
        """End all workers; bounded; cancelling takes effect when they are gone."""
        self._closed = True
        self._idle.clear()
        try:
            if self._all:
                await finish_anyway(self._end_all())
        finally:
            self._threads.close()

    async def _end_all(self) -> None:
        ending = [unstoppable(worker.kill(self._threads)) for worker in list(self._all)]
        _, pending = await asyncio.wait(ending, timeout=CLOSE_LIMIT_S)
        for worker in list(self._all):
            if not worker.ended.done():
                _logger.warning("the worker process %d cannot be killed now; it is left behind", worker.pid)
                worker.give_up()
        if pending:
            await asyncio.wait(pending)

    def _take(self, call: Call) -> tuple[Worker, bool]:
        """Return an idle worker, one whose libraries were told the same number of cores before others, or a new one.

        A body with GPUs of its own gets a new one: the libraries of another may have looked which GPUs there are.
        """
        alive = [worker for worker in self._idle if worker.is_alive] if not call.grant.allocation.devices else []
        fitting = [worker for worker in alive if worker.environment == call.environment] or alive[-1:]
        if fitting:
            self._idle.remove(fitting[-1])
            return fitting[-1], True
        if place.is_worker:
            raise UsageError(f"{call.grant.name}: a worker process cannot start another")
        try:
            worker = Worker(call.environment)
        except OSError as error:
            raise WorkerStartError(f"{call.grant.name}: a worker process cannot be started: {error}") from error
        self._all.add(worker)
        worker.ended.add_done_callback(lambda _: self._forget(worker))
        return worker, False

    def _forget(self, worker: Worker) -> None:
        self._all.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)

    async def _finished(self, worker: Worker, grant: Grant, frame: Frame) -> Returned:
        """Keep or end a worker whose body has ended, and make its outcome again."""
        try:
            told = Told(*pickle.loads(frame.note))
        except Exception as error:
            await self._end(worker)
            raise WorkerDiedError(f"{grant.name}: its worker process sent what is no answer: {error!r}") from error
        is_for_one = told.leaves_processes or bool(grant.allocation.devices)  # what it has of GPUs goes with it alone
        if is_for_one or self._closed or len(self._idle) >= self._most_idle:
            await self._end(worker)
        elif worker.is_alive:
            self._idle.append(worker)
        remake = partial(value_or_error, grant.name, told, frame.load)
        value, raised = remake() if _is_plain(frame.load) else await self._elsewhere(remake)
        return Returned(value, raised, told.body_s)

    async def _end(self, worker: Worker) -> None:
        await finish_anyway(worker.kill(self._threads))

    async def _elsewhere(self, work: Callable[[], T]) -> T:
        """Do what may hold up the loop on a thread; cancelling leaves it to end there."""
        return (await self._threads.run(work, ())).result()  # type: ignore[no-any-return]

    async def _explained(self, grant: Grant, worker: Worker, gone: WorkerGone) -> Exception:
        """Return the error of a call whose worker ended."""
        ended = _words(gone.exit_code)
        if not gone.begun:
            if gone.unguarded:
                return UsageError(f"{grant.name}: its worker process did not start: {place.UNGUARDED}")
            why = gone.complaint.strip().rpartition("\n")[2] or ended
            return WorkerStartError(f"{grant.name}: its worker process {worker.pid} did not start: {why}")
        with suppress(OSError):  # its orphans are not below it any more
            await self._elsewhere(partial(kill_marked, lambda marked: marked == worker.mark))
        short_of_memory = False
        if gone.exit_code == -signal.SIGKILL and gone.oom_kills >= 0:
            short_of_memory = await self._elsewhere(oom_kills) > gone.oom_kills
        if short_of_memory and grant.memory_bytes:
            return OutOfMemoryError(
                f"{grant.name}: the kernel killed its worker process for lack of memory; "
                f"memory_gib={grant.memory_bytes / GIB:g} was granted"
            )
        kind = BodyExitedError if _is_own_doing(gone.exit_code) else WorkerDiedError
        return kind(
            f"{grant.name}: its worker process {worker.pid} {ended} while the body ran"
            + (", when this machine was out of memory" if short_of_memory else "")
            + (f": {gone.complaint}" if gone.complaint else ""),
            exit_code=gone.exit_code if gone.exit_code is not None and gone.exit_code >= 0 else None,
            signal=-gone.exit_code if gone.exit_code is not None and gone.exit_code < 0 else None,
        )


def _is_own_doing(exit_code: int | None) -> bool:
    """Whether a body has ended its worker itself: it exited, or met a signal that nobody else has reason to send."""
    return exit_code is not None and (exit_code >= 0 or -exit_code in OWN_SIGNALS)


def _is_plain(load: memoryview | bytes) -> bool:
    """Whether making a result again takes no time and runs nobody's code: small, and without an object of any class.

    What names a class in a pickle is one of these four opcodes; where one is only part of the data, no harm is done.
    """
    data = bytes(load[: LARGE_BYTES + 1])
    return len(data) <= LARGE_BYTES and not any(code in data for code in (STACK_GLOBAL, EXT1, EXT2, EXT4))


def _cause(gone: WorkerGone) -> RemoteTraceback | None:
    return RemoteTraceback(f"\n{gone.complaint}") if gone.complaint and not gone.begun else None


def _words(exit_code: int | None) -> str:
    if exit_code is None:
        return "ended"
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        return f"was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was ended by signal {-exit_code}"
