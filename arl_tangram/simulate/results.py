"""What a simulated run took: each call, each rollout, and the figures that compare runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from arl_tangram.model.events import Event
from arl_tangram.model.lifecycle import Outcome


class SimulatedCall(NamedTuple):
    """One call of a simulated run; times in seconds from its beginning.

    Attributes:
        id: as in the core's events; ascending in order of submission.
        name: the action's name.
        key: its key.
        rollout: the number of its rollout in the workload, from 0; None outside.
        outcome: `OK`, `RUN_TIMEOUT`, `QUEUE_TIMEOUT`, or `ERROR` for one that asked for more than was left of a budget.
        submitted_at_s: when it was made.
        started_at_s: when its units were promised; where it gave up, the end.
        ended_at_s: when its caller was answered.
        units: integer units granted of the elastic dimension or the reservation, as in `RunningAction`.
        switches: how often these were changed while it ran.
        suspended_s: for how long it had none of them while it ran.
        overhead_s: for how long it waited for its service to be restored, which was promised to it.
        gpus: those of the service that it used, or those that it had to itself.
    """

    id: int
    name: str
    key: str
    rollout: int | None
    outcome: Outcome
    submitted_at_s: float
    started_at_s: float
    ended_at_s: float
    units: int
    switches: int = 0
    suspended_s: float = 0.0
    overhead_s: float = 0.0
    gpus: int = 0

    @property
    def act_s(self) -> float:
        """Action completion time: queueing, execution and overhead."""
        return self.ended_at_s - self.submitted_at_s

    @property
    def queueing_s(self) -> float:
        """From its submission until its units were promised, or it gave up."""
        return self.started_at_s - self.submitted_at_s

    @property
    def execution_s(self) -> float:
        """From the promise of its units to its end, less overhead; the time is included for which it was suspended."""
        return self.ended_at_s - self.started_at_s - self.overhead_s


class SimulatedRollout(NamedTuple):
    """One rollout of a simulated run; times in seconds from its beginning.

    Attributes:
        id: as in the core's events.
        at_s: when it wanted to open.
        opened_at_s: when it was admitted.
        closed_at_s: when it had ended.
    """

    id: int
    at_s: float
    opened_at_s: float
    closed_at_s: float

    @property
    def waited_s(self) -> float:
        """Until it was admitted."""
        return self.opened_at_s - self.at_s

    @property
    def span_s(self) -> float:
        """From the wish to open to the end."""
        return self.closed_at_s - self.at_s


@dataclass(frozen=True, slots=True)
class Result:
    """A simulated run.

    Attributes:
        calls: in order of submission; of an open workload, in the order of its arrivals.
        rollouts: in the order of the workload.
        events: those of the core in order, if they were asked for.
        decisions: how often the core decided.
        refused: what was wrong with the policy's first plan that was refused, from which on everybody gets the least;
            None if nothing was.
    """

    calls: tuple[SimulatedCall, ...]
    rollouts: tuple[SimulatedRollout, ...]
    events: tuple[Event, ...]
    decisions: int
    refused: str | None = None

    @property
    def mean_act_s(self) -> float:
        """Mean action completion time over all calls, those that gave up included; NaN without any."""
        return _mean(call.act_s for call in self.calls)

    @property
    def mean_queueing_s(self) -> float:
        """Mean time in the queue over all calls; NaN without any."""
        return _mean(call.queueing_s for call in self.calls)

    @property
    def mean_execution_s(self) -> float:
        """Mean time that calls ran, over all of them; NaN without any."""
        return _mean(call.execution_s for call in self.calls)

    @property
    def mean_overhead_s(self) -> float:
        """Mean wait for restores over all calls; NaN without any."""
        return _mean(call.overhead_s for call in self.calls)

    @property
    def p50_act_s(self) -> float:
        """Median action completion time; NaN without calls."""
        return self.act_quantile_s(0.5)

    @property
    def p99_act_s(self) -> float:
        """The action completion time that one in a hundred exceeds; NaN without calls."""
        return self.act_quantile_s(0.99)

    def act_quantile_s(self, share: float) -> float:
        """Return the action completion time that `share` (0 to 1) of the calls do not exceed; NaN without calls."""
        return float(np.quantile([c.act_s for c in self.calls], share)) if self.calls else float("nan")

    @property
    def step_s(self) -> float:
        """From the beginning of the run to the last end of a call or rollout; 0 if there were none."""
        ends = [*(call.ended_at_s for call in self.calls), *(rollout.closed_at_s for rollout in self.rollouts)]
        return max(ends, default=0.0)

    def after(self, runs: int) -> tuple[SimulatedCall, ...]:
        """Return the calls before which at least `runs` of the same action were submitted."""
        seen: dict[str, int] = {}
        later: list[SimulatedCall] = []
        for call in self.calls:
            before = seen.get(call.name, 0)
            seen[call.name] = before + 1
            if before >= runs:
                later.append(call)
        return tuple(later)


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return float(np.mean(known)) if known else float("nan")
