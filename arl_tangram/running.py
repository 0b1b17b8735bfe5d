"""One run of a body, from the grant of its units until they are back; also what the body sees as the active action.

The body runs in a task of its own, so that a timeout, a cancelled caller or the closing runtime can interrupt it, and
so that a caller never waits longer than the grace time for one that does not listen. Then the body lingers: its units
stay in use, visibly, until it really ends.

The order at the end is always the same: the body ends, everything it started is killed, the units return, the caller
gets its answer.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

from arl_tangram.body_clock import BodyClock
from arl_tangram.body_task import OVER, Answered, BodyTask
from arl_tangram.body_thread import BodyThread
from arl_tangram.context import Invocable, active_var, no_sandbox
from arl_tangram.errors import (
    BodyCancelledError,
    DefinitionError,
    RestoreError,
    RunTimeout,
    ServiceLostError,
    ShutdownError,
)
from arl_tangram.held_cores import HeldCores
from arl_tangram.managers.manager import ExecUsage, GpuHold, ManagedSandbox
from arl_tangram.managers.processes import Grant
from arl_tangram.managers.quota import QuotaHandle
from arl_tangram.managers.threads import Returned
from arl_tangram.model.allocation import Allocation
from arl_tangram.model.lifecycle import BodyKind, RunningAction
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.service import Service
from arl_tangram.nesting import Nesting
from arl_tangram.switching import Switching
from arl_tangram.watching import Steps
from arl_tangram.workshop import Workshop

NO_USAGE = ExecUsage(0.0, 0.0)


class Run:
    """One run of a body; its task starts at once.

    Attributes:
        running: the call with its units.
        milli_cores: what it has of cores, or had last if it is suspended.
        lingering: whether its caller was answered, and its body has not ended.
        cores: what it holds of the pool of cores, if anything.
        gpu: what it holds of the pool of GPUs, if anything.
        nested: the calls that its body has made, if it has made any.
        switching: how its cores have changed, if they have.
    """

    # Most runs need none of these: to set them for each would take longer than to make the rest.
    lingering = False
    nested: Nesting | None = None
    switching: Switching | None = None
    _clock: BodyClock | None = None
    _deadline: asyncio.TimerHandle | None = None
    _grace: asyncio.TimerHandle | None = None
    cores: HeldCores | None = None
    gpu: GpuHold | None = None
    _begun_in: Context | None = None
    _unseated: Exception | None = None
    _unleased: Exception | None = None
    _is_seated = False
    _interrupt: BaseException | None = None
    _outlived = False
    _started_at_s: float | None = None
    _body_s: float | None = None
    _thread: BodyThread | None = None

    def __init__(  # noqa: PLR0917 - one caller, and keywords cost time on every call
        self,
        workshop: Workshop,
        call: Answered,
        invocable: Invocable,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        running: RunningAction,
        sandbox: ManagedSandbox | None,
        context: Context,
    ) -> None:
        self.running = running
        self._workshop = workshop
        self._call = call
        self._invocable = invocable
        self._args = args
        self._kwargs = kwargs
        self._sandbox = sandbox
        demand = running.pending.demand
        self.milli_cores = running.units or demand.milli_cores
        if self.milli_cores and workshop.cpu is not None:
            try:  # in the turn of the grant, so that what the manager has in use is always what the scheduler counts
                most = demand.options[-1] if demand.resizable and workshop.shares else 0
                self.cores = HeldCores(workshop.cpu, self.milli_cores, sandbox, demand.reserved > 0, most)
            except Exception as error:  # noqa: BLE001 - the body's task raises it
                self._unleased = error
        if running.seat is not None and workshop.gpu is not None:
            self._begun_in = context
            try:  # in the turn of the decision, and in the order of decisions
                self.gpu = workshop.gpu.take(running.seat)
            except Exception as error:  # noqa: BLE001 - the body's task raises it
                self._unleased = error
        task = BodyTask(self._run(), loop=workshop.loop, name=demand.name, context=context)
        task.run = self
        self._task: BodyTask | None = task

    # Interrupting.

    def interrupt(self, why: BaseException) -> None:
        """Cancel the body; after the grace time, answer without it."""
        if self._call.ended or self._interrupt is not None or self._task is None:
            return
        self._interrupt = why
        if self.nested is not None:
            self.nested.give_up()
        if self.cores is not None:
            self.cores.wake()
        if self._thread is not None:
            self._abandon()  # a thread cannot be cancelled: waiting would be in vain
        else:
            self._task.cancel()
            self._grace = self._workshop.call_later(self._workshop.kill_grace_s, self._abandon)

    def detach(self) -> None:
        """Let go of a body that outlives the runtime."""
        if self._task is not None:
            self._task.cancel()

    def end_now(self) -> None:
        """Answer without the body, and end it for good; the process is forced to leave."""
        self.interrupt(ShutdownError(f"{self.name} was ended by force"))
        if not self.lingering:
            self._abandon()
        self._close_body()

    def loop_ends(self) -> None:
        """Somebody ends the loop: a body that does not listen may not hold that up for longer than the grace time."""
        if self._interrupt is None:
            self._workshop.call_later(self._workshop.kill_grace_s, self._close_body)
        elif not self.lingering:
            self._abandon()  # which cancels again
        else:
            self._close_body()

    def never_began(self, _: asyncio.Task[None]) -> None:
        """Conclude a run whose task was cancelled before its first step, so that none of it ever ran."""
        if not self.has_begun and self._task is not None:  # cancelled twice, it is told twice
            error = self._interrupt or BodyCancelledError(f"the task of {self.name} was cancelled before it began")
            if self.cores is not None:
                self.cores.release()
            self._conclude(None, error, 0.0, self._workshop.time())

    @property
    def has_begun(self) -> bool:
        """Whether the task has made its first step."""
        return self._started_at_s is not None

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The task that runs the body; None when the units are back."""
        return self._task

    def _abandon(self) -> None:
        """Answer without a body that does not end, kill its commands, and cancel it again from time to time."""
        if not self._call.ended:
            self.lingering = True
            if (breakers := self._workshop.breakers) is not None:
                breakers.answered(self.running, self.quotas, self._interrupt, self._workshop.dispatcher.now_s())
            now_s = self._workshop.time()
            self._call.answer(None, self._interrupt, self._since(self._started_at_s or now_s, now_s), now_s)
        if self.nested is not None:
            self.nested.call_off(BodyCancelledError(f"it was called by {self.name}, which was ended"))
        if self.cores is not None:
            self.cores.kill()
        if self._task is not None and self._invocable.spec.kind is BodyKind.ASYNC:
            self._task.cancel()
            self._grace = self._workshop.call_later(self._workshop.kill_grace_s, self._abandon)

    def _close_body(self) -> None:
        """End an `async def` body by `GeneratorExit`, which one that catches `CancelledError` does not catch."""
        if self._task is None:
            return
        steps = getattr(self._task.get_coro(), "cr_await", None)
        if isinstance(steps, Steps):
            with suppress(BaseException):
                steps.close()
            if self._task.get_loop().is_running():
                self._task.cancel()  # so that it takes its next step

    # Running.

    async def _run(self) -> None:  # noqa: PLR0912, PLR0915 - each function more would cost every call
        """Run the body to its end, whatever happens, and give everything back."""
        spec, workshop = self._invocable.spec, self._workshop
        value: Any = None
        error: BaseException | None = None
        started_at_s = self._started_at_s = workshop.time()
        active_var.set(self)
        if self.switching is not None:
            self.switching.begin()
        try:
            if self._unleased is not None:
                raise self._unleased
            if self.gpu is not None:
                started_at_s = await self._seated(self.gpu)
            if (spec.timeout or spec.end_at_s) is not None and spec.kind is not BodyKind.PROCESS:
                self._begin_timeout()
            if spec.kind is BodyKind.ASYNC:
                value, rest = workshop.watch.begin(self._invocable.body(*self._args, **self._kwargs), spec.name)
                if rest is not None:
                    value = await rest
            else:
                value = await (self._on_thread() if spec.kind is BodyKind.THREAD else self._in_process())
        except asyncio.CancelledError as caught:
            error = self._interrupt or BodyCancelledError(f"{self.name} raised CancelledError; nobody cancelled it")
            error.__cause__ = caught if error is not caught else None
        except BaseException as caught:
            if isinstance(caught, GeneratorExit) and workshop.loop.is_closed():  # collected: nobody is there any more
                self._outlived = True
                raise
            error = caught  # told to the caller, whatever it is
        finally:
            now_s = workshop.time()
            body_s = self._since(started_at_s, now_s) if self._body_s is None else self._body_s
            if self._clock is not None:
                self._clock.stop()
                self._clock = None
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            if not self._outlived:
                if self.cores is not None and not self.cores.leave_at_once():
                    error = await self.cores.leave() or error
                    now_s = workshop.time()
                if self._unseated is None or not self._send_back(self._unseated):
                    self._conclude(value, self._interrupt or error, body_s, now_s)
        if isinstance(error, (KeyboardInterrupt, SystemExit)):  # on the main thread, perhaps from a signal handler
            if (this := asyncio.current_task()) is not None:
                this.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved
            raise error
        error = None  # its traceback leads here: no cycle that only the collector frees

    async def _seated(self, gpu: GpuHold) -> float:
        """Wait until the service can be used, or the GPUs are free, and return the time: the body begins then."""
        try:
            await gpu.ready()
        except (RestoreError, ServiceLostError) as error:
            self._unseated = error
            raise
        self._is_seated = True
        self._started_at_s = self._workshop.time()
        return self._started_at_s

    def _send_back(self, error: Exception) -> bool:
        """Give everything back and let the call wait at its old place, as its body has not begun; whether it does."""
        context, call, dispatcher = self._begun_in, self._call, self._workshop.dispatcher
        if self._interrupt is not None or call.ended or context is None:
            return False
        if self.gpu is not None:
            self.gpu.release()
        if not call.send_back(error, context):
            return False
        del self._workshop.live[self.running.pending.id]
        if (breakers := self._workshop.breakers) is not None:
            breakers.ended(self.running, self.quotas, error, dispatcher.now_s())
        self._task, self._call, self._begun_in = None, OVER, None
        return True

    async def _on_thread(self) -> Any:
        if self.cores is not None:
            await self.cores.applied()
        self._thread = BodyThread()
        body = partial(self._invocable.body, *self._args, **self._kwargs)
        core_ids = () if self.cores is None else self.cores.core_ids
        returned = await self._thread.run(self._workshop.threads, body, core_ids, self._let_go)
        self._body_s = returned.body_s
        value = returned.result()
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise DefinitionError(
                f"{self.name} is a plain function and returned an awaitable; make it `async def`, or "
                "call actions with `tangram.run_sync`"
            )
        return value

    def _let_go(self, done: asyncio.Future[Returned]) -> None:
        """Go on without a thread that does not end: the runtime wants that, or somebody who ends the loop."""
        self.interrupt(BodyCancelledError(f"the task of {self.name} was cancelled while its thread ran"))
        self._outlived = True
        done.add_done_callback(self._thread_ended)

    async def _in_process(self) -> Any:
        """Run the body in a worker; its time, and its timeout, count from when it begins there."""
        if self.cores is not None:
            await self.cores.applied()
        grant = Grant(self.name, self.allocation, self.milli_cores, self._invocable.spec.cost.memory_bytes)
        began_at_s: list[float] = []

        def begin() -> None:
            began_at_s.append(self._workshop.time())
            self._begin_timeout()

        try:
            returned = await self._workshop.processes.run(self._args[0], grant, begin)
        except BaseException:
            self._body_s = sum(self._workshop.time() - at_s for at_s in began_at_s)
            raise
        self._body_s = returned.body_s
        return returned.result()

    def _thread_ended(self, _: asyncio.Future[Returned]) -> None:
        """Give back what a thread held that outlived the task of its body."""
        if self.cores is not None:
            self.cores.release()
        self._conclude(None, self._interrupt, 0.0, self._workshop.time())

    def _begin_timeout(self) -> None:
        spec, workshop = self._invocable.spec, self._workshop
        if spec.end_at_s is not None:  # a moment, which comes while the body stands still as well
            self._deadline = workshop.call_later(max(spec.end_at_s - workshop.time(), 0.0), self._outlive_rollout)
        if spec.timeout is not None:
            self._clock = BodyClock(workshop, spec.timeout, self._time_out)
            if self.switching is not None and self.switching.is_suspended:
                self._clock.stop()

    def _time_out(self) -> None:
        self.interrupt(RunTimeout(f"{self.name} ran longer than its timeout of {self._invocable.spec.timeout:g} s"))

    def _outlive_rollout(self) -> None:
        self.interrupt(RunTimeout(f"{self.name} still ran when the time of its rollout was over"))

    def _since(self, started_at_s: float, now_s: float) -> float:
        """Return for how long the body has run that began then, without what it was suspended for."""
        run_s = now_s - started_at_s
        return run_s if self.switching is None else max(0.0, run_s - self.switching.body_suspended_s(now_s))

    def _conclude(self, value: Any, error: BaseException | None, body_s: float, now_s: float) -> None:
        """Give the units back, then answer."""
        running, workshop = self.running, self._workshop
        dispatcher, breakers = workshop.dispatcher, workshop.breakers
        del workshop.live[running.pending.id]
        self._task = None
        if self._grace is not None:
            self._grace.cancel()
        own_s = body_s
        if self.nested is not None:
            self.nested.give_up()  # a call that was left behind may wait for what this will not need any more
            own_s = max(0.0, body_s - self.nested.away_s)
        if self.gpu is not None:
            self.gpu.release()
            self._begun_in = None
        if running.seat is not None and not self._is_seated:
            dispatcher.unused(running.pending.id)
        dispatcher.finish(running.pending.id, now_s, own_s if error is None else None)
        if breakers is not None:
            breakers.ended(running, self.quotas, error, dispatcher.now_s())
        call, self._call = self._call, OVER  # no cycle is left behind that only the collector could free
        if not call.ended:
            call.answer(value, error, body_s, now_s)
        self.nested = None

    # While its cores change.

    def resize(self, running: RunningAction) -> None:
        """Have other cores from now on, or none; if that fails, the body is interrupted by the error."""
        if self._task is None:
            return
        if self.switching is None:
            self.switching = Switching(self.milli_cores, self._workshop.time)
            if self.nested is not None and self.nested.is_away:
                self.switching.leave()
        self.running, self.milli_cores = running, running.units or self.milli_cores
        turned = self.switching.switch(running.units)
        if self._clock is not None and turned:
            if running.units:
                self._clock.go_on()
            else:
                self._clock.stop()
        if self.cores is None:
            return
        try:
            self.cores.resize(running.units)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            self.interrupt(error)
        if self.nested is not None and running.units:
            self.nested.go_on()

    # While the body waits for actions that it has called.

    def nesting(self) -> Nesting:
        """Return what its body has called."""
        if self.nested is None:
            self.nested = Nesting(self, self.running.pending.id, self._workshop.dispatcher, self._workshop.loop)
        return self.nested

    def is_alive_in(self, workshop: Workshop) -> bool:
        """Whether it is a run of that runtime, and its units are not back."""
        return self._task is not None and self._workshop is workshop

    @property
    def is_over(self) -> bool:
        """Whether it was interrupted or answered, so that its body needs nothing any more."""
        return self._call.ended or self._interrupt is not None or self._task is None

    def put_down(self) -> bool:
        """Let go of the cores and stop the clock of the timeout; return whether the cores are free."""
        if self._clock is not None:
            self._clock.stop()
        if self.switching is not None:
            self.switching.leave()
        return self.cores is None or self.cores.lend()

    def take_up(self) -> bool:
        """Take cores again, and let the clock go on; return whether the body can go on, too.

        Raises:
            SandboxLostError: the sandbox died meanwhile.
        """
        if self._clock is not None:
            self._clock.go_on()
        if self.switching is not None:
            self.switching.come_back()
        if self.cores is None:
            return True
        self.cores.take_back()
        if self._thread is not None and self.cores.core_ids:
            self._thread.move(self.cores.core_ids)
        return self.cores.is_leased

    # What the body sees.

    @property
    def name(self) -> str:
        """The action's name."""
        return self._invocable.spec.name

    @property
    def ended(self) -> bool:
        """Whether its caller has been answered."""
        return self._call.ended

    @property
    def sandbox(self) -> ManagedSandbox | None:
        """The sandbox it runs in."""
        return self._sandbox

    @property
    def no_sandbox(self) -> str:
        """Why it runs in none, if so."""
        return no_sandbox(self._invocable.spec, has_pool=self._workshop.cpu is not None)

    @property
    def allocation(self) -> Allocation:
        """What it has; while it is suspended, the cores that it had last."""
        cost, demand = self._invocable.spec.cost, self.running.pending.demand
        node = demand.node
        most = demand.options[-1] if demand.resizable and self._workshop.shares else self.milli_cores
        return Allocation(
            cores=self.milli_cores / MILLI if self.milli_cores % MILLI else self.milli_cores // MILLI,
            core_ids=() if self.cores is None else self.cores.core_ids,
            memory_gib=cost.memory_bytes / GIB,
            quota={name: amount / MILLI for name, amount in cost.quota},
            node=None if node is None else self._workshop.dispatcher.topology.nodes[node].name,
            service=cost.service,
            devices=() if self.gpu is None else self.gpu.devices,
            max_units=-(-most // MILLI),
        )

    @property
    def service(self) -> Service | None:
        """The service that it uses, if any."""
        return None if self.gpu is None or self.gpu.seat.instance is None else self.gpu.service

    def quota(self, name: str) -> QuotaHandle | None:
        """Its hold on a quota, or None."""
        declared = next((held for held, _ in self._invocable.spec.cost.quota if held == name), None)
        return None if declared is None else self._workshop.quota_handle(self.running, declared)

    @property
    def quotas(self) -> tuple[tuple[str, int], ...]:
        """Pairs of a quota's name and what it takes of it."""
        return self._invocable.spec.cost.quota
