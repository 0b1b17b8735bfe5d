"""One call of the model-based test: what has happened to it, and the ends that it may have."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import arl_tangram as tangram
from arl_tangram import current_allocation, current_quota
from property.runtime_kinds import BREAKER, KEYS, KINDS, SLOW_S, Kind, Options, OwnError, Script

if TYPE_CHECKING:
    from property.runtime_setup import Rollout
    from property.runtime_world import World


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
        task: its caller, if that is a task of its own.
        attempts: how often its body has begun.
        queued_at_s: since when it waits: since it was made, or since the pause after its last attempt is over.
        infeasible_at_s: when there was too little for it while it waited.
        most_cores: how many cores there were when it was made.
        by_thread: whether a thread made it, so that calls made after it may reach the runtime before it.
        infeasible: whether there is too little for it; None after that may have changed.
        unsure: whether it is not known what it asks for, or its place among others.
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
    task: asyncio.Task[Any] | None = None
    attempts: int = 0
    queued_at_s: float = field(init=False)
    infeasible_at_s: list[float] = field(default_factory=list)
    most_cores: float = math.inf
    by_thread: bool = False
    infeasible: bool | None = None
    unsure: bool = False
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

    def __post_init__(self) -> None:
        self.queued_at_s = self.submitted_at_s

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
        return bool(self.script.children)

    @property
    def runs(self) -> bool:
        """Whether its body has not ended."""
        return self.body_ended_at_s is None

    @property
    def rests(self) -> bool:
        """Whether it waits for the time of its next attempt."""
        return self.queued_at_s > self.world.now_s

    @property
    def is_in_line(self) -> bool:
        """Whether its place among those who want the turn in its sandbox is known: it was made once, by no body."""
        return self.takes_turn and self.parent is None and not self.options.retries and not self.by_thread

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
        assert self.world.now_s >= self.queued_at_s, f"{self} began before its pause was over"
        self.attempts += 1
        assert self.attempts <= 1 + self.options.retries, f"{self} began too often"
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
        if (ended_at_s := self.body_ended_at_s) is not None and self.attempts <= self.options.retries:
            # Instead of another attempt: at once in the pause before it, else when the body has ended.
            allowed += [(kind, max(at_s, ended_s)) for at_s, kind in self.interrupts for ended_s in (at_s, ended_at_s)]
        self._check_attempts(error)
        if not any(kind is got and at_s <= now_s <= at_s + late_s for kind, at_s in allowed):
            told = f"{error!r} at {now_s}; began {self.began_at_s}, interrupts {self.interrupts}, away {self.away_s}"
            raise AssertionError(f"{told}; allowed are {allowed}: {self}") from error

    def begin_again(self, pause_s: float) -> None:
        """Its attempt has failed, and after this pause there will be another one."""
        now_s = self.world.now_s
        assert not self.ended, f"{self} is tried again after its answer"
        assert self.began_at_s is not None, f"{self} is tried again and never began"
        assert self.body_ended_at_s is not None, f"{self} is tried again while its body runs"
        assert self.attempts <= self.options.retries, f"{self} is tried too often"
        allowed = [kind for kind, _ in self._allowed_running(self.began_at_s) if kind is not None]
        if self.cancelled_at_s is None:
            assert any(issubclass(kind, self.options.retry_on) for kind in allowed), f"{self}: {allowed}"
        self.began_at_s = self.body_ended_at_s = None
        self.holds, self.charges, self.away_s, self.natural_at_s = {}, {}, 0.0, math.inf
        self.queued_at_s = now_s + pause_s

    def _check_attempts(self, error: BaseException | None) -> None:
        """See that it was tried as often as it should have been."""
        if self.began_at_s is None or self.parent is not None:
            return
        if error is None:
            failed = self.script.fails if self.script.end != "swallow" else min(self.attempts - 1, self.script.fails)
            assert self.attempts > failed, f"{self} failed in each of {self.attempts} attempts, and has a result"
        is_alone = not self.interrupts and self.world.is_open and (self.rollout is None or self.rollout.is_open)
        if isinstance(error, OwnError) and issubclass(OwnError, self.options.retry_on) and is_alone:
            assert self.attempts == 1 + self.options.retries, f"{self} gave up after {self.attempts} attempts"

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
            allowed.append((tangram.QueueTimeout, self.queued_at_s + self.options.queue_timeout))
        allowed += [(tangram.InfeasibleError, at_s) for at_s in self.infeasible_at_s]
        if self.world.is_infeasible(self):
            allowed.append((tangram.InfeasibleError, self.queued_at_s))
        elif self.world.is_exhausted(self):
            allowed.append((tangram.InfeasibleError, self.world.now_s))
        if BREAKER in self.cost.quota and self.world.may_be_down:
            allowed.append((tangram.BackendDownError, self.world.now_s))
        if self.rollout is not None and not self.rollout.is_open:
            allowed.append((tangram.NoTrajectoryError, self.queued_at_s))
            if self.rollout.group_cancelled:
                allowed.append((tangram.GroupCancelledError, self.queued_at_s))
        if not self.world.is_open:
            allowed.append((tangram.RuntimeClosedError, self.queued_at_s))
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
            natural: type[BaseException] | None = None
            if self.attempts <= self.script.fails or self.script.end == "raise":
                natural = OwnError
            elif self.script.end == "rude" and not self.cost.thread:
                natural = tangram.BodyCancelledError
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
