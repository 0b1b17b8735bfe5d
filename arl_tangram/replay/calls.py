"""A call that was measured, as the simulator makes it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from arl_tangram.simulate.calls import Call, Workload


@dataclass(frozen=True, slots=True)
class MeasuredCall(Call):
    """A call with what was measured besides its work and does not depend on its cores; `work_s` is without that.

    Attributes:
        overhead_s: from its submission to its end, what was neither queueing nor its own time.
        waited_s: for what the simulation does not know and therefore keeps: the wait for a seat of a GPU.
        cpu_s: CPU seconds of its commands.
    """

    overhead_s: float = 0.0
    waited_s: float = 0.0
    cpu_s: float = 0.0

    def duration_s(self, units: int) -> float:
        """Seconds from the promise of its units to its end."""
        return self.waited_s + self.overhead_s + Call.duration_s(self, units)


def calls_of(workload: Workload) -> Iterator[tuple[int | None, Call]]:
    """Yield each call with the number of its rollout, those of one rollout in the order in which it makes them."""
    for arrival in sorted(workload.arrivals, key=lambda arrival: arrival.at_s):
        yield None, arrival.call
    for number, rollout in enumerate(workload.rollouts):
        for turn in rollout.turns:
            for call in turn.calls:
                yield number, call
