"""Run a workload through the very core that the runtime drives, in virtual time.

The rules:

1. The key of the heap of events is (time, sequence), and nothing else decides an order. Sequence numbers
   are given when an event is planned: first the arrivals, then the rollouts, then whatever these cause.
2. All events that are due are fed to the core together, then it decides, again and again while it says that
   there is more. What an event causes at the same instant (the next call of a rollout that does not think) is
   fed after that decision: on an event loop, too, a caller hears of the end of its call one turn later.
3. Time jumps to the next event, or to the core's own `next_wakeup_s` if that is earlier.
4. The core learns from what it would have measured: the time from the promise of units to the end, less the wait for
   a restore.
5. A call whose cores are changed while it runs goes on with what is left of it, after it has stood still for as long as
   a change takes. Its `timeout` stands still while it has none.
6. A call that uses a service begins when that is restored (`restores`); its `timeout` counts from then.

With `known=True` nothing is learned: each call has a name of its own, and its true work and speed-up are declared.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.events import Event
from arl_tangram.model.gpu import Seat
from arl_tangram.model.lifecycle import Outcome, PendingAction, RunningAction
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.sharing import Sharing
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.feasibility import in_sandbox
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies.own import policy_of
from arl_tangram.scheduling.policy import Plan, Policy
from arl_tangram.simulate.calls import Arrival, Call, Rollout, Workload
from arl_tangram.simulate.demands import Demands
from arl_tangram.simulate.gpus import Gpus
from arl_tangram.simulate.progress import Progress
from arl_tangram.simulate.restores import Restore, Restores, in_line
from arl_tangram.simulate.results import Result, SimulatedCall, SimulatedRollout

_NO_GPUS = Gpus(())


def simulate(
    workload: Workload,
    topology: Topology,
    policy: Policy | Plan,
    *,
    order: Order = "fcfs",
    known: bool = False,
    record: bool = False,
    host: int | None = 0,
    sharing: Sharing | None = None,
    gpus: Gpus | None = None,
    core: Callable[..., SchedulerCore] = SchedulerCore,
) -> Result:
    """Return what a workload takes.

    Args:
        workload: what happens.
        topology: the dimensions of the pools; those of `gpus` may be left out.
        policy: how candidates share a dimension; a policy, or a function as `Tangram(policy=)` takes it.
        order: who comes first among those of one priority.
        known: whether the scheduler knows how long each call takes at any units, instead of learning it.
        record: whether the result holds the events of the core.
        host: the number of the node where calls outside of rollouts have their cores and memory, if there are several.
        sharing: how calls of rollouts share their cores while they run; None if they keep those they have started with.
        gpus: the pool of GPUs; None if there is none.
        core: makes the scheduler; arguments as those of a `SchedulerCore`.

    Raises:
        InfeasibleError: a call or rollout that the pools can never meet.
        ConfigurationError: a time or duration that is negative or not finite, a policy that is none, or GPUs that are
            not those of `topology`.
    """
    if gpus is not None:
        topology = gpus.added_to(topology)
    seats = None if gpus is None else gpus.seats()
    made = core(topology, policy_of(policy), order=order, record=record, seats=seats, sharing=sharing)
    switch_s = 0.0 if sharing is None else sharing.switch_s
    simulation = _Simulation(workload, made, gpus or _NO_GPUS, known=known, record=record, host=host, switch_s=switch_s)
    return simulation.run()


@dataclass(slots=True)
class _Open:
    """A rollout on its way.

    Attributes:
        number: its place in the workload.
        rollout: what it does.
        id: as the core knows it.
        opened_at_s: when it was admitted.
        node: the number of the node where that was.
        turns: how many turns have begun.
        outstanding: calls of this turn that have not ended.
    """

    number: int
    rollout: Rollout
    id: int = 0
    opened_at_s: float = 0.0
    node: int = 0
    turns: int = 0
    outstanding: int = 0


@dataclass(slots=True)
class _Made:
    """A call that has been submitted and has not ended: its place in the result, and whose it is."""

    place: int
    call: Call
    pending: PendingAction
    rollout: _Open | None


class _Simulation:
    """One run: the heap of events, and what is under way."""

    def __init__(
        self,
        workload: Workload,
        core: SchedulerCore,
        gpus: Gpus,
        *,
        known: bool,
        record: bool,
        host: int | None,
        switch_s: float,
    ) -> None:
        self._core = core
        reserved = core.policy.reserved_cores * MILLI
        self._demands = Demands(core, gpus.services, host=host, reserved=reserved, known=known)
        self._restores = Restores(gpus.services, swaps=gpus.swaps)
        self._known = known
        self._record = record
        self._switch_s = switch_s
        self._progress: dict[int, Progress] = {}
        self._now_s = 0.0
        self._heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._sequence = 0
        self._next_id = 0
        self._decisions = 0
        self._refused: str | None = None
        self._made: dict[int, _Made] = {}
        self._opening: dict[int, _Open] = {}
        self._calls: list[SimulatedCall | None] = []
        self._rollouts: list[SimulatedRollout | None] = [None] * len(workload.rollouts)
        self._events: list[Event] = []
        for arrival in workload.arrivals:
            self._plan(arrival.at_s, self._arrive, arrival)
        for number, rollout in enumerate(workload.rollouts):
            self._plan(rollout.at_s, self._open, _Open(number, rollout))

    def run(self) -> Result:
        """Run to the end."""
        while (next_s := self._next_s()) is not None:
            self._now_s = max(self._now_s, next_s)
            self._feed()
            self._decide()
        calls = tuple(call for call in self._calls if call is not None)
        rollouts = tuple(rollout for rollout in self._rollouts if rollout is not None)
        if self._core.waiting or len(calls) < len(self._calls) or len(rollouts) < len(self._rollouts):
            raise AssertionError(f"{self._core.waiting} wait at {self._now_s:g} s, and nothing would ever start them")
        return Result(calls, rollouts, tuple(self._events), self._decisions, self._refused)

    # Time.

    def _plan(self, at_s: float, step: Callable[[Any], None], subject: object) -> None:
        if not self._now_s <= at_s < math.inf:
            raise ConfigurationError(
                f"times are finite and not negative; at {self._now_s:g} s the workload plans for {at_s:g} s"
            )
        heapq.heappush(self._heap, (at_s, self._sequence, step, subject))
        self._sequence += 1

    def _next_s(self) -> float | None:
        wakeup_s = self._core.next_wakeup_s()
        while self._heap and _is_void(*self._heap[0][1:]):
            heapq.heappop(self._heap)
        if not self._heap:
            return wakeup_s
        event_s = self._heap[0][0]
        return event_s if wakeup_s is None else min(event_s, wakeup_s)

    def _feed(self) -> None:
        """Take the steps that are due and were planned before this instant's first."""
        heap, now_s, planned = self._heap, self._now_s, self._sequence
        while heap and heap[0][0] <= now_s and heap[0][1] < planned:
            _, sequence, step, subject = heapq.heappop(heap)
            if not _is_void(sequence, step, subject):
                step(subject)

    def _decide(self) -> None:
        more = True
        while more:
            self._decisions += 1
            decisions = self._core.decide(self._now_s)
            for action_id in decisions.expired:
                made = self._made[action_id]
                self._conclude(made, Outcome.QUEUE_TIMEOUT)
            for action_id, _ in decisions.impossible:
                self._conclude(self._made[action_id], Outcome.ERROR)
            for trajectory in decisions.opened:
                self._admit(self._opening.pop(trajectory))
            for running in decisions.resized:
                self._resize(running)
            for running in in_line(decisions):
                self._start(running)
            if self._record:
                self._events += self._core.drain_events()
            if self._refused is None:
                self._refused = decisions.refused
            more = decisions.more

    # Steps.

    def _arrive(self, arrival: Arrival) -> None:
        self._make(arrival.call, None)

    def _open(self, state: _Open) -> None:
        rollout = state.rollout
        demand = self._demands.rollout(rollout.memory_bytes)
        state.id = self._new_id()
        self._opening[state.id] = state
        self._core.open(PendingAction(state.id, demand, self._now_s), group=rollout.group)

    def _admit(self, state: _Open) -> None:
        state.opened_at_s = self._now_s
        state.node = self._core.node_of(state.id)
        self._think(state)

    def _think(self, state: _Open) -> None:
        """Plan the next turn after its thinking time, or the end."""
        turns = state.rollout.turns
        if state.turns < len(turns):
            self._plan(self._now_s + turns[state.turns].thinking_s, self._turn, state)
        else:
            self._plan(self._now_s, self._close, state)

    def _turn(self, state: _Open) -> None:
        calls = state.rollout.turns[state.turns].calls
        state.turns += 1
        state.outstanding = len(calls)
        for call in calls:
            self._make(call, state)
        if not calls:
            self._think(state)

    def _close(self, state: _Open) -> None:
        self._core.close(state.id, self._now_s)
        self._rollouts[state.number] = SimulatedRollout(state.id, state.rollout.at_s, state.opened_at_s, self._now_s)

    def _make(self, call: Call, state: _Open | None) -> None:
        """Submit a call, as the runtime does."""
        action_id = self._new_id()
        if state is None:
            pending = PendingAction(action_id, self._demands.outside(call, action_id), self._now_s, call.key)
        else:
            memory_bytes = state.rollout.memory_bytes
            demand = self._demands.inside(call, action_id, memory_bytes=memory_bytes, node=state.node)
            turn = demand.reserved > 0 or in_sandbox(call.spec)
            pending = PendingAction(action_id, demand, self._now_s, call.key, state.id, turn)
        self._core.submit(pending)
        self._made[pending.id] = _Made(len(self._calls), call, pending, state)
        self._calls.append(None)

    def _start(self, running: RunningAction) -> None:
        seat = running.seat
        begins_s = self._now_s if seat is None else self._sit(seat)
        call = self._made[running.pending.id].call
        progress = self._progress[running.pending.id] = Progress(call, running, begins_s)
        self._plan_end(progress)

    def _sit(self, seat: Seat) -> float:
        """Make a seat real; return from when on it can be used."""
        restore = self._restores.take(seat, self._now_s)
        if restore is not None:
            self._plan(restore.at_s, self._restored, restore)
        return self._restores.ready_s(seat, self._now_s)

    def _restored(self, restore: Restore) -> None:
        self._core.seating.restored(restore.instance, restore.took_s, self._now_s)

    def _resize(self, running: RunningAction) -> None:
        progress = self._progress[running.pending.id]
        progress.change(running.units, self._now_s, self._switch_s)
        self._plan_end(progress)

    def _plan_end(self, progress: Progress) -> None:
        progress.event = self._sequence
        end_s, by_timeout = progress.ends_s()
        if end_s < math.inf:
            self._plan(end_s, self._time_out if by_timeout else self._end, progress)
        else:
            self._sequence += 1

    def _end(self, progress: Progress) -> None:
        self._finish(progress, Outcome.OK, None if self._known else progress.held_s(self._now_s))

    def _time_out(self, progress: Progress) -> None:
        self._finish(progress, Outcome.RUN_TIMEOUT, None)

    def _finish(self, progress: Progress, outcome: Outcome, learned_s: float | None) -> None:
        action_id = progress.running.pending.id
        self._core.finish(action_id, self._now_s, learned_s)
        self._conclude(self._made[action_id], outcome)

    def _conclude(self, made: _Made, outcome: Outcome) -> None:
        pending = made.pending
        progress = self._progress.pop(pending.id, None)
        del self._made[pending.id]
        state = made.rollout
        ended = SimulatedCall(
            pending.id,
            made.call.spec.name,
            pending.key,
            None if state is None else state.number,
            outcome,
            pending.submitted_at_s,
            self._now_s,
            self._now_s,
            0,
        )
        self._calls[made.place] = ended if progress is None else progress.told_in(ended)
        if state is not None:
            state.outstanding -= 1
            if state.outstanding == 0:
                self._think(state)

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id


def _is_void(sequence: int, _: object, subject: object) -> bool:
    """Whether an event is the end of a call that was resized since, which was planned anew."""
    return isinstance(subject, Progress) and subject.event != sequence
