"""What the calls of the model-based test ask for and do, and the ends that each of them may have.

All amounts and times are multiples of 1/8, so that sums of floats are exact.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import arl_tangram as tangram
from arl_tangram import Amdahl, Elastic, Quota, QuotaUse, current_allocation, current_quota
from property.stepped_loop import SteppedLoop

if TYPE_CHECKING:
    from property.runtime_world import Rollout, World

SLOW_S = 0.5
"""Seconds that a slow body takes to end after it was cancelled."""


class OwnError(Exception):
    """What a body raises."""


@dataclass(frozen=True)
class Limit:
    """One limit of a quota, and of each of its keys.

    Attributes:
        dimension: its name in the statistics, with `{key}` where the key goes.
        most: units.
        window_s: None for concurrency, infinite for a total.
        counts: "calls" or "tokens".
    """

    dimension: str
    most: float
    window_s: float | None
    counts: str = "calls"


LIMITS = {
    "windows": (
        Limit("quota:windows/calls/1s", 3, 1.0),
        Limit("quota:windows/calls/4s", 8, 4.0),
        Limit("quota:windows/concurrency", 2, None),
    ),
    "tokens": (Limit("quota:tokens/tokens", 100, 2.0, "tokens"), Limit("quota:tokens/calls/total", 400, math.inf)),
    "keys": (Limit("quota:keys{key}/calls", 4, 0.5), Limit("quota:keys{key}/concurrency", 2, None)),
    "total": (Limit("quota:total/calls/total", 30, math.inf), Limit("quota:total/concurrency", 3, None)),
}
KEYS = ("one", "two")


def quotas() -> tuple[Quota, ...]:
    """Return quotas with those limits."""
    return (
        Quota("windows", calls=[(3, 1.0), (8, 4.0)], concurrency=2),
        Quota("tokens", tokens=100, period_s=2.0, total_calls=400),
        Quota("keys", calls=4, period_s=0.5, concurrency=2, keys=KEYS),
        Quota("total", total_calls=30, concurrency=3),
    )


@dataclass(frozen=True)
class Kind:
    """A cost, and how the body runs.

    Attributes:
        cpu: cores.
        memory_gib: GiB.
        quota: calls and tokens by quota.
        thread: whether the body runs on a thread.
    """

    cpu: float | Elastic = 0
    memory_gib: float = 0
    quota: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    thread: bool = False

    @property
    def options(self) -> tuple[float, ...]:
        """The numbers of cores that it may get."""
        if isinstance(self.cpu, Elastic):
            return tuple(map(float, self.cpu.options))
        return (float(self.cpu),) if self.cpu else ()

    def declare(self) -> Any:
        """Return an action."""
        quota: dict[str, float | QuotaUse] = {}
        for name, (calls, tokens) in self.quota.items():
            quota[name] = QuotaUse(calls=calls, tokens=tokens) if tokens else calls
        body: Callable[..., Any] = thread_body if self.thread else async_body
        return tangram.action(cpu=self.cpu, memory_gib=self.memory_gib, quota=quota or None)(body)


KINDS = (
    Kind(),
    Kind(cpu=1),
    Kind(cpu=3),
    Kind(cpu=0.25),
    Kind(cpu=Elastic(1, 4)),
    Kind(cpu=Elastic.of(2, 4, speedup=Amdahl(0.5))),
    Kind(cpu=1, memory_gib=1.5),
    Kind(memory_gib=0.5),
    Kind(thread=True),
    Kind(thread=True, cpu=1),
    Kind(thread=True, cpu=0.5, memory_gib=0.25, quota={"total": (1, 0)}),
    Kind(quota={"windows": (1, 0)}),
    Kind(cpu=Elastic(1, 8), memory_gib=0.25, quota={"windows": (1, 0)}),
    Kind(quota={"tokens": (1, 30)}),
    Kind(cpu=1, quota={"tokens": (1, 10), "keys": (1, 0)}),
    Kind(quota={"keys": (1, 0)}),
    Kind(quota={"total": (1, 0)}),
    Kind(quota={"total": (0.5, 0), "windows": (0.5, 0)}),
)


@dataclass(frozen=True)
class Options:
    """How a call is declared, besides its cost."""

    priority: int = 0
    timeout: float | None = None
    queue_timeout: float | None = None


@cache
def declared(kind: int) -> Any:
    """Return the action of a kind."""
    return KINDS[kind].declare()


@cache
def action_of(kind: int, options: Options) -> Any:
    """Return the action of a kind with options."""
    if options == Options():
        return declared(kind)
    return declared(kind).with_options(
        priority=options.priority, timeout=options.timeout, queue_timeout=options.queue_timeout
    )


@dataclass(frozen=True)
class Script:
    """What a body does.

    Attributes:
        for_s: how long it works.
        end: "return"; "raise"; "rude", which raises `CancelledError` by itself; or what it does when it is cancelled:
            "slow" takes its time, "deaf" goes on, "swallow" returns.
        retry_after_s: what it says to its quotas when it begins, or None.
        settle: calls and tokens that it used in truth, each as a part of what it was granted, or None.
        children: what it calls after its work; only bodies on the loop do.
        together: whether it calls them all at once.
    """

    for_s: float = 0.0
    end: str = "return"
    retry_after_s: float | None = None
    settle: tuple[float, float] | None = None
    children: tuple[tuple[int, Options, Script], ...] = ()
    together: bool = False


@dataclass(eq=False)
class Call:
    """One call: what it is, and what has happened to it so far.

    Attributes:
        world: where it was made.
        number: unique and ascending in its world.
        kind: the index of what it costs.
        options: how it was declared.
        script: what its body does.
        rollout: the trajectory that it was made in, or None.
        parent: the call whose body made it, or None.
        interrupts: when it was told to end, and with what error.
        cancelled_at_s: when its caller was cancelled.
        waits_for: how many calls its body has made that have not ended.
        away_s: seconds for which it has waited for such calls, until those that it waits for now.
        away_from_s: since when it waits for those.
        natural_at_s: when its body comes to its end by itself.
        places: what it needs to start, by dimension, in each of the ways in which it can; filled by its world.
        holds: units by dimension from the beginning of the body to its end.
        charges: of rates and totals: when each part comes back, and its units.
    """

    world: World
    number: int
    kind: int
    options: Options
    script: Script
    rollout: Rollout | None
    submitted_at_s: float
    joined_at_s: float
    parent: Call | None = None
    task: asyncio.Task[Any] = field(init=False)
    interrupts: list[tuple[float, type[BaseException]]] = field(default_factory=list)
    cancelled_at_s: float | None = None
    began_at_s: float | None = None
    body_ended_at_s: float | None = None
    answered_at_s: float | None = None
    cores: float = 0.0
    waits_for: int = 0
    away_s: float = 0.0
    away_from_s: float | None = None
    natural_at_s: float = math.inf
    places: list[dict[str, float]] = field(default_factory=list)
    holds: dict[str, float] = field(default_factory=dict)
    charges: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def cost(self) -> Kind:
        """What it costs."""
        return KINDS[self.kind]

    @property
    def takes_turn(self) -> bool:
        """Whether it takes the turn in the sandbox of its trajectory."""
        inside = self.rollout is not None and bool(self.cost.options)
        return inside and (not self.cost.thread or self.world.reserved > 0)

    @property
    def ended(self) -> bool:
        """Whether its caller has its answer."""
        return self.answered_at_s is not None

    @property
    def waits(self) -> bool:
        """Whether it waits, for units or for its turn."""
        return self.answered_at_s is None and self.began_at_s is None

    @property
    def calls_others(self) -> bool:
        """Whether its body makes calls."""
        return bool(self.script.children) and not self.cost.thread

    @property
    def lends_cores(self) -> bool:
        """Whether its cores are free for others, because its body waits for calls and left nothing to clean up."""
        return self.waits_for > 0 and not (self.world.clean_s and self.cost.options)

    def interrupt(self, error: type[BaseException]) -> None:
        """It is told to end now."""
        if not self.ended:
            self.interrupts.append((self.world.now_s, error))

    # What its body says.

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Keep what the account finds wrong from the library, which would take it for an error of the body."""
        try:
            yield
        except Exception as fault:  # noqa: BLE001 - raised by the next check
            self.world.faults.append(fault)

    def begin(self) -> None:
        """The body begins."""
        assert self.began_at_s is None, f"{self} began twice"
        self.began_at_s = self.world.loop.time()
        if not self.calls_others:
            self.natural_at_s = self.began_at_s + self.script.for_s
        self.cores = float(current_allocation().cores)
        keys = {name: current_quota(name).key for name in self.cost.quota}
        self.world.begun(self, {name: "" if key is None else f"#{KEYS.index(key) + 1}" for name, key in keys.items()})
        if self.script.retry_after_s is not None:
            for name in self.cost.quota:
                current_quota(name).retry_after(self.script.retry_after_s)
                self.world.retry_after(self, name, self.script.retry_after_s)

    def end(self) -> None:
        """The body ends."""
        assert self.body_ended_at_s is None, f"{self} ended twice"
        try:
            self._settle()
        except tangram.NoActionError:
            assert self.was_told_to_end(), f"{self} has not ended, and cannot settle"
        self.body_ended_at_s = self.world.loop.time()
        self.world.ended(self)

    def _settle(self) -> None:
        if self.script.settle is None:
            return
        calls_part, tokens_part = self.script.settle
        for name, (calls, tokens) in self.cost.quota.items():
            current_quota(name).settle(calls=calls * calls_part, tokens=tokens * tokens_part if tokens else None)
            self.world.settled(self, name, calls * calls_part, tokens * tokens_part)

    def was_told_to_end(self) -> bool:
        """Whether it was, or a call that made it."""
        assert self.began_at_s is not None
        over = self.options.timeout is not None and self.world.now_s >= self.began_at_s + self.options.timeout
        return over or bool(self.interrupts) or (self.parent is not None and self.parent.was_told_to_end())

    def outcome(self) -> int:
        """Return or raise what the body does by itself."""
        if self.script.end == "raise":
            raise OwnError(self.number)
        if self.script.end == "rude" and not self.cost.thread:
            raise asyncio.CancelledError
        return self.number

    # What may come of it.

    def check_answer(self, now_s: float, value: Any, error: BaseException | None) -> None:
        """See that it ended in a way, and at a time, that what happened to it allows."""
        assert self.answered_at_s is None, f"{self} was answered twice"
        if error is None:
            assert value == self.number, f"{self} got the result of another call: {value}"
        elif isinstance(error, OwnError):
            assert error.args == (self.number,), f"{self} got the error of another call: {error!r}"
        got = type(error) if error is not None else None
        allowed = self._allowed_waiting() if self.began_at_s is None else self._allowed_running(self.began_at_s)
        late_s = 2 * self.world.clean_s if self.cost.options and self.began_at_s is not None else 0.0
        if self.calls_others:
            late_s += self.world.grace_s  # of those that it had called
        if self.parent is not None:
            if self._ended_with_its_parent(error):
                return
            late_s = math.inf  # the body that made it hears of its end when it has its cores and its turn back
        if not any(kind is got and at_s <= now_s <= at_s + late_s for kind, at_s in allowed):
            told = f"{error!r} at {now_s}; began {self.began_at_s}, interrupts {self.interrupts}, away {self.away_s}"
            raise AssertionError(f"{told}; allowed are {allowed}: {self}") from error

    def _ended_with_its_parent(self, error: BaseException | None) -> bool:
        """Whether a call that was made by a body ended in one of the ways that only those can."""
        assert self.parent is not None
        if isinstance(error, tangram.NestedActionError):
            return True
        ends = (asyncio.CancelledError, tangram.BodyCancelledError)
        return isinstance(error, ends) and self.parent.was_told_to_end()

    def _allowed_waiting(self) -> list[tuple[type[BaseException] | None, float]]:
        if self.cancelled_at_s is not None:
            return [(asyncio.CancelledError, self.cancelled_at_s)]
        allowed: list[tuple[type[BaseException] | None, float]] = [(kind, at_s) for at_s, kind in self.interrupts]
        if self.options.queue_timeout is not None:
            allowed.append((tangram.QueueTimeout, self.submitted_at_s + self.options.queue_timeout))
        if self.world.is_infeasible(self):
            allowed.append((tangram.InfeasibleError, self.submitted_at_s))
        elif self.world.is_exhausted(self):
            allowed.append((tangram.InfeasibleError, self.world.now_s))
        if self.rollout is not None and not self.rollout.is_open:
            allowed.append((tangram.NoTrajectoryError, self.submitted_at_s))
            if self.rollout.group_cancelled:
                allowed.append((tangram.GroupCancelledError, self.submitted_at_s))
        if not self.world.is_open:
            allowed.append((tangram.RuntimeClosedError, self.submitted_at_s))
        return allowed

    def _allowed_running(self, began_at_s: float) -> list[tuple[type[BaseException] | None, float]]:
        natural_at_s = self.natural_at_s
        interrupts = list(self.interrupts)
        if self.options.timeout is not None:
            over_at_s = began_at_s + self.options.timeout + self.away_s
            if self.away_from_s is None or over_at_s <= self.away_from_s:
                interrupts.append((over_at_s, tangram.RunTimeout))
        first_s = min((at_s for at_s, _ in interrupts), default=math.inf)
        allowed: list[tuple[type[BaseException] | None, float]] = []
        if first_s >= natural_at_s:
            natural: type[BaseException] | None = {"raise": OwnError, "rude": tangram.BodyCancelledError}.get(
                self.script.end
            )
            if self.cost.thread and self.script.end == "rude":
                natural = None
            allowed.append((natural, natural_at_s))
        late_s = 2 * self.world.clean_s if self.cost.options else 0.0
        for at_s, kind in interrupts:
            if at_s == first_s and at_s <= natural_at_s + late_s:
                allowed.append((kind, self._answered_s(at_s, natural_at_s)))
                if at_s == natural_at_s:  # whichever of both came first
                    allowed.append((kind, natural_at_s))
        if self.cancelled_at_s is not None:  # whatever the call comes to, its caller is cancelled
            return [(asyncio.CancelledError, max(at_s, self.cancelled_at_s)) for _, at_s in allowed]
        return allowed

    def _answered_s(self, at_s: float, natural_at_s: float) -> float:
        """Return when a call is answered that is told to end at some time."""
        if self.cost.thread or self.calls_others:  # of the latter, the time depends on those that they have called
            return at_s
        if at_s > natural_at_s:
            return natural_at_s
        ends_s = {"deaf": natural_at_s, "slow": at_s + SLOW_S}.get(self.script.end, at_s)
        return min(ends_s, at_s + self.world.grace_s)

    def __repr__(self) -> str:
        where = "" if self.rollout is None else f" in trajectory {self.rollout.number}"
        return f"<call {self.number}{where}: {self.cost}, {self.options}, {self.script}, from {self.submitted_at_s}>"


