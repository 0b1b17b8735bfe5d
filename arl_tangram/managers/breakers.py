"""Apply the breakers of a runtime: tell them how calls go, and let calls start, wait or be refused as they say.

The scheduler sees a breaker as a dimension of which every call takes one unit. Unless it is closed, there is one more
than there are calls in flight that are passed over: those that started before the pause, and those that have called
another one that takes the same quota, and wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from arl_tangram.errors import (
    AllocationError,
    BackendDownError,
    BodyCancelledError,
    BodyExitedError,
    ConfigurationError,
    DefinitionError,
    GroupCancelledError,
    InfeasibleError,
    LeaseLostError,
    OutOfMemoryError,
    OwnerLostError,
    QueueTimeout,
    RestoreError,
    ResultError,
    SandboxLostError,
    SandboxPathError,
    SandboxStartError,
    ServiceLostError,
    ShutdownError,
    UsageError,
    WorkerDiedError,
    WorkerStartError,
)
from arl_tangram.managers.breaker import MOST_AT_ONCE, Breaker, BreakerState, Circuit
from arl_tangram.model.lifecycle import RunningAction
from arl_tangram.model.topology import Topology

NOT_THE_BACKEND: tuple[type[Exception], ...] = (
    AllocationError,
    BackendDownError,
    BodyCancelledError,
    BodyExitedError,
    ConfigurationError,
    DefinitionError,
    GroupCancelledError,
    InfeasibleError,
    LeaseLostError,
    OutOfMemoryError,
    OwnerLostError,
    QueueTimeout,
    RestoreError,
    ResultError,
    SandboxLostError,
    SandboxPathError,
    SandboxStartError,
    ServiceLostError,
    ShutdownError,
    UsageError,
    WorkerDiedError,
    WorkerStartError,
)
"""Failures of ours, of the body or of its caller.

