"""One invocation of an action: submit it, wait for units, run its body, and give the caller its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from typing import Any

from arl_tangram.context import Invocable
from arl_tangram.errors import (
    BackendDownError,
    InfrastructureError,
    QueueTimeout,
    RestoreError,
    ShutdownError,
    TangramError,
)
from arl_tangram.managers.manager import BreakerCalls, ManagedSandbox
from arl_tangram.measuring import measured
from arl_tangram.model.events import ActionEnded
from arl_tangram.model.lifecycle import PendingAction, RunningAction
from arl_tangram.nesting import Nesting
from arl_tangram.retrying import Retried
from arl_tangram.running import NO_USAGE, Run
from arl_tangram.uninterrupted import settled
from arl_tangram.workshop import Workshop


class _Answered:
    """Stands for an answer that was given."""

    def done(self) -> bool:
        """It was."""
        return True


_ANSWERED: Any = _Answered()
_MOST_UNSEATED = 3


class Invocation:
    """One call, from its submission to its answer."""

    __slots__ = (
        "_answer", "_args", "_caller", "_context", "_invocable", "_kwargs", "_run", "_sandbox", "_unseated",
        "_workshop", "ended", "pending",
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
        self.ended = False
        self._workshop = workshop
        self._invocable = invocable
        self._args = args
        self._kwargs = kwargs
        self._sandbox = sandbox
        self._caller: Nesting | None = None
        self._answer: asyncio.Future[Any] = workshop.loop.create_future()
        self._context: Context | None = copy_context()
        self._run: Run | None = None
        self._unseated: list[Exception] | None = None

    async def result(self) -> Any:
        """Submit the call, wait for its end and return or raise what its body did.

        Cancelling withdraws it while it waits; while it runs, the body is cancelled and awaited, for
        at most the grace time.
        """
        workshop = self._workshop
        if workshop.breakers is not None:
            self._refuse_if_down(workshop.breakers)
        workshop.dispatcher.submit(self.pending, self)
        try:
            return await self._answer
        except asyncio.CancelledError as cancelled:
            if not self.ended:
                await self._cancel(cancelled)
            raise
        finally:
            self._answer = _ANSWERED  # an error's traceback leads back here: no cycle that only the collector frees

    async def nested_result(self, caller: Run) -> Any:
        """The same for a call by the body of another one, which lends what it can meanwhile."""
        if self._workshop.breakers is not None:
            self._tell_breakers(self._workshop.breakers, caller)
        nesting = caller.nesting()
        self._caller = nesting
        try:
            nesting.begin(self, in_same_sandbox=self._sandbox is not None and self._sandbox is caller.sandbox)
            return await self.result()
        finally:
            nesting.end(self)  # it has ended already, unless it was refused
            await nesting.until_back()

    def _tell_breakers(self, breakers: BreakerCalls, caller: Run) -> None:
        """Say who waits for this call, so that a probe is not in the way of what it calls, however deep."""
        now_s = self._workshop.dispatcher.now_s()
        waits: Run | None = caller
        while waits is not None:
            breakers.called(waits.running, waits.quotas, self.quotas, now_s)
            above = self._workshop.live.get(waits.running.pending.parent or 0)
            waits = above.run if isinstance(above, Invocation) else None

    def _refuse_if_down(self, breakers: BreakerCalls) -> None:
        """Answer at once that what is behind one of its quotas is down."""
        error = breakers.refusal(self._invocable.spec.cost.quota, self._workshop.dispatcher.now_s())
        if error is not None:
            self._fail(error)
            raise error

    # Told by the dispatcher.

    def granted(self, running: RunningAction | None) -> None:
        """Start the body; its units are in use from now on."""
        context, self._context = self._context, None
        assert running is not None
        assert context is not None
        self._run = Run(
            self._workshop, self, self._invocable, self._args, self._kwargs, running, self._sandbox, context
        )
        self._workshop.live[self.pending.id] = self

    def expired(self) -> None:
        """Answer that the wait was too long."""
        waited_s = self.pending.demand.queue_timeout
        self._fail(QueueTimeout(f"{self.name} waited {waited_s:g} s for its units without getting them"))

    def failed(self, error: Exception) -> None:
        """Answer that the scheduler failed, or why the call can never start."""
        if isinstance(error, RestoreError) and self._unseated:
            why = self._unseated[-1]
            error = RestoreError(f"{error}: {why}")
            error.__cause__ = why
        if isinstance(error, TangramError):
            self._fail(error)
        else:
            self._fail(InfrastructureError(f"{self.name}: the scheduler failed: {error!r}"))

    def send_back(self, error: Exception, context: Context) -> bool:
        """Wait once more, as its service could not be restored, or its GPUs not be emptied; return whether it does."""
        unseated = self._unseated = [*(self._unseated or ()), error]
        if len(unseated) >= _MOST_UNSEATED or not self._workshop.dispatcher.send_back(self.pending.id, self):
            return False
        self._run, self._context = None, context
        return True

    # Ending it from outside.

    def shut_down(self) -> None:
        """End it because the runtime closes."""
        doing = "waiting" if self._run is None else "running"
        self.call_off(ShutdownError(f"the runtime was closed while {self.name} was {doing}"))

    def call_off(self, error: BaseException) -> None:
        """Take it out of the queue, or interrupt it; its caller gets the error."""
        if self.ended:
            return
        if self._run is None:
            self._workshop.dispatcher.withdraw(self.pending.id)
            self._fail(error)
        else:
            self._run.interrupt(error)

    def detach(self) -> None:
        """Let go of a body that outlives the runtime."""
        if self._run is not None:
            self._run.detach()

    def end_now(self) -> None:
        """Answer without the body, and end it for good; the process is forced to leave."""
        if self._run is not None:
            self._run.end_now()

    async def _cancel(self, cancelled: asyncio.CancelledError) -> None:
        """The caller does not want it any more: take it out of the queue, or end it and wait for its end."""
        if self._run is None:
            self._workshop.dispatcher.withdraw(self.pending.id)
            self._report(cancelled, 0.0, self._workshop.time())
            return
        self._answer = self._workshop.loop.create_future()
        self._run.interrupt(cancelled)
        await settled(self._answer)

    # What is known of it.

    @property
    def name(self) -> str:
        """The action's name."""
        return self._invocable.spec.name

    @property
    def quotas(self) -> tuple[tuple[str, int], ...]:
        """Pairs of a quota's name and what it takes of it."""
        return self._invocable.spec.cost.quota

    @property
    def run(self) -> Run | None:
        """The run of its body; None before that."""
        return self._run

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The task that runs the body."""
        return None if self._run is None else self._run.task

    @property
    def lingering(self) -> bool:
        """Whether its caller was answered, and its body has not ended."""
        return self._run is not None and self._run.lingering

    @property
    def over(self) -> bool:
        """Whether nothing of it goes on: its body never began, or has ended."""
        return self._run is None or self._run.task is None

    # Answering.

    def answer(self, value: Any, error: BaseException | None, body_s: float, now_s: float) -> None:
        """Measure it, and give the caller its answer, once: a value, or an error; the body has run for `body_s`."""
        self._report(error, body_s, now_s)
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

    def _fail(self, error: BaseException) -> None:
        """Answer that it never ran."""
        self.answer(None, error, 0.0, self._workshop.time())

    def _report(self, error: BaseException | None, body_s: float, now_s: float) -> None:
        """Measure the call as design and trace define it."""
        run = self._run
        if run is None:
            finished = measured(self.pending, None, error, now_s, body_s, NO_USAGE, 0)
        else:
            usage = NO_USAGE if run.cores is None else run.cores.usage
            waited_s = 0.0 if run.nested is None else run.nested.regaining_s
            milli_cores, suspended_s, switches = run.milli_cores, 0.0, 0
            if (past := run.switching) is not None:
                milli_cores, suspended_s, switches = past.milli_cores, past.suspended_s(now_s), past.switches
            finished = measured(
                self.pending, run.running, error, now_s, body_s, usage, milli_cores, waited_s, suspended_s, switches
            )
        self._workshop.dispatcher.note(ActionEnded(now_s, finished))
        if self._caller is not None:
            self._caller.end(self)


def calls(workshop: Workshop) -> list[Invocation | Retried]:
    """Return all calls of a runtime that wait, hold units, or are to be tried again."""
    waiting = [waiter for waiter in workshop.dispatcher.waiters() if isinstance(waiter, Invocation)]
    live = [call for call in workshop.live.values() if isinstance(call, Invocation)]
    return [*waiting, *live, *workshop.retrying.waiting()]


def resize(workshop: Workshop, running: RunningAction) -> None:
    """Let a running call have other cores from now on, or none."""
    call = workshop.live.get(running.pending.id)
    if isinstance(call, Invocation) and call.run is not None:
        call.run.resize(running)


def refuse(workshop: Workshop, quota: str, error: Callable[[], BackendDownError]) -> None:
    """End the calls that wait for a quota: what is behind it is down."""
    for waiter in workshop.dispatcher.waiters():
        if isinstance(waiter, Invocation) and any(name == quota for name, _ in waiter.quotas):
            waiter.call_off(error())
