"""Drive the scheduler on an event loop: one `decide` per turn of the loop, one timer for all deadlines."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Protocol

from arl_tangram.model.events import Event
from arl_tangram.model.lifecycle import PendingAction, RunningAction
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.policies.own import Own
from arl_tangram.scheduling.policy import Group, Plan, Policy

_MOST_PLANNING_S = 1.0
_EARLY_S = 0.001
_logger = logging.getLogger(__name__)


def watched(policy: Policy) -> Policy:
    """Return a policy that fails if it holds up the event loop; the library's own do not, and are not timed."""
    ours = type(policy).__module__.startswith("arl_tangram.scheduling") and not isinstance(policy, Own)
    return policy if ours else Timed(policy)


@dataclass(frozen=True, slots=True)
class Timed:
    """A policy that fails if it holds up the event loop: nothing else runs while it plans.

    Attributes:
        policy: what plans.
        most_s: seconds that one plan may take.
    """

    policy: Policy
    most_s: float = _MOST_PLANNING_S

    @property
    def name(self) -> str:
        """Its name."""
        return self.policy.name

    @property
    def reserved_cores(self) -> int:
        """What it reserves."""
        return self.policy.reserved_cores

    def planner(self) -> Plan:
        """Return its planner, timed."""
        plan = self.policy.planner()

        def timed(group: Group) -> Sequence[int]:
            started_s = time.perf_counter()
            planned = plan(group)
            took_s = time.perf_counter() - started_s
            if took_s > self.most_s:
                raise TimeoutError(f"planned for {took_s:.3f} s; {self.most_s:g} s are the most")
            return planned

        return timed


class Waiter(Protocol):
    """Whoever waits for units; told once, synchronously, in the turn of the decision."""

    def granted(self, running: RunningAction | None) -> None:
        """Units are promised: to an action, or (None) to a trajectory."""
        ...

    def expired(self) -> None:
        """The `queue_timeout` has passed; nothing was held."""
        ...

    def failed(self, error: Exception) -> None:
        """The scheduler itself failed, or an `InfeasibleError`: a budget is spent; nothing was held."""
        ...

    def shut_down(self) -> None:
        """The runtime closes: withdraw."""
        ...


class Dispatcher:
    """Feeds events to the core and carries its decisions to those who wait.

    Args:
        core: the scheduler.
        on_events: is given the events of the core, in order, if the core records them.
    """

    def __init__(self, core: SchedulerCore, on_events: Callable[[Sequence[Event]], None]) -> None:
        self.core = core
        self._on_events = on_events
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[int, Waiter] = {}
        self._scheduled = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._context = Context()  # not that of whoever called last, which a timer would keep alive
        self._reached_s = self._loop.time()
        self._next_id = 0

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
        self.core.close(trajectory, self._loop.time())
        self._wake()

    def finish(self, action_id: int, now_s: float, duration_s: float | None) -> None:
        """Return a running call's units."""
        self.core.finish(action_id, now_s, duration_s)
        self._wake()

    def settle(self, action_id: int, amounts: Iterable[tuple[int, int]]) -> None:
        """Count other units, by dimension, for a running call than it was granted."""
        now_s = max(self._loop.time(), self._reached_s)
        for dimension, units in amounts:
            self.core.settle(action_id, dimension, units, now_s)
        self._wake()

    def pause(self, dimension: int, for_s: float) -> None:
        """Grant nothing of a dimension for some seconds."""
        self.core.pause(dimension, self._loop.time() + for_s)
        self._wake()

    def waiters(self) -> list[Waiter]:
        """Return all who wait."""
        return list(self._waiters.values())

    def stop(self) -> None:
        """Stop deciding; what waits must have been withdrawn."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._tick, context=self._context)

    def _tick(self) -> None:
        self._scheduled = False
        if self._stopped:
            return
        try:
            decisions = self.core.decide(max(self._loop.time(), self._reached_s))
        except Exception as error:
            self._fail_all(error)
            raise
        if decisions.refused is not None:
            _logger.error(
                "the policy %s was refused: %s; from now on, whoever fits starts in order, with its least units",
                self.core.policy.name,
                decisions.refused,
            )
        for action_id in decisions.expired:
            self._waiters.pop(action_id).expired()
        for action_id, refusal in decisions.exhausted:
            self._waiters.pop(action_id).failed(refusal)
        for trajectory in decisions.opened:
            self._waiters.pop(trajectory).granted(None)
        for running in decisions.started:
            self._waiters.pop(running.pending.id).granted(running)
        if events := self.core.drain_events():
            self._on_events(events)
        if decisions.more:
            self._wake()
        self._arm()

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
        if at_s - self._loop.time() > _EARLY_S:
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
