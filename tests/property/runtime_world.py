"""One runtime beside the account of it: what the test does to it, and what it reports."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

from arl_tangram import (
    GroupCancelledError,
    InfeasibleError,
    NoTrajectoryError,
    RuntimeClosedError,
    ShutdownError,
    UsageError,
)
from arl_tangram.testing import assert_idle
from property.runtime_account import Account, alike
from property.runtime_bodies import action_of, block_for
from property.runtime_calls import Call
from property.runtime_kinds import Options, OwnError, Script
from property.runtime_laws import (
    check_account,
    check_breaker,
    check_nobody_is_lost,
    check_nobody_waits_in_vain,
    check_sums,
    told,
)
from property.runtime_setup import Chance, Rollout, Setup, calling_var
from property.stepped_loop import SteppedLoop

MOST_JUMPS = 10_000
"""Timers in a row after which we say that a runtime does not come to rest."""


class World(Account):
    """A runtime and the account of it."""

    def __init__(self, loop: SteppedLoop, setup: Setup) -> None:
        super().__init__(loop, setup)
        self.pool.on_create = self._admitted
        self.tg = setup.runtime(self.pool)
        self._numbers = 0
        self._fifo: defaultdict[Any, deque[Call]] = defaultdict(deque)
        self._closing_at_s = math.inf
        self._draining: list[asyncio.Task[None]] = []
        self._cancelling: list[asyncio.Task[None]] = []
        self._resumed = 0

    # What the test does.

    def open(self) -> None:
        """Open the runtime."""
        task = spawn(self.loop, self.tg.__aenter__(), Context())
        self.loop.run_for()
        task.result()
        self.tg._workshop.retrying._chance = Chance(self._tried_again)
        self.state = "open"

    def pause(self) -> None:
        """Start nothing new."""
        with self._on_loop():
            self.tg.pause()
        self._halt()

    def resume(self) -> None:
        """Start what waits again."""
        with self._on_loop():
            self.tg.resume()
        self.halted_at_s = math.inf
        self._resumed += 1

    def drain_running(self) -> None:
        """Start nothing new, and note when nothing runs any more."""
        self._draining.append(spawn(self.loop, self._drain(), Context()))
        self.loop.run_for()

    def cancel_group(self, group: str) -> None:
        """End all that the trajectories of a group do."""
        self._cancelling.append(spawn(self.loop, self._cancel_group(group, certain=self.loop.is_quiet), Context()))
        for rollout in self.rollouts.values():
            if rollout.group == group and rollout.state != "gone":
                rollout.group_cancelled = True
                for call in rollout.calls.values():
                    call.interrupt(GroupCancelledError)

    def set_capacity(self, name: str, capacity: float) -> None:
        """Let there be more or less of something."""
        with self._on_loop():
            self.tg.set_capacity(name, capacity)
        self.capacity[name] = capacity
        if name == "cpu":
            self.pool.cores = int(capacity)  # which says what must be there at the end
        self.resized_at_s = self.now_s
        for call in self.calls.values():
            call.infeasible = None
            if call.waits:
                call.places.clear()
                call.unsure = call.unsure or call.submitted_at_s == self.now_s
                if self.is_infeasible(call):
                    call.infeasible_at_s.append(self.now_s)
        for rollout in self.rollouts.values():
            rollout.was_infeasible = rollout.was_infeasible or self.is_too_large(rollout)

    def call(self, kind: int, options: Options, script: Script, rollout: Rollout | None, *, on_thread: bool) -> Call:
        """Make a call, by a task or on a thread that blocks for it; it is submitted when the loop runs."""
        call = self.note(kind, options, script, rollout, None, by_thread=on_thread)
        context = Context() if rollout is None or rollout.context is None else rollout.context.copy()
        if on_thread:
            self.loop.lockstep.start_thread(lambda: context.run(block_for, call))
        else:
            call.task = spawn(self.loop, self._ask(call), context)
            call.task.add_done_callback(lambda _: None if call.ended else self.answered(call, None, _CANCELLED))
        return call

    def note(
        self,
        kind: int,
        options: Options,
        script: Script,
        rollout: Rollout | None,
        parent: Call | None,
        *,
        by_thread: bool = False,
    ) -> Call:
        """Note that a call is made."""
        self._numbers += 1
        call = Call(self, self._numbers, kind, options, script, rollout, self.now_s, self.now_s, parent)
        call.most_cores = self.capacity["cpu"]
        call.by_thread = call.unsure = by_thread
        self.calls[call.number] = call
        self.submitted += 1
        if rollout is not None:
            rollout.calls[call.number] = call
            if call.is_in_line:
                rollout.turns.append(call)
        elif self.setup.order == "fcfs" and parent is None and not by_thread:
            self._fifo[alike(self, call)].append(call)
        return call

    def cancel(self, call: Call) -> None:
        """Cancel the caller of a call."""
        assert call.task is not None
        if call.task.cancel():
            call.interrupt(asyncio.CancelledError)
            call.cancelled_at_s = self.now_s

    def enter(self, memory_gib: float, group: str | None) -> None:
        """Open a trajectory."""
        self._numbers += 1
        rollout = Rollout(self, self._numbers, memory_gib, group, self.now_s)
        rollout.was_infeasible = self.is_too_large(rollout)
        rollout.task = spawn(self.loop, rollout.run(), Context())
        rollout.task.add_done_callback(lambda task: self._left(rollout, task))
        self.rollouts[rollout.number] = rollout

    def leave(self, rollout: Rollout, *, by_cancelling: bool) -> None:
        """Close a trajectory, or stop its being opened."""
        for call in rollout.calls.values():
            call.interrupt(NoTrajectoryError)
        if by_cancelling or rollout.leave is None:
            rollout.cancelled = True
            rollout.task.cancel()
        elif not rollout.leave.done():
            rollout.leave.set_result(None)
        if rollout.state == "open":
            rollout.state = "leaving"

    def close(self) -> None:
        """Begin to close the runtime."""
        self.state = "closing"
        self._closing_at_s = self.now_s
        self._task = spawn(self.loop, self.tg.aclose(), Context())
        self._task.add_done_callback(self._closed)
        for call in list(self.calls.values()):
            call.interrupt(ShutdownError)
        for rollout in self.rollouts.values():
            if rollout.state == "open":
                rollout.state = "leaving"

    def _halt(self) -> None:
        self.halted_at_s = min(self.halted_at_s, self.now_s)

    @contextmanager
    def _on_loop(self) -> Iterator[None]:
        """Do something as if it were a callback of the loop."""
        asyncio._set_running_loop(self.loop)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)

    async def _ask(self, call: Call) -> None:
        value: int | None = None
        error: BaseException | None = None
        calling_var.set(call)
        try:
            value = await self.tg.run(action_of(call.kind, call.options), call)
        except BaseException as raised:  # noqa: BLE001 - checked by the account
            error = raised
        self.answered(call, value, error)

    async def _drain(self) -> None:
        self._halt()
        resumed = self._resumed
        try:
            await self.tg.drain()
        except UsageError:
            assert self._resumed > resumed or not self.is_open, "drain() was given up without resume()"
        except ShutdownError:
            assert not self.is_open, "drain() was told of the end of an open runtime"
        else:
            running = self.tg.statistics().running
            assert self._resumed > resumed or not running, f"drain() has returned while {running} run"

    async def _cancel_group(self, group: str, *, certain: bool) -> None:
        """Cancel a group, and see that as many calls were ended as were under way."""
        calls = [c for r in self.rollouts.values() if r.group == group for c in r.calls.values() if not c.ended]
        sure = [c for c in calls if certain and c.parent is None and c.rollout is not None and self._goes_on(c)]
        try:
            ended = await self.tg.cancel_group(group)
        except (RuntimeClosedError, ShutdownError):
            assert not self.is_open, "cancel_group() was told of the end of an open runtime"
            return
        assert len(sure) <= ended <= len(calls), f"{ended} of {calls} were ended, not {sure}"

    @staticmethod
    def _goes_on(call: Call) -> bool:
        told = any(error is not GroupCancelledError for _, error in call.interrupts)
        return call.rollout is not None and call.rollout.state == "open" and not told

    # What is reported.

    def begun(self, call: Call, keys: dict[str, str]) -> None:
        """The body of a call has begun; `keys` are the suffixes of the keys that it has."""
        assert self.state in {"open", "closing"}
        at_s = call.began_at_s
        assert at_s is not None
        assert call.parent is not None or at_s <= self.halted_at_s, f"{call} began in the pause"
        self._check_order(call)
        check_breaker(self, call)
        call.holds = self.needs(call, keys, call.cores)
        for name in [n for n in call.holds if self.comes_back_by_time(n)]:
            charges = call.charges[name] = [(at_s + self.window_s(name), call.holds.pop(name))]
            self.windows[name].append((call, charges))
        if call.takes_turn:
            assert call.rollout is not None
            self._check_turn(call, call.rollout)
        assert self.resized_at_s == at_s or not self.is_infeasible(call), f"{call} can never fit"
        if call.options.queue_timeout is not None:
            assert at_s <= call.queued_at_s + call.options.queue_timeout, f"{call} began after its queue_timeout"

    def _check_order(self, call: Call) -> None:
        """Nobody of the same kind and priority that came before it still waits."""
        if call.rollout is not None or call.parent is not None or call.by_thread or self.setup.order != "fcfs":
            return
        for other in self.again.values():  # a call that is tried again has the place that it had
            before = other.number < call.number and other.queued_at_s < self.now_s and other.rollout is None
            if before and other.parent is None and self.may_start(other) and not other.unsure:
                assert alike(self, other) != alike(self, call), f"{call} overtook {other}, which is tried again"
        line = self._fifo[alike(self, call)]
        while line and (line[0].attempts or not self.may_start(line[0])):
            if line.popleft() is call:
                return
        assert not line or call.attempts > 1 or call.unsure, f"{call} overtook {line[0]}"

    def _check_turn(self, call: Call, rollout: Rollout) -> None:
        """See that nobody else has the turn, and that nobody waits for it that came before."""
        for other in rollout.calls.values():
            if other is not call and other.takes_turn and other.began_at_s is not None:
                assert other.body_ended_at_s is not None or other.waits_for, f"{call} took the turn of {other}"
        if call.is_in_line:
            for other in rollout.turns:
                if other is call:
                    break
                assert not self.may_start(other), f"{call} began before {other}"

    def ended(self, call: Call) -> None:
        """The body of a call has ended."""
        self.pass_turn(call)

    def answered(self, call: Call, value: Any, error: BaseException | None) -> None:
        """A caller has its answer."""
        try:
            call.check_answer(self.now_s, value, error)
        except BaseException as fault:  # noqa: BLE001 - raised by the next check, and not into the loop
            self.faults.append(fault)
        if call.began_at_s is not None:
            self.tell_fuse(call, error)
        call.answered_at_s = self.now_s
        if call.began_at_s is None:
            self.pass_turn(call)
            if call.interrupts:
                for dimension in [d for needs in self.places(call) for d in needs if self.comes_back_by_time(d)]:
                    units = max(needs.get(dimension, 0.0) for needs in self.places(call))
                    self.maybe[dimension].append((self.now_s + self.window_s(dimension), units))

    def _tried_again(self, call: Call, pause_s: float) -> None:
        """An attempt of a call has failed, and there will be another one."""
        with call.reporting():
            self.tell_fuse(call, OwnError())
            call.begin_again(pause_s)
            self.again[call.number] = call

    def _admitted(self) -> None:
        if self.now_s > self.halted_at_s:
            self.faults.append(AssertionError("a trajectory was admitted in the pause"))

    def _left(self, rollout: Rollout, task: asyncio.Task[None]) -> None:
        rollout.state = "gone"
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        allowed: tuple[type[BaseException], ...] = ()
        if rollout.cancelled:
            allowed += (asyncio.CancelledError,)
        if rollout.group_cancelled:
            allowed += (GroupCancelledError,)
        if not self.is_open:
            allowed += (ShutdownError, RuntimeClosedError)
        if rollout.was_infeasible:
            allowed += (InfeasibleError,)
        if error is not None and not isinstance(error, allowed):
            self.faults.append(error)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self.state = "closed"
        if not task.cancelled() and (error := task.exception()) is not None:
            self.faults.append(error)

    # Laws.

    def check(self, *, fully: bool = True) -> None:
        """See that all that must hold does; `fully`, which takes longer the more calls there are."""
        if self.faults:
            raise self.faults[0]
        if not fully:
            return
        self.forget()
        statistics = self.tg.statistics()
        check_sums(self, statistics)
        for task in [task for task in [*self._draining, *self._cancelling] if task.done()]:
            task.result()
        self._draining = [task for task in self._draining if not task.done()]
        self._cancelling = [task for task in self._cancelling if not task.done()]
        if self.loop.is_quiet and self.state == "open":
            check_account(self, statistics)
            check_nobody_waits_in_vain(self)
            if not self.is_halted:
                check_nobody_is_lost(self, statistics)
            waits = bool(self._draining or self._cancelling)
            assert statistics.running or not waits, "drain() or cancel_group() does not return"
        if self.state == "closing":
            setup = self.setup
            most_s = 2 * setup.grace_s + 6 + 2 * setup.clean_s + setup.create_s + setup.close_s + 1
            assert self.now_s <= self._closing_at_s + most_s, "the runtime does not close"

    def drain(self) -> None:
        """Let everything end by itself, with every trajectory closed; fail if anything waits for ever."""
        if self.is_open:
            self.resume()
        for jump in range(MOST_JUMPS):
            self.loop.run_for()
            self.check(fully=jump % 8 == 0 or self.loop.next_timer_s() is None)
            opened = [r for r in self.rollouts.values() if r.leave is not None and not r.leave.done()]
            for rollout in opened:
                self.leave(rollout, by_cancelling=False)
            if opened:
                continue
            at_s = self.loop.next_timer_s()
            if self.loop.is_quiet and (at_s is None or (self.is_open and not self.calls and not self.rollouts)):
                break
            if at_s is not None:
                self.loop.run_for(max(at_s - self.now_s, 0.25))
        self.loop.run_for(2 * self.clean_s)
        self.check()
        assert not [*self.calls, *self.rollouts], f"they wait for ever: {told(self, self.tg.statistics())}"
        if self.is_open:
            assert_idle(self.tg)
        for name in ("cpu", "memory", "threads"):
            assert self.tg.statistics().dimensions[name].used == 0, name
        assert self.pool.is_whole


_CANCELLED = asyncio.CancelledError()


def spawn(loop: SteppedLoop, coroutine: Any, context: Context) -> asyncio.Task[Any]:
    """Start a task in a copy of a context."""
    return loop.create_task(coroutine, context=context.copy())
