"""Drive the scheduler on an event loop: one `decide` per turn of the loop, one timer for all deadlines."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context

from arl_tangram.deciding import Waiter
from arl_tangram.errors import ShutdownError, UsageError
from arl_tangram.gpu_dispatch import GpuDispatch
from arl_tangram.model.events import Event
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.decisions import Decisions

_EARLY_S = 0.001
_logger = logging.getLogger(__name__)


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return what tells the time of an event loop; for most that is the monotonic clock, which is faster to ask."""
    ordinary = getattr(loop.time, "__func__", None) is asyncio.BaseEventLoop.time
    return time.monotonic if ordinary else loop.time


class Dispatcher:
    """Feeds events to the core and carries its decisions to those who wait.

    Attributes:
        time: tells the time of the loop.
        gpus: carries what concerns the services and devices of a pool of GPUs, if there is one.
        on_resized: is told of running calls that have other cores from now on, before what they had is granted.

    Args:
        core: the scheduler.
        on_events: is given the events of the core, in order, if the core records them.
    """

    on_resized: Callable[[RunningAction], None] | None = None

    def __init__(self, core: SchedulerCore, on_events: Callable[[Sequence[Event]], None]) -> None:
        self.core = core
        self._on_events = on_events
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[int, Waiter] = {}
        self._reclaiming: dict[int, Callable[[Exception | None], None]] = {}
        self._until_idle: list[asyncio.Future[None]] = []
        self._scheduled = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._context = Context()  # not that of whoever called last, which a timer would keep alive
        self.time = clock_of(self._loop)
        self._reached_s = self.time()
        self._next_id = 0
        self.gpus = GpuDispatch(core, self._loop, self.now_s, self._wake)

    @property
    def topology(self) -> Topology:
        """The dimensions, with the capacities that were set last."""
        return self.core.topology

    def check_seat(self, demand: Demand) -> None:
        """Check that a demand can be met by the devices that there are.

        Raises:
            InfeasibleError: it never can.
        """
        self.core.seating.check(demand)

    def new_id(self) -> int:
        """Return the id of the next action or trajectory; ids ascend."""
        self._next_id += 1
        return self._next_id

    def submit(self, action: PendingAction, waiter: Waiter) -> None:
        """Queue a call."""
        self.core.submit(action)
        self._waiters[action.id] = waiter
        self._wake()

    def open(self, request: PendingAction, waiter: Waiter, *, group: str | None) -> None:
        """Queue a trajectory."""
        self.core.open(request, group=group)
        self._waiters[request.id] = waiter
        self._wake()

    def withdraw(self, action_id: int) -> None:
        """Forget a waiting call or trajectory."""
        del self._waiters[action_id]
        self.core.withdraw(action_id)
        self._wake()

    def close(self, trajectory: int) -> None:
        """End an admitted trajectory."""
        self.core.close(trajectory, self.time())
        self._wake()

    def node_of(self, trajectory: int) -> int:
        """Return the number of the node where a trajectory was admitted; 0 where there is one."""
        return self.core.node_of(trajectory)

    def finish(self, action_id: int, now_s: float, duration_s: float | None) -> None:
        """Return a running call's units."""
        self.core.finish(action_id, now_s, duration_s)
        if self._reclaiming:
            self._reclaiming.pop(action_id, None)
        self._one_less()

    def send_back(self, action_id: int, waiter: Waiter) -> bool:
        """Let a running call wait again, whose service could not be restored; return whether it does."""
        if not self.core.send_back(action_id, self.now_s()):
            return False
        self._waiters[action_id] = waiter
        self._one_less()
        return True

    def _one_less(self) -> None:
        """A call does not run any more."""
        if self._until_idle and self.core.running == 0:
            self._end_until_idle(None)
        self._wake()

    def unused(self, action_id: int) -> None:
        """A running call ends before its body began: what it was granted of rates and budgets is free again."""
        self.core.unused(action_id, self.now_s())

    def lend(self, action_id: int, *, cores: bool) -> None:
        """A running call waits for calls that it made: its turn and, if `cores`, its cores are free for others."""
        self._reclaiming.pop(action_id, None)
        self.core.lend(action_id, self.time(), cores=cores)
        self._wake()

    def reclaim(self, action_id: int, regained: Callable[[Exception | None], None]) -> bool:
        """A call that has lent wants all back; return whether it has it at once.

        If not, `regained` is called in the turn in which it has, or with the error if the scheduler fails.
        """
        if self.core.reclaim(action_id, self.time()):
            return True
        self._reclaiming[action_id] = regained
        self._wake()
        return False

    def halt(self, halted: bool) -> None:
        """Start nothing new from now on, except what running calls call; or do again."""
        self.core.halt(halted, self.time())
        if not halted:
            self._end_until_idle(UsageError("resume() was called before nothing ran any more"))
        self._wake()

    def set_capacity(self, dimension: int, units: int) -> None:
        """Let a dimension have so many integer units."""
        self.core.set_capacity(dimension, units, self.time())
        self._wake()

    async def until_idle(self) -> None:
        """Wait until no call holds units.

        Raises:
            UsageError: calls may start again before that.
            ShutdownError: the runtime closes before that.
        """
        if self.core.running:
            idle = self._loop.create_future()
            self._until_idle.append(idle)
            await idle

    def _end_until_idle(self, error: Exception | None) -> None:
        for idle in self._until_idle:
            if idle.done():
                continue
            if error is None:
                idle.set_result(None)
            else:
                idle.set_exception(error)
        self._until_idle.clear()

    def settle(self, action_id: int, amounts: Iterable[tuple[int, int]]) -> None:
        """Count other units, by dimension, for a running call than it was granted."""
        now_s = self.now_s()
        for dimension, units in amounts:
            self.core.settle(action_id, dimension, units, now_s)
        self._wake()

    def pause(self, dimension: int, for_s: float) -> None:
        """Grant nothing of a dimension for some seconds."""
        self.pause_until(dimension, self.time() + for_s)

    def pause_until(self, dimension: int, until_s: float) -> None:
        """Grant nothing of a dimension before then."""
        self.core.pause(dimension, until_s)
        self._wake()

    def lift(self, dimension: int) -> None:
        """End the pause of a dimension, if there is one."""
        self.core.lift(dimension)
        self._wake()

    def used(self, dimension: int) -> int:
        """Return the integer units of a dimension in use."""
        return self.core.used(dimension)

    def now_s(self) -> float:
        """Return the time; it is never before the last decision."""
        return max(self.time(), self._reached_s)

    def waiters(self) -> list[Waiter]:
        """Return all who wait."""
        return list(self._waiters.values())

    @property
    def is_stopped(self) -> bool:
        """Whether it decides nothing any more, as the runtime closes or is closed."""
        return self._stopped

    def stop(self) -> None:
        """Stop deciding; what waits must have been withdrawn."""
        self._stopped = True
        self.tell()
        self._end_until_idle(ShutdownError("the runtime was closed before nothing ran any more"))
        self.gpus.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self, event: Event) -> None:
        """Take down what happened, in its order among the events of the core; it is told with them."""
        self.core.note(event)
        if self._stopped:
            self.tell()

    def tell(self) -> None:
        """Tell what has happened and was not told yet; each turn of the scheduler ends with that."""
        if events := self.core.drain_events():
            self._on_events(events)

    def _wake(self) -> None:
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._tick, context=self._context)

    def _tick(self) -> None:
        self._scheduled = False
        if self._stopped:
            return
        try:
            decisions = self.core.decide(max(self.time(), self._reached_s))
        except Exception as error:
            self._fail_all(error)
            raise
        if decisions.refused is not None or decisions.refused_share is not None:
            self._log_refusal(decisions)
        if self.on_resized is not None:
            for resized in decisions.resized:  # first: whoever expires may give its caller cores back at once
                self.on_resized(resized)
        for action_id in decisions.expired:
            self._waiters.pop(action_id).expired()
        for action_id, refusal in decisions.impossible:
            self._waiters.pop(action_id).failed(refusal)
        if decisions.evicted is not None:
            self.gpus.evict(decisions.evicted)
        for resumed in decisions.resumed:
            self._reclaiming.pop(resumed.pending.id)(None)
        for trajectory in decisions.opened:
            self._waiters.pop(trajectory).granted(None)
        for running in decisions.started:
            self._waiters.pop(running.pending.id).granted(running)
        self.tell()
        if decisions.more:
            self._wake()
        self.gpus.tell_clear()
        self._arm()

    def _log_refusal(self, decisions: Decisions) -> None:
        if decisions.refused is not None:
            _logger.error(
                "the policy %s was refused: %s; from now on, whoever fits starts in order, with its least units",
                self.core.policy.name,
                decisions.refused,
            )
        if decisions.refused_share is not None:
            _logger.error(
                "the policy of shared cores was refused: %s; from now on they are shared equally",
                decisions.refused_share,
            )

    def _arm(self) -> None:
        """Set the timer for the next moment at which something may change by time alone."""
        at_s = self.core.next_wakeup_s()
        if self._timer is not None:
            if self._timer.when() == at_s:
                return
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            self._timer = self._loop.call_at(at_s, self._wake_by_timer, at_s, context=self._context)

    def _wake_by_timer(self, at_s: float) -> None:
        self._timer = None
        if at_s - self.time() > _EARLY_S:
            self._arm()  # much too early: nothing may be granted before its time
            return
        # A loop may fire a timer early by the resolution of its clock; without this, a clock that
        # stands still in between (virtual time) would be looked at again and again.
        self._reached_s = at_s
        self._wake()

    def _fail_all(self, error: Exception) -> None:
        """Nobody waits for ever because the scheduler has a defect or a policy planned nonsense."""
        for action_id, waiter in list(self._waiters.items()):
            del self._waiters[action_id]
            try:
                self.core.withdraw(action_id)
            except Exception:
                _logger.exception("the scheduler cannot forget %d after it failed", action_id)
            waiter.failed(error)
        for action_id, regained in list(self._reclaiming.items()):
            del self._reclaiming[action_id]
            regained(error)
