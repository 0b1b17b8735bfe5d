"""How others keep the quotas of an API: each worker of the trainer its own part, or a place for each trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.lifecycle import ActionSpec
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import MEMORY, Dimension
from arl_tangram.simulate.calls import Call, Rollout, Turn, Workload


def split_quotas(
    workload: Workload, quotas: Sequence[Dimension], workers: int
) -> tuple[Workload, tuple[Dimension, ...]]:
    """Return the same trajectories, spread over workers that each keep an equal part of every quota for themselves.

    The first worker has the first trajectories, and so on. A part is rounded down to whole calls.

    Args:
        workload: trajectories only.
        quotas: the dimensions of all quotas that are asked for; none of them has keys.
        workers: from 1.

    Raises:
        ConfigurationError: a quota has less than one call for each worker.
    """
    parts: list[Dimension] = []
    for quota in quotas:
        calls = quota.capacity // MILLI
        if calls < workers:
            raise ConfigurationError(f"{quota.name} has {calls} calls, less than one for each of {workers} workers")
        for worker in range(workers):
            name = quota.name.replace("/", f"{_mark(worker)}/", 1)
            parts.append(replace(quota, name=name, capacity=calls // workers * MILLI))
    specs: dict[tuple[int, int], ActionSpec] = {}

    def told(call: Call, worker: int) -> Call:
        key = id(call.spec), worker
        if key not in specs:
            own = tuple([(f"{name}{_mark(worker)}", amount) for name, amount in call.spec.cost.quota])
            specs[key] = replace(call.spec, cost=replace(call.spec.cost, quota=own))
        return replace(call, spec=specs[key])

    def at(rollout: Rollout, worker: int) -> Rollout:
        turns = [Turn(turn.thinking_s, tuple([told(call, worker) for call in turn.calls])) for turn in rollout.turns]
        return replace(rollout, turns=tuple(turns))

    count = len(workload.rollouts)
    rollouts = [at(rollout, number * workers // count) for number, rollout in enumerate(workload.rollouts)]
    return replace(workload, rollouts=tuple(rollouts)), tuple(parts)


def places_for_trajectories(workload: Workload, places: int) -> tuple[Workload, Dimension]:
    """Return the same trajectories, of which so many go on at once: each has a place from its first to its last turn.

    A place is memory that nobody else asks for, 1 GiB of the dimension that is returned.
    """
    rollouts = [replace(rollout, memory_bytes=GIB) for rollout in workload.rollouts]
    return replace(workload, rollouts=tuple(rollouts)), Dimension(MEMORY, places * GIB, GIB)


def _mark(worker: int) -> str:
    return f".{worker}"
