"""A workload made of recorded trajectories: they start together, think as long as they did, and call one at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from arl_tangram.model.cost import Cost
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import MILLI
from arl_tangram.replay.recording import Recorded
from arl_tangram.replay.tables import RecordingError
from arl_tangram.simulate.calls import Call, Rollout, Turn, Workload

_DAY_S = 86_400.0


@dataclass(slots=True)
class Repairs:
    """What was changed about the recording.

    Attributes:
        endless: calls whose end was not recorded, which are left out.
        unsorted: calls that come in the file after one that began later, which are made in the order of time.
        overlapping: calls that began before one before them had ended, which are made when it has.
        overrun: trajectories that had ended before their calls had, which end with them.
        twice: calls that are there more than once, with the same times and tool, each of which is made.
        late: trajectories whose first call begins a day after them or later, as if its time were that of a clock.
    """

    endless: int = 0
    unsorted: int = 0
    overlapping: int = 0
    overrun: int = 0
    twice: int = 0
    late: int = 0


def told(repairs: Repairs) -> list[str]:
    """Say what is not as it was recorded."""
    said = (
        (repairs.overlapping, "Calls that began before one before them had ended, and are made when it has"),
        (repairs.unsorted, "Calls behind one that began later, which are made in the order of time"),
        (repairs.endless, "Calls without a recorded end, which are left out"),
        (repairs.overrun, "Trajectories that are shorter than their calls, and end with the last of these"),
        (repairs.twice, "Calls that are there again, with the same times and tool, and are made again"),
        (
            repairs.late,
            "Trajectories that think for a day or longer before their first call (are these times of a clock?)",
        ),
    )
    return [f"{what}: {count:,}." for count, what in said if count]


def workload_of(recorded: Iterable[Recorded]) -> tuple[Workload, Repairs]:
    """Return a rollout for each trajectory, and what of it is not as it was recorded.

    Each call takes one core; calls of one tool are calls of one action. Between the end of a call and the next one the
    rollout thinks as long as it did: until that one began, counted from when all before it had ended. After the last
    one it thinks until its span is over.

    Raises:
        RecordingError: no call has a recorded end.
    """
    repairs = Repairs()
    specs: dict[str, ActionSpec] = {}
    rollouts = tuple(_rollout(one, specs, repairs) for one in recorded)
    if not specs:
        raise RecordingError(f"of {repairs.endless:,} calls, none has a recorded end")
    return Workload(rollouts=rollouts), repairs


def _rollout(recorded: Recorded, specs: dict[str, ActionSpec], repairs: Repairs) -> Rollout:
    turns: list[Turn] = []
    repairs.late += min((call.start_s for call in recorded.calls), default=0.0) >= _DAY_S
    lasting = [call for call in recorded.calls if call.duration_s]
    repairs.twice += len(lasting) - len(set(lasting))
    before_s = ended_s = 0.0
    for call in recorded.calls:
        repairs.unsorted += call.start_s < before_s
        before_s = max(before_s, call.start_s)
    for call in sorted(recorded.calls, key=lambda call: call.start_s):
        if call.duration_s is None:
            repairs.endless += 1
            continue
        repairs.overlapping += call.start_s < ended_s
        name = call.tool or "call"
        spec = specs.setdefault(name, ActionSpec(name, Cost(cpu=MILLI)))
        turns.append(Turn(max(0.0, call.start_s - ended_s), (Call(spec, call.duration_s),)))
        ended_s = max(ended_s, call.start_s + call.duration_s)
    if recorded.span_s is not None:
        repairs.overrun += recorded.span_s < ended_s
        turns.append(Turn(max(0.0, recorded.span_s - ended_s)))
    return Rollout(tuple(turns))