async def async_body(call: Call) -> int:
    with call.reporting():
        call.begin()
    try:
        return await _work(call)
    finally:
        with call.reporting():
            call.end()


async def _work(call: Call) -> int:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + call.script.for_s
    while (left_s := until_s - loop.time()) > 0:
        try:
            await asyncio.sleep(left_s)
        except asyncio.CancelledError:
            if call.script.end == "deaf":
                continue
            if call.script.end == "swallow":
                return call.number
            if call.script.end == "slow":
                await asyncio.sleep(SLOW_S)
            raise
    if call.script.children:
        await _call_others(call)
        call.natural_at_s = loop.time()
    return call.outcome()


async def _call_others(call: Call) -> None:
    loop = asyncio.get_running_loop()
    for group in [call.script.children] if call.script.together else [(child,) for child in call.script.children]:
        call.away_from_s = loop.time()
        try:
            if len(group) == 1:
                await _call_one(call, *group[0])
            else:
                await asyncio.gather(*(_call_one(call, *child) for child in group))
        finally:
            call.away_s += loop.time() - call.away_from_s
            call.away_from_s = None


async def _call_one(parent: Call, kind: int, options: Options, script: Script) -> None:
    child = parent.world.note(kind, options, script, parent.rollout, parent)
    parent.waits_for += 1
    error: BaseException | None = None
    value: int | None = None
    try:
        value = await parent.world.tg.run(action_of(kind, options), child)
    except asyncio.CancelledError as cancelled:
        error = cancelled
        raise
    except Exception as raised:  # noqa: BLE001 - checked by the account
        error = raised
    finally:
        parent.waits_for -= 1
        parent.world.answered(child, value, error)


def thread_body(call: Call) -> int:
    loop = call.world.loop
    try:
        with call.reporting():
            call.begin()
        if call.script.for_s:
            loop.lockstep.sleep_until(loop.time() + call.script.for_s)
        return call.outcome()
    finally:
        with call.reporting():
            call.end()
        loop.lockstep.ends()


def spawn(loop: SteppedLoop, coroutine: Any, context: Context) -> asyncio.Task[Any]:
    """Start a task in a copy of a context."""
    return loop.create_task(coroutine, context=context.copy())
