"""One invocation of an action: wait for units, run the body, clean up, give the units back, report.

The body runs in a task of its own, so that a timeout, a cancelled caller or the closing runtime can
interrupt it, and so that a caller never waits longer than the grace time for one that does not
listen. Then the body lingers: its units stay in use, visibly, until it really ends.

The order at the end is always the same: the body ends, everything it started is killed, the units
return, the caller gets its answer.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any

from arl_tangram.context import Invocable, active_var
from arl_tangram.dispatch import Dispatcher
from arl_tangram.errors import (
    BodyCancelledError,
    DefinitionError,
    InfeasibleError,
    InfrastructureError,
    QueueTimeout,
    RunTimeout,
    ShutdownError,
    TangramError,
)
from arl_tangram.managers.manager import CpuLease, CpuManager, ExecUsage, ManagedSandbox
from arl_tangram.managers.processes import BodyProcesses, Grant
from arl_tangram.managers.quota import Quota, QuotaHandle
from arl_tangram.managers.threads import BodyThreads, Returned
from arl_tangram.measuring import measured
from arl_tangram.model.allocation import Allocation
from arl_tangram.model.events import ActionEnded, Event
from arl_tangram.model.lifecycle import BodyKind, PendingAction, RunningAction
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.uninterrupted import settled

_NO_USAGE = ExecUsage(0.0, 0.0)


@dataclass(slots=True, eq=False)
class Workshop:
    """What all invocations of a runtime share."""

    dispatcher: Dispatcher
    cpu: CpuManager | None
    threads: BodyThreads
    processes: BodyProcesses
    kill_grace_s: float
    on_events: Callable[[Sequence[Event]], None]
    loop: asyncio.AbstractEventLoop
    quotas: Mapping[str, Quota] = field(default_factory=dict[str, Quota])
    live: dict[int, Invocation] = field(default_factory=dict[int, "Invocation"])
    trajectories: dict[Any, None] = field(default_factory=dict[Any, None])
    timer_context: Context = field(default_factory=Context)

    def invocations(self) -> list[Invocation]:
        """Return all calls that wait or hold units."""
        return [w for w in self.dispatcher.waiters() if isinstance(w, Invocation)] + list(self.live.values())

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Set a timer that keeps nothing alive once it is cancelled.

        A loop forgets a cancelled timer late, and with it the context in which it was set: in the
        body's own, that would be the arguments of the call and all that its context variables hold.
        """
        return self.loop.call_later(delay_s, callback, context=self.timer_context)

    def quota_handle(self, running: RunningAction, name: str) -> QuotaHandle:
        """Return what the body of a call sees of a quota that it holds."""
        number = dict(running.pending.demand.keys).get(name, 0)
        key = self.dispatcher.core.topology.quotas[name][number]
        declared = self.quotas[name]

        def count(calls: int | None, tokens: int | None) -> bool:
            amounts = [] if calls is None else [(dimension, calls) for dimension in key.calls]
            amounts += [] if tokens is None else [(dimension, tokens) for dimension in key.tokens]
            held = running.pending.id in self.live
            if held:
                self._on_loop(lambda: self.dispatcher.settle(running.pending.id, amounts))
            return held

        return QuotaHandle(
            pause=lambda for_s: self._on_loop(lambda: self._pause(key.all(), for_s)),
            count=count,
            key=declared.keys[number] if declared.keys else None,
            longest_pause_s=declared.longest_pause_s,
        )

    def _pause(self, dimensions: Sequence[int], for_s: float) -> None:
        for dimension in dimensions:
            self.dispatcher.pause(dimension, for_s)

    def _on_loop(self, callback: Callable[[], None]) -> None:
        """Do something on the loop: on it at once, as a decision may be due in this very turn; else very soon."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self.loop:
            callback()
            return
        with suppress(RuntimeError):  # the loop is closed: nothing is granted any more
            self.loop.call_soon_threadsafe(callback, context=self.timer_context)


class _BodyTask(asyncio.Task[None]):
    """Runs a body; tells the invocation if it is cancelled before its first step.

    A callback for every task that is done would say so too, at the cost of a turn of the loop for every call.
    """

    invocation: Invocation

    def cancel(self, msg: Any | None = None) -> bool:
        if not self.invocation.has_begun:
            self.add_done_callback(self.invocation.never_began)
        return super().cancel(msg)


class Invocation:
    """One call, from its submission to its end; also what the body sees as the active action."""

    __slots__ = (
        "_answer", "_args", "_body_s", "_cleaning", "_context", "_deadline", "_grace", "_interrupt", "_invocable",
        "_kwargs", "_lease", "_milli_cores", "_outlived", "_sandbox", "_started_at_s", "_task", "_workshop", "ended",
        "lingering", "pending", "running",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 - one caller, and keywords cost time on every call
        self,
        workshop: Workshop,
        invocable: Invocable,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        pending: PendingAction,
        sandbox: ManagedSandbox | None,
    ) -> None:
        self.pending = pending
        self.running: RunningAction | None = None
        self.ended = False
        self.lingering = False
        self._workshop = workshop
        self._invocable = invocable
        self._args = args
        self._kwargs = kwargs
        self._sandbox = sandbox
        self._answer: asyncio.Future[Any] = workshop.loop.create_future()
        self._context: Context | None = copy_context()
        self._task: _BodyTask | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._lease: CpuLease | None = None
        self._cleaning: asyncio.Task[None] | None = None
        self._interrupt: BaseException | None = None
        self._outlived = False
        self._milli_cores = 0
        self._started_at_s: float | None = None
        self._body_s: float | None = None

    async def result(self) -> Any:
        """Submit the call, wait for its end and return or raise what its body did.

        Cancelling withdraws it while it waits; while it runs, the body is cancelled and awaited, for
        at most the grace time.
        """
        self._workshop.dispatcher.submit(self.pending, self)
        try:
            return await self._answer
        except asyncio.CancelledError as cancelled:
            if not self.ended:
                await self._call_off(cancelled)
            raise

    # Told by the dispatcher.

    def granted(self, running: RunningAction | None) -> None:
        """Start the body; its units are in use from now on."""
        assert running is not None
        self.running = running
        self._milli_cores = running.units or running.pending.demand.milli_cores
        self._workshop.live[self.pending.id] = self
        self._task = _BodyTask(
            self.run_body(), loop=self._workshop.loop, name=running.pending.demand.name, context=self._context
        )
        self._task.invocation = self
        self._context = None

    def expired(self) -> None:
        """Answer that the wait was too long."""
        waited_s = self.pending.demand.queue_timeout
        self._fail(QueueTimeout(f"{self.name} waited {waited_s:g} s for its units without getting them"))

    def failed(self, error: Exception) -> None:
        """Answer that the scheduler failed, or that a budget of a quota is spent."""
        if isinstance(error, InfeasibleError):
            self._fail(error)
        else:
            self._fail(InfrastructureError(f"{self.name}: the scheduler failed: {error!r}"))

    # Interrupting.

    def shut_down(self) -> None:
        """End it because the runtime closes."""
        doing = "running" if self.running else "waiting"
        self.call_off(ShutdownError(f"the runtime was closed while {self.name} was {doing}"))

    def call_off(self, error: TangramError) -> None:
        """Take it out of the queue, or interrupt it; its caller gets the error."""
        if self.running is None:
            self._workshop.dispatcher.withdraw(self.pending.id)
            self._fail(error)
        else:
            self.interrupt(error)

    def interrupt(self, why: BaseException) -> None:
        """Cancel the running body; after the grace time, answer without it."""
        if self.ended or self._interrupt is not None or self._task is None:
            return
        self._interrupt = why
        if self._invocable.spec.kind is BodyKind.THREAD:
            self._abandon()  # a thread cannot be cancelled: waiting would be in vain
        else:
            self._task.cancel()
            self._grace = self._workshop.call_later(self._workshop.kill_grace_s, self._abandon)

    def detach(self) -> None:
        """Let go of a body that outlives the runtime."""
        if self._task is not None:
            self._task.cancel()

    @property
    def has_begun(self) -> bool:
        """Whether the task has made its first step."""
        return self._started_at_s is not None

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The task that runs the body."""
        return self._task

    def _abandon(self) -> None:
        """Answer without a body that does not end, kill its commands, and cancel it again from time to time."""
        if not self.ended:
            self.lingering = True
            self._fail(self._interrupt)
        if self._lease is not None and (self._cleaning is None or self._cleaning.done()):
            self._clean(self._lease)
        if self._task is not None and self._invocable.spec.kind is BodyKind.ASYNC:
            self._task.cancel()
            self._grace = self._workshop.call_later(self._workshop.kill_grace_s, self._abandon)

    async def _call_off(self, cancelled: asyncio.CancelledError) -> None:
        """The caller does not want it any more: take it out of the queue, or end it and wait for its end."""
        if self.running is None:
            self._workshop.dispatcher.withdraw(self.pending.id)
            self._report(cancelled, 0.0, self._workshop.loop.time())
            return
        self._answer = self._workshop.loop.create_future()
        self.interrupt(cancelled)
        await settled(self._answer)

    # Running.

    async def run_body(self) -> None:
        """Run the body to its end, whatever happens, and give everything back."""
        spec = self._invocable.spec
        value: Any = None
        error: BaseException | None = None
        started_at_s = self._started_at_s = self._workshop.loop.time()
        active_var.set(self)
        try:
            if self._milli_cores and self._workshop.cpu is not None:
                self._lease = self._workshop.cpu.lease(self._milli_cores, self._sandbox)
            if spec.timeout is not None and spec.kind is not BodyKind.PROCESS:
                self._begin_timeout(spec.timeout)
            if spec.kind is BodyKind.ASYNC:
                value = await self._invocable.body(*self._args, **self._kwargs)
            else:
                value = await (self._on_thread() if spec.kind is BodyKind.THREAD else self._in_process())
        except asyncio.CancelledError as caught:
            error = self._interrupt or BodyCancelledError(f"{self.name} raised CancelledError; nobody cancelled it")
            error.__cause__ = caught if error is not caught else None
        except BaseException as caught:  # noqa: BLE001 - told to the caller, whatever it is
            error = caught
        finally:
            now_s = self._workshop.loop.time()
            body_s = now_s - started_at_s if self._body_s is None else self._body_s
            if self._deadline is not None:
                self._deadline.cancel()
            if not self._outlived:
                if self._lease is not None:
                    error = await self._leave(self._lease) or error
                    now_s = self._workshop.loop.time()
                self._conclude(value, self._interrupt or error, body_s, now_s)
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            if (this := asyncio.current_task()) is not None:
                this.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved
            raise error

    async def _leave(self, lease: CpuLease) -> BaseException | None:
        """Kill what the body left behind, then release the cores; return what went wrong."""
        failure: BaseException | None = None
        with suppress(asyncio.CancelledError):  # whoever cancels has said why in `_interrupt`
            if self._cleaning is not None:
                await settled(self._cleaning)  # begun before the body ended, so another follows
        if (clean := self._clean(lease)) is not None:
            with suppress(asyncio.CancelledError):
                await settled(clean)
            failure = None if clean.cancelled() else clean.exception()
        lease.release()
        return failure

    def _clean(self, lease: CpuLease) -> asyncio.Task[None] | None:
        """Start to kill what the body started, if there may be anything."""
        if not lease.needs_cleanup():
            return None
        self._cleaning = self._workshop.loop.create_task(lease.clean())
        self._cleaning.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved
        return self._cleaning

    async def _on_thread(self) -> Any:
        context = copy_context()
        core_ids = self._lease.core_ids if self._lease is not None else ()
        done = self._workshop.threads.run(
            lambda: context.run(self._invocable.body, *self._args, **self._kwargs), core_ids
        )
        while not done.done():
            try:
                await asyncio.shield(done)
            except asyncio.CancelledError:
                if done.done():
                    break
                # No thread is ended by cancelling: the runtime lets go of it, or the loop is being ended
                # by somebody who must not have to wait for the thread.
                self.interrupt(BodyCancelledError(f"the task of {self.name} was cancelled while its thread ran"))
                self._outlived = True
                done.add_done_callback(self._thread_ended)
                raise
        self._body_s = done.result().body_s
        value = done.result().result()
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise DefinitionError(f"{self.name} is a plain function and returned an awaitable; make it `async def`")
        return value

    async def _in_process(self) -> Any:
        """Run the body in a worker; its time, and its timeout, count from when it begins there."""
        grant = Grant(self.name, self.allocation, self._milli_cores, self._invocable.spec.cost.memory_bytes)
        began_at_s: list[float] = []

        def begin() -> None:
            began_at_s.append(self._workshop.loop.time())
            if (timeout := self._invocable.spec.timeout) is not None:
                self._begin_timeout(timeout)

        try:
            returned = await self._workshop.processes.run(self._args[0], grant, begin)
        except BaseException:
            self._body_s = sum(self._workshop.loop.time() - at_s for at_s in began_at_s)
            raise
        self._body_s = returned.body_s
        return returned.result()

    def _thread_ended(self, done: asyncio.Future[Returned]) -> None:
        """Give back what a thread held that outlived the task of its body."""
        if self._lease is not None:
            self._lease.release()
        self._conclude(None, self._interrupt, 0.0, self._workshop.loop.time())

    def _begin_timeout(self, timeout: float) -> None:
        self._deadline = self._workshop.call_later(timeout, self._time_out)

    def _time_out(self) -> None:
        timeout = self._invocable.spec.timeout
        self.interrupt(RunTimeout(f"{self.name} ran longer than its timeout of {timeout:g} s"))

    def never_began(self, _: asyncio.Task[None]) -> None:
        """Conclude a call whose task was cancelled before its first step, so that none of it ever ran."""
        if not self.has_begun and self._task is not None:  # cancelled twice, it is told twice
            error = self._interrupt or BodyCancelledError(f"the task of {self.name} was cancelled before it began")
            self._conclude(None, error, 0.0, self._workshop.loop.time())

    def _conclude(self, value: Any, error: BaseException | None, body_s: float, now_s: float) -> None:
        """Give the units back, then answer."""
        del self._workshop.live[self.pending.id]
        self._task = None
        if self._grace is not None:
            self._grace.cancel()
        self._workshop.dispatcher.finish(self.pending.id, now_s, body_s if error is None else None)
        if not self.ended:
            self._report(error, body_s, now_s)
            self._answer_with(value, error)

    # Answering.

    def _fail(self, error: BaseException | None) -> None:
        """Answer with an error before, or without, the end of the body."""
        now_s = self._workshop.loop.time()
        self._report(error, 0.0 if self._started_at_s is None else now_s - self._started_at_s, now_s)
        self._answer_with(None, error)

    def _answer_with(self, value: Any, error: BaseException | None) -> None:
        """Give the caller its answer, once."""
        self.ended = True
        if self._answer.done():
            return
        if error is None:
            self._answer.set_result(value)
        elif isinstance(error, asyncio.CancelledError):
            self._answer.set_result(None)  # the caller that waits here raises it itself
        else:
            self._answer.set_exception(error)
            self._answer.exception()  # retrieved: the caller may be gone

    def _report(self, error: BaseException | None, body_s: float, now_s: float) -> None:
        """Measure the call as design and trace define it."""
        usage = _NO_USAGE if self._lease is None else self._lease.usage
        finished = measured(self.pending, self.running, error, now_s, body_s, usage, self._milli_cores)
        self._workshop.on_events((ActionEnded(now_s, finished),))

    # What the body sees.

    @property
    def name(self) -> str:
        """The action's name."""
        return self._invocable.spec.name

    @property
    def sandbox(self) -> ManagedSandbox | None:
        """The sandbox it runs in."""
        return self._sandbox

    @property
    def allocation(self) -> Allocation:
        """What it was granted."""
        cost = self._invocable.spec.cost
        return Allocation(
            cores=self._milli_cores / MILLI if self._milli_cores % MILLI else self._milli_cores // MILLI,
            core_ids=self._lease.core_ids if self._lease is not None else (),
            memory_gib=cost.memory_bytes / GIB,
            quota={name: amount / MILLI for name, amount in cost.quota},
        )

    def quota(self, name: str) -> QuotaHandle | None:
        """Its hold on a quota, or None."""
        if self.running is None or all(name != held for held, _ in self._invocable.spec.cost.quota):
            return None
        return self._workshop.quota_handle(self.running, name)
