"""What is to be kept, and whether a run of the simulator keeps it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.lifecycle import Outcome
from arl_tangram.model.topology import Topology
from arl_tangram.replay.variants import Variant, simulated
from arl_tangram.simulate.calls import Workload
from arl_tangram.simulate.results import Result


class Taken(NamedTuple):
    """What a run has taken.

    Attributes:
        act_s: mean ACT, in which the wait for the admission of a trajectory counts to its first call.
        step_s: from the beginning to the end.
        failed: calls that gave up waiting, or could never start.
    """

    act_s: float
    step_s: float
    failed: int


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be kept.

    Attributes:
        act_s: the most that the mean ACT may be; infinite if it may be anything.
        step_s: the most that the step may take; infinite if it may take any time.
        failed: calls that may fail; one that gives up would shorten the mean.
    """

    act_s: float = math.inf
    step_s: float = math.inf
    failed: int = 0

    def kept_by(self, taken: Taken | None) -> bool:
        """Whether a run keeps it; none does that is not possible."""
        return (
            taken is not None
            and taken.act_s <= self.act_s
            and taken.step_s <= self.step_s
            and taken.failed <= self.failed
        )


class Runs:
    """Runs one workload in virtual time, each pool and variant once.

    Args:
        workload: what happens.
        host: the number of the node where what is outside of sandboxes runs, if there are several.
    """

    def __init__(self, workload: Workload, host: int = 0) -> None:
        self.workload = workload
        self._host = host
        self._known: dict[tuple[Variant, Topology], Taken | None] = {}

    def taken(self, topology: Topology, variant: Variant) -> Taken | None:
        """Return what a run takes; None if a call or a trajectory could never have what it asks for."""
        known = (variant, topology)
        if known not in self._known:
            try:
                self._known[known] = self.possible(topology, variant)
            except InfeasibleError:
                self._known[known] = None
        return self._known[known]

    def possible(self, topology: Topology, variant: Variant) -> Taken:
        """Return what a run takes.

        Raises:
            InfeasibleError: a call or a trajectory could never have what it asks for.
        """
        return taken_of(simulated(self.workload, topology, variant, host=self._host))


def taken_of(result: Result) -> Taken:
    """Return what is compared of a run; it is what `replay` prints of it."""
    calls = len(result.calls)
    called = {call.rollout for call in result.calls}
    waited_s = math.fsum(rollout.waited_s for number, rollout in enumerate(result.rollouts) if number in called)
    act_s = (math.fsum(call.act_s for call in result.calls) + waited_s) / calls if calls else 0.0
    failed = sum(call.outcome in (Outcome.QUEUE_TIMEOUT, Outcome.ERROR) for call in result.calls)
    return Taken(act_s, result.step_s, failed)