Not `InfrastructureError` itself: bodies raise that, or a subclass of their own, to have a sample masked.
"""

_logger = logging.getLogger(__name__)


class Tripped(NamedTuple):
    """A breaker that is not closed.

    Attributes:
        label: the name of its quota, with `#` and its number for a key.
        failed: failed calls in a row.
        down: whether the last probe has failed.
        left_s: seconds until one call is let through; below 0 if it was.
        reason: the type of the last failure.
    """

    label: str
    failed: int
    down: bool
    left_s: float
    reason: str


class Scheduler(Protocol):
    """What breakers ask of the scheduler, about dimensions by their index."""

    def used(self, dimension: int) -> int:
        """Return the units in use."""
        ...

    def pause_until(self, dimension: int, until_s: float) -> None:
        """Grant nothing before then."""
        ...

    def set_capacity(self, dimension: int, units: int) -> None:
        """Let there be so many units."""
        ...


class _Gate:
    """The breaker of one quota, or of one of its keys.

    Attributes:
        label: how it is called in messages: by the name of the quota and, if it has keys, the number of the key.
        dimension: index of its dimension.
        circuit: its state.
        passed_over: how many calls in flight are no obstacle to the next one.
        callers: ids of those among them that started after the last pause.
        told: ids of running calls whose body has said how it went, so that their end says nothing more.
        reason: the type of the last failure.
    """

    __slots__ = ("callers", "circuit", "dimension", "label", "passed_over", "reason", "told")

    def __init__(self, label: str, dimension: int, breaker: Breaker) -> None:
        self.label = label
        self.dimension = dimension
        self.circuit = Circuit(breaker)
        self.passed_over = 0
        self.callers: set[int] = set()
        self.told: set[int] = set()
        self.reason = ""


class Breakers:
    """The breakers of a runtime; used on its event loop.

    Args:
        declared: by the name of a quota, its breaker.
        topology: the dimensions of the runtime.
        scheduler: lets calls start, or not.
        refuse: ends all calls that wait for a quota, given its name, with the error that it makes.
    """

    def __init__(
        self,
        declared: Mapping[str, Breaker],
        topology: Topology,
        scheduler: Scheduler,
        refuse: Callable[[str, Callable[[], BackendDownError]], None],
    ) -> None:
        self._scheduler = scheduler
        self._refuse = refuse
        self._gates: dict[str, list[_Gate]] = {}
        for name, breaker in declared.items():
            keys = topology.quotas[name]
            labels = [f"{name}#{number}" for number in range(1, len(keys) + 1)] if len(keys) > 1 else [name]
            self._gates[name] = [_Gate(label, key.breaker[0], breaker) for label, key in zip(labels, keys, strict=True)]

    def refusal(self, quotas: Iterable[tuple[str, int]], now_s: float) -> BackendDownError | None:
        """Return why a call cannot even wait: a quota that it takes, of these, is down with all its keys."""
        for name, _ in quotas:
            gates = self._gates.get(name)
            if gates is not None and all(gate.circuit.state(now_s) is BreakerState.DOWN for gate in gates):
                return self._down(name, gates, now_s)
        return None

    def say(self, running: RunningAction, name: str, now_s: float, *, failed: bool | None) -> None:
        """A body says how a call went, or (None) that its end will say nothing about that; it counts at once."""
        gate = self._gate(running, name)
        if gate is None:
            return
        gate.told.add(running.pending.id)
        if failed is not None:
            self._count(name, gate, running, now_s, failed=failed, reason="failed()")

    def answered(
        self, running: RunningAction, quotas: Iterable[tuple[str, int]], error: BaseException | None, now_s: float
    ) -> None:
        """A call's caller has its answer, and its body has not ended."""
        for name, gate in self._held(running, quotas):
            self._conclude(name, gate, running, error, now_s)
            gate.told.add(running.pending.id)

    def ended(
        self, running: RunningAction, quotas: Iterable[tuple[str, int]], error: BaseException | None, now_s: float
    ) -> None:
        """A call has given its units back; only an `Exception` that may come from the backend is a failure of that."""
        for name, gate in self._held(running, quotas):
            is_early = running.started_at_s < gate.circuit.counts_from_s
            if gate.passed_over and (is_early or running.pending.id in gate.callers):
                gate.callers.discard(running.pending.id)
                self._pass_over(gate, gate.passed_over - 1)
            if not is_early:
                self._conclude(name, gate, running, error, now_s)
            gate.told.discard(running.pending.id)

    def called(
        self, caller: RunningAction, holds: Iterable[tuple[str, int]], takes: Iterable[tuple[str, int]], now_s: float
    ) -> None:
        """A running call waits for another one: where both take the same quota, it must not be in its way."""
        names = {name for name, _ in takes}
        for name, gate in self._held(caller, holds):
            if gate.circuit.state(now_s) is not BreakerState.PROBING or name not in names:
                continue
            if caller.started_at_s >= gate.circuit.counts_from_s and caller.pending.id not in gate.callers:
                gate.callers.add(caller.pending.id)
                self._pass_over(gate, gate.passed_over + 1)

    def states(self, now_s: float) -> dict[str, BreakerState]:
        """Return the state of each breaker, by the name of its quota, with `#` and its number for a key."""
        return {gate.label: gate.circuit.state(now_s) for gates in self._gates.values() for gate in gates}

    def notes(self, now_s: float) -> list[str]:
        """Return a line for each breaker that is not closed."""
        lines: list[str] = []
        for gate in (gate for gates in self._gates.values() for gate in gates):
            state = gate.circuit.state(now_s)
            if state is not BreakerState.CLOSED:
                left_s = gate.circuit.counts_from_s - now_s
                lines.append(f"{gate.label}: {state}" + (f", next probe in {left_s:.3g} s" if left_s > 0 else ""))
        return lines

    def tripped(self, now_s: float) -> tuple[Tripped, ...]:
        """Return those that are not closed."""
        return tuple(
            Tripped(
                gate.label, gate.circuit.failed, gate.circuit.is_down, gate.circuit.counts_from_s - now_s, gate.reason
            )
            for gates in self._gates.values()
            for gate in gates
            if not gate.circuit.is_closed
        )

    def trip(self, told: Iterable[Tripped], running: Collection[RunningAction], now_s: float) -> None:
        """Go on with breakers that were not closed, in place of those that had counted so far.

        Args:
            told: what they were.
            running: the calls in flight.
            now_s: the time.
        """
        known = {gate.label: gate for gates in self._gates.values() for gate in gates}
        for label, failed, down, left_s, reason in told:
            if (gate := known.get(label)) is None:
                continue
            from_s, taken = now_s + left_s, 1 << gate.dimension
            gate.circuit.begin(failed, from_s, down=down)
            gate.reason = reason
            self._scheduler.pause_until(gate.dimension, from_s)
            early = [one for one in running if one.pending.demand.dimensions & taken and one.started_at_s < from_s]
            self._pass_over(gate, len(early))

    def _conclude(
        self, name: str, gate: _Gate, running: RunningAction, error: BaseException | None, now_s: float
    ) -> None:
        """Count how a call ended, unless its body has said so."""
        if running.pending.id in gate.told or (error is not None and not blames_the_backend(error)):
            return
        self._count(name, gate, running, now_s, failed=error is not None, reason=type(error).__name__)

    def _count(
        self, name: str, gate: _Gate, running: RunningAction, now_s: float, *, failed: bool, reason: str
    ) -> None:
        before = gate.circuit.state(now_s)
        if failed and running.started_at_s >= gate.circuit.counts_from_s:
            gate.reason = reason
        if not gate.circuit.count(running.started_at_s, now_s, failed=failed):
            return
        if not failed:
            gate.passed_over = 0
            gate.callers.clear()
            self._scheduler.set_capacity(gate.dimension, MOST_AT_ONCE)
            _logger.warning("what is behind the quota %s works again", gate.label)
            return
        self._scheduler.pause_until(gate.dimension, gate.circuit.counts_from_s)
        gate.callers.clear()
        self._pass_over(gate, self._scheduler.used(gate.dimension))
        if before is BreakerState.CLOSED:
            _logger.warning(
                "what is behind the quota %s has failed %d times in a row (%s): nothing is sent for %g s",
                gate.label,
                gate.circuit.failed,
                reason,
                gate.circuit.counts_from_s - now_s,
            )
        gates = self._gates[name]
        if self.refusal(((name, 0),), now_s) is not None:
            self._refuse(name, lambda: self._down(name, gates, now_s))

    def _pass_over(self, gate: _Gate, calls: int) -> None:
        """Let one call start beside so many that are no obstacle."""
        gate.passed_over = calls
        self._scheduler.set_capacity(gate.dimension, calls + 1)

    def _gate(self, running: RunningAction, name: str) -> _Gate | None:
        gates = self._gates.get(name)
        return None if gates is None else gates[dict(running.pending.demand.keys).get(name, 0)]

    def _held(self, running: RunningAction, quotas: Iterable[tuple[str, int]]) -> Iterator[tuple[str, _Gate]]:
        for name, _ in quotas:
            gate = self._gate(running, name)
            if gate is not None:
                yield name, gate

    @staticmethod
    def _down(name: str, gates: list[_Gate], now_s: float) -> BackendDownError:
        first = min(gates, key=lambda gate: gate.circuit.counts_from_s)
        return BackendDownError(
            f"what is behind the quota {name!r} is down: its last {first.circuit.failed} calls failed "
            f"({first.reason}); next probe in {first.circuit.counts_from_s - now_s:.3g} s"
        )


def blames_the_backend(error: BaseException) -> bool:
    """Whether what a body raised may come from what is behind its quota."""
    return isinstance(error, Exception) and not isinstance(error, NOT_THE_BACKEND)
