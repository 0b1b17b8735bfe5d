"""One runtime beside an independent account of it: what was called, what runs, what each holds, and what must be free.

The account knows nothing of queues, ledgers or policies. Bodies report when they begin and end, callers report their
answers, and the rest is sums.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any

from arl_tangram import (
    GroupCancelledError,
    InfeasibleError,
    NoTrajectoryError,
    RuntimeClosedError,
    ShutdownError,
    Statistics,
    Tangram,
    policies,
)
from arl_tangram.model.quantities import GIB
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies import Policy
from arl_tangram.testing import assert_idle
from property.runtime_calls import KEYS, LIMITS, Call, Limit, Options, Script, action_of, quotas, spawn
from property.stepped_loop import SteppedLoop
from unit.runtime.pools import CountingManager, CountingPool, FakeSandbox

POLICIES: dict[str, Policy] = {
    "elastic": policies.elastic(),
    "paper": policies.paper(best_prefix=True),
    "strict": policies.paper(),
    "fixed1": policies.fixed(1),
    "fixed2": policies.fixed(2),
    "reserved1": policies.reserved(1),
}


MOST_JUMPS = 10_000
"""Timers in a row after which we say that a runtime does not come to rest."""


@dataclass(frozen=True)
class Setup:
    """How a runtime is made."""

    cores: int = 4
    memory_gib: float = 8
    threads: int = 2
    policy: str = "elastic"
    order: Order = "fcfs"
    grace_s: float = 1.0
    clean_s: float = 0.0
    create_s: float = 0.0
    close_s: float = 0.0


class WatchedPool(CountingPool):
    """A counting pool that says what the sandboxes hold that it creates right now."""

    creating: list[int]

    def manager(self) -> WatchedManager:
        self.creating = []
        self.made = WatchedManager(self)
        return self.made


class WatchedManager(CountingManager):
    """Its manager."""

    pool: WatchedPool

    async def create_sandbox(self, *, image: str | None, memory_bytes: int) -> FakeSandbox:
        self.pool.creating.append(memory_bytes)
        try:
            return await super().create_sandbox(image=image, memory_bytes=memory_bytes)
        finally:
            self.pool.creating.remove(memory_bytes)


@dataclass(eq=False)
class Rollout:
    """A trajectory, from the test's side.

    Attributes:
        state: "entering", "open", "leaving" or "gone".
        turns: those of its calls that want the turn in its sandbox and have not ended, in order.
        calls: those that were made in it and may still hold something.
    """

    world: World
    number: int
    memory_gib: float
    group: str | None
    joined_at_s: float
    task: asyncio.Task[None] = field(init=False)
    state: str = "entering"
    context: Context | None = None
    leave: asyncio.Future[None] | None = None
    cancelled: bool = False
    group_cancelled: bool = False
    turns: deque[Call] = field(default_factory=deque)
    calls: dict[int, Call] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether actions can be called in it."""
        return self.state == "open" and not self.group_cancelled

    @property
    def is_given_up(self) -> bool:
        """Whether it was told to end."""
        return self.cancelled or self.group_cancelled

    async def run(self) -> None:
        """Open it, and close it when that is wanted."""
        async with self.world.tg.trajectory(memory_gib=self.memory_gib, group=self.group):
            self.state, self.context = "open", copy_context()
            self.leave = asyncio.get_running_loop().create_future()
            await self.leave


