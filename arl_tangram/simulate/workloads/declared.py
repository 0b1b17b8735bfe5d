"""The same workload with other declarations: what the scheduler is told of how long its actions take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import fmean

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.simulate.calls import Call, Workload
from arl_tangram.simulate.workloads.checks import check_factor


def with_durations(workload: Workload, factor: float = 1.0, *, of: Mapping[str, float] | None = None) -> Workload:
    """Return the same calls, each action declaring its mean work times a factor as `duration_s`.

    Args:
        workload: what happens; nothing of it changes but what is declared.
        factor: above 0; 1 declares the truth.
        of: other factors for some actions, by their names.

    Raises:
        ConfigurationError: another factor, or one for an action that there is not.
    """
    factors = dict(of or {})
    for one in (factor, *factors.values()):
        check_factor(one)
    work: dict[int, list[float]] = {}
    specs: dict[int, ActionSpec] = {}
    for call in _calls(workload):
        specs[id(call.spec)] = call.spec
        work.setdefault(id(call.spec), []).append(call.work_s)
    there = {spec.name for spec in specs.values()}
    for name in factors:
        if name not in there:
            raise ConfigurationError(f"there is no action {name!r} that could declare its duration")
    told = {
        number: replace(spec, duration_s=factors.get(spec.name, factor) * fmean(work[number]))
        if sum(work[number])
        else spec
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
