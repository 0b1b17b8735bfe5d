"""What the runtime adds to a call, as it was measured."""

from __future__ import annotations

from dataclasses import replace

from arl_tangram.replay.calls import MeasuredCall
from arl_tangram.simulate.calls import Call, Turn, Workload

COMMAND_S = 0.003
"""A grant, and a command's way into a sandbox and out of it.

Measured by `bench aoe`: 2 to 3 ms for an action with direct grants and commands in a session, whatever it runs; the
grant alone takes 0.08 ms of these.
"""


def with_overhead(workload: Workload, overhead_s: float = COMMAND_S) -> Workload:
    """Return the same trajectories, each of whose calls on cores takes longer by so much, on however many cores."""

    def slowed(call: Call) -> Call:
        if not call.spec.cost.cpu:
            return call
        return MeasuredCall(call.spec, call.work_s, call.speedup, call.key, overhead_s=overhead_s)

    def of_turn(turn: Turn) -> Turn:
        return replace(turn, calls=tuple([slowed(call) for call in turn.calls]))

    return replace(
        workload,
        rollouts=tuple(
            [replace(rollout, turns=tuple([of_turn(turn) for turn in rollout.turns])) for rollout in workload.rollouts]
        ),
    )
