"""The same workload with other declarations: what the scheduler is told of how long its actions take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import fmean

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.simulate.calls import Call, Workload
from arl_tangram.simulate.workloads.checks import check_factor


def with_durations(workload: Workload, factor: float | Mapping[str, float] = 1.0) -> Workload:
    """Return the same calls, each action declaring its mean work times a factor as `duration_s`.

    Args:
        workload: what happens; nothing of it changes but what is declared.
        factor: above 0; 1 declares the truth. Or by the names of actions, each its own; others declare the truth.

    Raises:
        ConfigurationError: another factor, or one of an action that there is not.
    """
    factors = factor if isinstance(factor, Mapping) else {}
    common = 1.0 if isinstance(factor, Mapping) else factor
    for one in (common, *factors.values()):
        check_factor(one)
    work: dict[int, list[float]] = {}
    specs: dict[int, ActionSpec] = {}
    for call in _calls(workload):
        specs[id(call.spec)] = call.spec
        work.setdefault(id(call.spec), []).append(call.work_s)
    unknown = [name for name in factors if name not in {spec.name for spec in specs.values()}]
    if unknown:
        raise ConfigurationError(f"there is no action {unknown[0]!r} whose duration could be declared")
    told = {
        number: replace(spec, duration_s=factors.get(spec.name, common) * fmean(work[number]))
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
