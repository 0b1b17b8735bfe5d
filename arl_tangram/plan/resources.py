"""What can be set for a run: its cores, its memory and the limits of its quotas, each as one number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.topology import CPU, MEMORY, Dimension, QuotaKey, Topology, resource_of
from arl_tangram.replay.calls import calls_of
from arl_tangram.simulate.calls import Workload

CORES = "cores"
MEMORY_GIB = "memory, GiB"
_MEMORY_STEP = GIB // 16
_COUNTED: tuple[tuple[str, Callable[[QuotaKey], tuple[int, ...]]], ...] = (
    ("calls", lambda key: key.calls),
    ("tokens", lambda key: key.tokens),
    ("concurrency", lambda key: key.concurrency),
)


@dataclass(frozen=True, slots=True)
class Resource:
    """What one number sets: a dimension, or those of all nodes or keys, which keep their proportions.

    Attributes:
        name: what it is called, with its unit.
        recorded: the dimensions of the recorded run that it sets, by their indices; all have some capacity.
        step: integer units of the smallest change of the largest of them.
        quota: the name of the quota, or empty.
        counted: `calls`, `tokens` or `concurrency` of the quota, or empty.
    """

    name: str
    recorded: tuple[tuple[int, Dimension], ...]
    step: int
    quota: str = ""
    counted: str = ""

    @property
    def level(self) -> int:
        """How many steps the largest had in the recorded run; a part of one is counted as one."""
        return -(-self._largest // self.step)

    @property
    def window_s(self) -> float | None:
        """For a rate, its seconds; infinite for a budget."""
        return self.recorded[0][1].window_s

    def level_in(self, topology: Topology) -> int:
        """Return how many steps the largest has."""
        return -(-max(topology.dimensions[index].capacity for index, _ in self.recorded) // self.step)

    def at(self, topology: Topology, level: int) -> Topology:
        """Return what there is to share, with so many steps, from 1; of as many as recorded it is what was recorded."""
        dimensions = list(topology.dimensions)
        for index, was in self.recorded:
            steps = -(-was.capacity * level // self._largest)  # rounded up: no node and no key is left without
            capacity = was.capacity if level == self.level else steps * self.step
            dimensions[index] = replace(dimensions[index], capacity=capacity)
        return Topology(dimensions)

    def amount(self, topology: Topology) -> float:
        """Return how much of it there is, in its unit, all nodes together; of a quota with keys, for the first one."""
        counted = self.recorded[:1] if self.quota else self.recorded
        return sum(topology.dimensions[index].capacity for index, _ in counted) / self.recorded[0][1].scale

    @property
    def _largest(self) -> int:
        return max(dimension.capacity for _, dimension in self.recorded)


def resources_of(topology: Topology, workload: Workload) -> list[Resource]:
    """Return what a workload uses and can be set: the cores first, then memory, then quotas in their order.

    Threads and worker processes of the runtime are not among them, nor are limits of sandboxes, breakers and GPUs.
    """
    costs = [call.spec.cost for _, call in calls_of(workload)]
    found: list[Resource] = []
    if any(cost.cpu for cost in costs):
        found += _of_nodes(topology, CPU, CORES, MILLI)
    if any(cost.memory_bytes for cost in costs) or any(rollout.memory_bytes for rollout in workload.rollouts):
        found += _of_nodes(topology, MEMORY, MEMORY_GIB, _MEMORY_STEP)
    calls = {name for cost in costs for name, _ in cost.quota}
    tokens = {name for cost in costs for name, _ in cost.tokens}
    for name, keys in topology.quotas.items():
        for counted, of_key in _COUNTED:
            if name in (tokens if counted == "tokens" else calls):
                found += _of_quota(topology, name, counted, [of_key(key) for key in keys])
    return found


def _of_nodes(topology: Topology, resource: str, name: str, step: int) -> Iterator[Resource]:
    dimensions = [(i, d) for i, d in enumerate(topology.dimensions) if resource_of(d.name) == resource and d.capacity]
    if dimensions:
        yield Resource(name, tuple(dimensions), step)


def _of_quota(topology: Topology, name: str, counted: str, keys: Sequence[tuple[int, ...]]) -> Iterator[Resource]:
    """Yield each limit of a quota; its keys, if it has several, have the same ones."""
    for place in range(len(keys[0])):
        dimensions = tuple((key[place], topology.dimensions[key[place]]) for key in keys)
        window_s = dimensions[0][1].window_s
        per = "" if window_s is None else " in all" if math.isinf(window_s) else f" in {window_s:g} s"
        if all(dimension.capacity for _, dimension in dimensions):
            yield Resource(f"{name}: {counted}{per}", dimensions, dimensions[0][1].scale, name, counted)
