"""The same workload with other declarations: what the scheduler is told of how long its actions take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.simulate.calls import Call, Workload
from arl_tangram.simulate.workloads.checks import check_factor


def with_durations(workload: Workload, factor: float = 1.0) -> Workload:
    """Return the same calls, each action declaring its mean work times a factor as `duration_s`.

    Args:
        workload: what happens; nothing of it changes but what is declared.
        factor: above 0; 1 declares the truth.

    Raises:
        ConfigurationError: another factor.
    """
    check_factor(factor)
    work: dict[int, list[float]] = {}
    specs: dict[int, ActionSpec] = {}
    for call in _calls(workload):
        specs[id(call.spec)] = call.spec
        work.setdefault(id(call.spec), []).append(call.work_s)
    told = {
        number: replace(spec, duration_s=factor * sum(work[number]) / len(work[number])) if sum(work[number]) else spec
        for number, spec in specs.items()
    }

    def tell(call: Call) -> Call:
        return replace(call, spec=told[id(call.spec)])

    return Workload(
        tuple([replace(arrival, call=tell(arrival.call)) for arrival in workload.arrivals]),
        tuple(
            [
                replace(
                    rollout,
                    turns=tuple([replace(turn, calls=tuple([tell(c) for c in turn.calls])) for turn in rollout.turns]),
                )
                for rollout in workload.rollouts
            ]
        ),
    )


def _calls(workload: Workload) -> Iterator[Call]:
    for arrival in workload.arrivals:
        yield arrival.call
    for rollout in workload.rollouts:
        for turn in rollout.turns:
            yield from turn.calls
