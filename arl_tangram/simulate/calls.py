"""What is simulated: calls with their true durations, those that arrive by themselves, and rollouts that think."""

from __future__ import annotations

from dataclasses import dataclass

from arl_tangram.model.elasticity import Elastic, Speedup
from arl_tangram.model.lifecycle import ActionSpec


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an action, and how long it really takes, which the scheduler is not told.

    Attributes:
        spec: what is declared, as by the decorator; calls of one action share one object.
        work_s: seconds that it really takes on one core, or on one GPU if it uses a service or has GPUs to itself, or
            that it takes if it has neither; from 0.
        speedup: how it really speeds up over whole cores, or GPUs; None if more of them do not help.
        key: calls of an action with the same key share what is learned.
    """

    spec: ActionSpec
    work_s: float
    speedup: Speedup | None = None
    key: str = ""

    def duration_s(self, units: int) -> float:
        """Seconds that it really takes on whole cores or GPUs; cores beyond the most that it declares do not help."""
        if self.speedup is None or units == 0:
            return self.work_s
        cpu = self.spec.cost.cpu
        return self.work_s / self.speedup(min(units, cpu.maximum) if isinstance(cpu, Elastic) else units)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A call outside any trajectory, made at a given time whatever became of others.

    Attributes:
        at_s: when; from 0.
        call: what.
    """

    at_s: float
    call: Call


@dataclass(frozen=True, slots=True)
class Turn:
    """A step of a rollout: the model thinks, then its calls are made at once, and all of them have ended.

    Attributes:
        thinking_s: seconds before the calls; from 0.
        calls: in order; none if the model only thinks.
    """

    thinking_s: float
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Rollout:
    """A trajectory: it waits for what it holds, makes its turns one after the other, and closes.

    A call that gives up or is ended by its `timeout` does not end the rollout.

    Attributes:
        turns: in order.
        at_s: when it wants to open; from 0.
        memory_bytes: what it holds from its admission to its end.
        group: a name for what belongs together, or None.
    """

    turns: tuple[Turn, ...]
    at_s: float = 0.0
    memory_bytes: int = 0
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """All that happens in a simulated run.

    Attributes:
        arrivals: calls outside trajectories; of those at one time, the first comes first.
        rollouts: trajectories; of those at one time, the first comes first, after the arrivals.
    """

    arrivals: tuple[Arrival, ...] = ()
    rollouts: tuple[Rollout, ...] = ()