class World:
    """A runtime and the account of it.

    Attributes:
        loop: where it lives.
        calls: all that have not both been answered and given back what they held.
        submitted: how many calls were ever made.
    """

    def __init__(self, loop: SteppedLoop, setup: Setup) -> None:
        self.loop = loop
        self.setup = setup
        self.grace_s = setup.grace_s
        self.clean_s = setup.clean_s
        self.pool = WatchedPool(
            setup.cores, setup.memory_gib, create_s=setup.create_s, close_s=setup.close_s, clean_s=setup.clean_s
        )
        self.tg = Tangram(
            self.pool,
            *quotas(),
            policy=POLICIES[setup.policy],
            order=setup.order,
            kill_grace_s=setup.grace_s,
            max_threads=setup.threads,
        )
        self.reserved = 1 if setup.policy == "reserved1" else 0
        self.state = "new"
        self.calls: dict[int, Call] = {}
        self.rollouts: dict[int, Rollout] = {}
        self.submitted = 0
        self.faults: list[BaseException] = []
        self._numbers = 0
        self._fifo: defaultdict[Any, deque[Call]] = defaultdict(deque)
        self._limits = {limit.dimension.format(key=key): limit for limit, key in _limits()}
        self._capacity = {
            "cpu": float(setup.cores), "memory": float(setup.memory_gib), "threads": float(setup.threads),
            **{name: limit.most for name, limit in self._limits.items()},
        }  # fmt: skip
        self._windows: defaultdict[str, list[tuple[Call, list[tuple[float, float]]]]] = defaultdict(list)
        self._maybe: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self._paused_until: dict[str, float] = {}
        self._closing_at_s = math.inf
        self.is_halted = False
        self._draining: list[asyncio.Task[None]] = []
        self._cancelling: list[asyncio.Task[int]] = []

    @property
    def now_s(self) -> float:
        """The time."""
        return self.loop.time()

    @property
    def is_open(self) -> bool:
        """Whether it takes calls."""
        return self.state == "open"

    # What the test does.

    def pause(self) -> None:
        """Start nothing new."""
        with self._on_loop():
            self.tg.pause()
        self.is_halted = True

    def resume(self) -> None:
        """Start what waits again."""
        with self._on_loop():
            self.tg.resume()
        self.is_halted = False

    def drain_running(self) -> None:
        """Start nothing new, and note when nothing runs any more."""
        task = spawn(self.loop, self.tg.drain(), Context())
        self._draining.append(task)
        self.loop.run_for()
        self.is_halted = True

    def cancel_group(self, group: str) -> None:
        """End all that the trajectories of a group do."""
        self._cancelling.append(spawn(self.loop, self.tg.cancel_group(group), Context()))
        for rollout in self.rollouts.values():
            if rollout.group == group and rollout.state != "gone":
                rollout.group_cancelled = True
                for call in rollout.calls.values():
                    call.interrupt(GroupCancelledError)

    @contextmanager
    def _on_loop(self) -> Iterator[None]:
        """Do something as if it were a callback of the loop."""
        asyncio._set_running_loop(self.loop)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)

    def open(self) -> None:
        """Open the runtime."""
        task = spawn(self.loop, self.tg.__aenter__(), Context())
        self.loop.run_for()
        task.result()
        self.state = "open"

    def call(self, kind: int, options: Options, script: Script, rollout: Rollout | None) -> Call:
        """Make a call; it is submitted when the loop runs."""
        call = self.note(kind, options, script, rollout, None)
        context = Context() if rollout is None or rollout.context is None else rollout.context
        call.task = spawn(self.loop, self.tg.run(action_of(kind, options), call), context)
        call.task.add_done_callback(lambda task: self._task_done(call, task))
        return call

    def note(self, kind: int, options: Options, script: Script, rollout: Rollout | None, parent: Call | None) -> Call:
        """Note that a call is made."""
        self._numbers += 1
        call = Call(self, self._numbers, kind, options, script, rollout, self.now_s, self.now_s, parent)
        self.calls[call.number] = call
        self.submitted += 1
        if rollout is not None:
            rollout.calls[call.number] = call
            if call.takes_turn and parent is None:
                rollout.turns.append(call)
        elif self.setup.order == "fcfs" and parent is None:
            self._fifo[self._alike(call)].append(call)
        return call

    def cancel(self, call: Call) -> None:
        """Cancel the caller of a call."""
        if call.task.cancel():
            call.interrupt(asyncio.CancelledError)
            call.cancelled_at_s = self.now_s

    def enter(self, memory_gib: float, group: str | None) -> None:
        """Open a trajectory."""
        self._numbers += 1
        rollout = Rollout(self, self._numbers, memory_gib, group, self.now_s)
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

    # What is reported.

    def begun(self, call: Call, keys: dict[str, str]) -> None:
        """The body of a call has begun; `keys` are the suffixes of the keys that it has."""
        assert self.state in {"open", "closing"}
        self._check_order(call)
        at_s = call.began_at_s
        assert at_s is not None
        call.holds = self._needs(call, keys, call.cores)
        for name in [n for n in call.holds if self._comes_back_by_time(n)]:
            charges = call.charges[name] = [(at_s + (self._window_s(name)), call.holds.pop(name))]
            self._windows[name].append((call, charges))
        if call.takes_turn:
            assert call.rollout is not None
            self._check_turn(call, call.rollout)
        assert not self.is_infeasible(call), f"{call} can never fit"
        if call.options.queue_timeout is not None:
            assert at_s <= call.submitted_at_s + call.options.queue_timeout, f"{call} began after its queue_timeout"

    def _check_turn(self, call: Call, rollout: Rollout) -> None:
        """See that nobody else has the turn, and that nobody waits for it that came before."""
        for other in rollout.calls.values():
            if other is not call and other.takes_turn and other.began_at_s is not None:
                assert other.body_ended_at_s is not None or other.waits_for, f"{call} took the turn of {other}"
        if call.parent is None:
            for other in rollout.turns:
                if other is call:
                    break
                assert not self._may_start(other), f"{call} began before {other}"

    def ended(self, call: Call) -> None:
        """The body of a call has ended."""
        self._pass_turn(call)

    def retry_after(self, call: Call, name: str, for_s: float) -> None:
        """A body has said that its quota shall pause."""
        for dimension in [d for d in [*call.holds, *call.charges] if d.startswith(f"quota:{name}")]:
            until_s = self.now_s + for_s
            self._paused_until[dimension] = max(until_s, self._paused_until.get(dimension, 0.0))

    def settled(self, call: Call, name: str, calls: float, tokens: float) -> None:
        """A body has said what it used."""
        for dimension, charges in call.charges.items():
            if not dimension.startswith(f"quota:{name}"):
                continue
            limit = self._limits[dimension]
            more = (tokens if limit.counts == "tokens" else calls) - sum(units for _, units in charges)
            if more > 0:
                charges.append((self.now_s + self._window_s(dimension), more))
            while more < 0:
                at_s, units = charges.pop()
                less = min(units, -more)
                more += less
                if less < units:
                    charges.append((at_s, units - less))

    def _task_done(self, call: Call, task: asyncio.Task[Any]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self.answered(call, None if error is not None else task.result(), error)

    def answered(self, call: Call, value: Any, error: BaseException | None) -> None:
        """A caller has its answer."""
        try:
            call.check_answer(self.now_s, value, error)
        except BaseException as fault:  # noqa: BLE001 - raised by the next check, and not into the loop
            self.faults.append(fault)
        call.answered_at_s = self.now_s
        if call.began_at_s is None:
            self._pass_turn(call)
            if call.interrupts:
                for dimension in [d for needs in self._places(call) for d in needs if self._comes_back_by_time(d)]:
                    units = max(needs.get(dimension, 0.0) for needs in self._places(call))
                    self._maybe[dimension].append((self.now_s + self._window_s(dimension), units))

    def _pass_turn(self, call: Call) -> None:
        """A call wants its turn no longer: the next one joins the queue now."""
        if call.rollout is None or not call.takes_turn or call.parent is not None:
            return
        turns = call.rollout.turns
        if turns[0] is not call:
            turns.remove(call)
            return
        turns.popleft()
        if turns:
            turns[0].joined_at_s = self.now_s

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
        if rollout.memory_gib > self.setup.memory_gib or self.reserved > self.setup.cores:
            allowed += (InfeasibleError,)
        if error is not None and not isinstance(error, allowed):
            self.faults.append(error)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self.state = "closed"
        for waiting in [*self._draining, *self._cancelling]:
            if waiting.done() and not waiting.cancelled() and not isinstance(waiting.exception(), ShutdownError | None):
                self.faults.append(waiting.exception() or AssertionError())
        if not task.cancelled() and (error := task.exception()) is not None:
            self.faults.append(error)

    # What a call needs and may expect.

    def _needs(self, call: Call, keys: dict[str, str], cores: float) -> dict[str, float]:
        """Return what a call takes, by dimension, with these keys and cores."""
        cost, needs = call.cost, dict[str, float]()
        if cores and not (call.rollout is not None and self.reserved):
            needs["cpu"] = cores
        if cost.memory_gib and not (call.rollout is not None and call.rollout.memory_gib):
            needs["memory"] = cost.memory_gib
        if cost.thread:
            needs["threads"] = 1.0
        for name, (calls, tokens) in cost.quota.items():
            for limit in LIMITS[name]:
                needs[limit.dimension.format(key=keys.get(name, ""))] = tokens if limit.counts == "tokens" else calls
        return needs

    def _places(self, call: Call) -> list[dict[str, float]]:
        """Return what it needs to start, in each of the ways in which it can."""
        if not call.places:
            cores = self._asked_cores(call)
            keys = [{"keys": f"#{n}"} for n in range(1, len(KEYS) + 1)] if "keys" in call.cost.quota else [{}]
            call.places = [self._needs(call, chosen, cores) for chosen in keys]
        return call.places

    def _asked_cores(self, call: Call) -> float:
        """Return how many cores the policy gives a call that is alone."""
        options = [units for units in call.cost.options if units <= self.setup.cores]
        if not options:
            return min(call.cost.options, default=0.0)
        dop = {"fixed1": 1, "fixed2": 2, "reserved1": 1}.get(self.setup.policy, 0)
        return max((units for units in options if units <= dop), default=options[0])

    def is_infeasible(self, call: Call) -> bool:
        """Whether a call can never run here."""
        needs = self._needs(call, {"keys": "#1"}, min(call.cost.options, default=0.0))
        if any(units > self._capacity[dimension] for dimension, units in needs.items()):
            return True
        return call.rollout is not None and 0 < call.rollout.memory_gib < call.cost.memory_gib

    def is_exhausted(self, call: Call) -> bool:
        """Whether too little is left for good of a total that a call needs."""
        for dimension, units in self._needs(call, {"keys": "#1"}, 0.0).items():
            limit = self._limits.get(dimension)
            if limit is not None and limit.window_s == math.inf:
                running = [c.charges.get(dimension, []) for c in self.calls.values() if c.body_ended_at_s is None]
                spent = self._used_of_limit(dimension) + self._maybe_used(dimension)
                spent -= sum(units for charges in running for _, units in charges)
                if units > limit.most - spent:
                    return True
        return False

    # Laws.

    def check(self, *, fully: bool = True) -> None:
        """See that all that must hold does; `fully`, which takes longer the more calls there are."""
        if self.faults:
            raise self.faults[0]
        if not fully:
            return
        self._forget()
        statistics = self.tg.statistics()
        for name, dimension in statistics.dimensions.items():
            assert dimension.free + dimension.used == dimension.capacity, name
            assert dimension.free >= 0 or self._comes_back_by_time(name), name
        if self.loop.is_quiet and self.state == "open":
            self._check_account(statistics)
            if not self.is_halted:
                self._check_nobody_is_lost(statistics)
            for task in self._draining:
                assert task.done() or statistics.running, "drain() does not return"
            for task in self._cancelling:
                assert task.done() or statistics.running, "cancel_group() does not return"
        if self.state == "closing":
            setup = self.setup
            most_s = 2 * setup.grace_s + 6 + 2 * setup.clean_s + setup.create_s + setup.close_s + 1
            assert self.now_s <= self._closing_at_s + most_s, "the runtime does not close"

    def _check_account(self, statistics: Statistics) -> None:
        waiting = sum(call.waits and call.parent is None for call in self.calls.values())
        waiting += sum(r.state == "entering" and not r.is_given_up for r in self.rollouts.values())
        waiting -= len(self.pool.creating)
        children = sum(call.waits and call.parent is not None for call in self.calls.values())  # or have just ended
        assert waiting <= statistics.waiting <= waiting + children, self._told(statistics)
        held = [call for call in self.calls.values() if call.began_at_s is not None]
        sure = [call for call in held if not self._may_be_released(call)]
        most_running = [call for call in held if not self._is_released(call)]
        assert len(sure) <= statistics.running <= len(most_running), self._told(statistics)
        if not self.clean_s:
            ended = sum(call.ended for call in sure)
            children = sum(not call.ended and call.parent is not None for call in sure)
            assert ended <= len(statistics.lingering) <= ended + children, self._told(statistics)
        for name in self._capacity:
            used = statistics.dimensions[name].used
            if self._comes_back_by_time(name):
                least = self._used_of_limit(name)
                assert least <= used <= least + self._maybe_used(name), f"{name}: {used} in use, not {least}"
                continue
            least = sum(self._holds(call, name) for call in sure) + self._held_by_rollouts(name, sure=True)
            unreleased = [call for call in held if not self._is_released(call)]
            most = sum(self._holds(call, name) for call in unreleased) + self._held_by_rollouts(name, sure=False)
            assert least <= used <= most, f"{name}: {used} in use, and from {least} to {most} are held"

    @staticmethod
    def _holds(call: Call, name: str) -> float:
        return 0.0 if name == "cpu" and call.lends_cores else call.holds.get(name, 0.0)

    def _told(self, statistics: Statistics) -> str:
        """Return what there is, for whoever reads of a failure."""
        counts = f"{statistics.waiting} wait, {statistics.running} run, {statistics.lingering} linger"
        calls = [
            f"{c!r} began {c.began_at_s}, ended {c.body_ended_at_s}, answered {c.answered_at_s}"
            for c in self.calls.values()
        ]
        rollouts = [f"trajectory {r.number} {r.state} {r.memory_gib}" for r in self.rollouts.values()]
        return "\n".join([f"at {self.now_s}: {counts}", *calls, *rollouts])

    def _check_nobody_is_lost(self, statistics: Statistics) -> None:
        """Nobody waits that fits and has nobody before it in any of the dimensions that it needs."""
        for call in self.calls.values():
            if call.waits and call.parent is None and call.options.queue_timeout is not None:
                assert self.now_s < call.submitted_at_s + call.options.queue_timeout, f"{call} waits for too long"
        seen: set[str] = set()
        for call in self.calls.values():  # those that have lent want all back before others get anything
            if call.waits_for:
                seen.add("cpu")
            if call.waits and (call.parent is not None or self._turn_is_lent(call)):
                for needs in self._places(call):
                    seen.update(needs)
        free = {name: dimension.free for name, dimension in statistics.dimensions.items()}
        free.update((name, -1.0) for name, until_s in self._paused_until.items() if until_s > self.now_s)
        for _, places, call in self._in_line():
            free_of_others = all(seen.isdisjoint(needs) for needs in places)
            for needs in places:
                seen.update(needs)
            fits = any(all(units <= free[name] for name, units in needs.items()) for needs in places)
            if free_of_others and fits and not (call is not None and self._may_hold_back(call)):
                raise AssertionError(f"{call or 'a trajectory'} fits and does not start: {places}")

    def _in_line(self) -> list[tuple[tuple[int, float, int], list[dict[str, float]], Call | None]]:
        """Return who waits for units, in order: its place, what it needs, and the call."""
        line: list[tuple[tuple[int, float, int], list[dict[str, float]], Call | None]] = []
        for call in self.calls.values():
            if call.parent is not None or self._turn_is_lent(call):
                continue
            if call.waits and (not call.takes_turn or self._has_turn(call)):
                line.append(((call.options.priority, call.joined_at_s, call.number), self._places(call), call))
        creating = list(self.pool.creating)
        for rollout in self.rollouts.values():
            if rollout.state == "entering" and not rollout.is_given_up:
                if (held := round(rollout.memory_gib * GIB)) in creating:
                    creating.remove(held)
                    continue
                needs = {"memory": rollout.memory_gib} if rollout.memory_gib else {}
                if self.reserved:
                    needs["cpu"] = float(self.reserved)
                line.append(((0, rollout.joined_at_s, rollout.number), [needs], None))
        if self.setup.order == "fcfs" and not self.clean_s:
            return sorted(line, key=lambda entry: entry[0])
        # Whoever shares a dimension with another one may stand behind it.
        users: defaultdict[str, int] = defaultdict(int)
        for _, places, _ in line:
            for dimension in {d for needs in places for d in needs}:
                users[dimension] += 1
        return [entry for entry in line if all(users[d] == 1 for needs in entry[1] for d in needs)]

    @staticmethod
    def _turn_is_lent(call: Call) -> bool:
        """Whether it is hard to say whose turn it is."""
        return call.takes_turn and call.rollout is not None and any(c.calls_others for c in call.rollout.calls.values())

    def _has_turn(self, call: Call) -> bool:
        assert call.rollout is not None
        others = [c for c in call.rollout.calls.values() if c.takes_turn and c.began_at_s is not None]
        return call.rollout.turns[0] is call and all(map(self._is_released, others))

    def _may_hold_back(self, call: Call) -> bool:
        """Whether the policy may let a call wait for more than its least."""
        if self.setup.policy != "elastic" or len(call.cost.options) < 2:
            return False
        return any("cpu" in other.holds for other in self.calls.values())

    def _alike(self, call: Call) -> tuple[Any, ...]:
        """Return what is the same for all calls that must start in the order in which they were made."""
        if self.setup.policy == "fixed1":
            (needs, *_) = self._places(call)
            return (*sorted(needs.items()), call.options.priority)
        return call.kind, call.options.priority

    def _check_order(self, call: Call) -> None:
        """Nobody of the same kind and priority that came before it still waits."""
        if call.rollout is None and call.parent is None and self.setup.order == "fcfs":
            line = self._fifo[self._alike(call)]
            while line and not self._may_start(line[0]):
                if line.popleft() is call:
                    return
            assert not line, f"{call} overtook {line[0]}"

    def _may_start(self, call: Call) -> bool:
        """Whether a call waits and has not been told to end, which its caller may not know yet."""
        queue_timeout = call.options.queue_timeout
        over = queue_timeout is not None and self.now_s >= call.submitted_at_s + queue_timeout
        return call.waits and not (over or call.interrupts or self.is_infeasible(call) or self.is_exhausted(call))

    def _is_released(self, call: Call) -> bool:
        """Whether a call surely holds nothing any more, and does not wait either."""
        if call.began_at_s is None:
            return call.ended
        late_s = 2 * self.clean_s if call.cost.options else 0.0
        return call.body_ended_at_s is not None and self.now_s >= call.body_ended_at_s + late_s

    def _may_be_released(self, call: Call) -> bool:
        """Whether a call may hold nothing any more."""
        if call.began_at_s is None:
            return call.ended
        if call.body_ended_at_s is None:
            return False
        lingered = call.answered_at_s is not None and call.answered_at_s <= call.body_ended_at_s  # cleaned up before
        early_s = self.clean_s if call.cost.options and not lingered else 0.0
        return self.now_s >= call.body_ended_at_s + early_s

    def _held_by_rollouts(self, name: str, *, sure: bool) -> float:
        amounts: list[float] = []
        released = self._may_be_released if sure else self._is_released
        for rollout in self.rollouts.values():
            begun = [call for call in rollout.calls.values() if call.began_at_s is not None]
            held = rollout.state in {"open", "leaving"} or not all(map(released, begun))
            if held or (rollout.state == "entering" and rollout.is_given_up):  # it is being removed
                amounts.append({"memory": rollout.memory_gib, "cpu": float(self.reserved)}.get(name, 0.0))
        if name == "memory":
            amounts.append(sum(self.pool.creating) / GIB)
        if name == "cpu":
            amounts.append(self.reserved * len(self.pool.creating))
        return sum(amounts)

    def _used_of_limit(self, name: str) -> float:
        now_s = self.now_s
        return sum(units for _, charges in self._windows[name] for at_s, units in charges if at_s > now_s)

    def _maybe_used(self, name: str) -> float:
        """Return what calls may have taken that were told to end between their grant and their body's first step."""
        return sum(units for at_s, units in self._maybe[name] if at_s > self.now_s)

    def _comes_back_by_time(self, name: str) -> bool:
        """Whether units are used for a window from their grant on, or for ever, and can be overdrawn by who settles."""
        return name in self._limits and self._limits[name].window_s is not None

    def _window_s(self, name: str) -> float:
        window_s = self._limits[name].window_s
        assert window_s is not None
        return window_s

    def _forget(self) -> None:
        """Drop what is over from the account."""
        if not self.loop.is_quiet:
            return
        for name, parts in self._windows.items():
            self._windows[name] = [
                (call, charges)
                for call, charges in parts
                if call.body_ended_at_s is None or any(at_s > self.now_s for at_s, _ in charges)
            ]
        for name, maybe in self._maybe.items():
            self._maybe[name] = [(at_s, units) for at_s, units in maybe if at_s > self.now_s]
        for call in [c for c in self.calls.values() if c.ended and self._is_released(c)]:
            del self.calls[call.number]
        for rollout in list(self.rollouts.values()):
            for call in [c for c in rollout.calls.values() if c.ended and self._is_released(c)]:
                del rollout.calls[call.number]
            if rollout.state == "gone" and not rollout.calls:
                del self.rollouts[rollout.number]

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
        assert not [*self.calls, *self.rollouts], f"they wait for ever: {self._told(self.tg.statistics())}"
        if self.is_open:
            assert_idle(self.tg)
        for name in ("cpu", "memory", "threads"):
            assert self.tg.statistics().dimensions[name].used == 0, name
        assert self.pool.is_whole


def _limits() -> Iterator[tuple[Limit, str]]:
    for name, limits in LIMITS.items():
        for limit in limits:
            for key in ("#1", "#2") if name == "keys" else ("",):
                yield limit, key
