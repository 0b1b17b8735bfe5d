"""What a policy needs of each resource to keep a goal: each reduced alone, then all of them together.

1. Start from what was recorded. If the goal is not kept there, the cores are doubled until it is, up to so many that no
   call ever waits for one; if it is not kept then either, no number of cores will do.
2. Each resource alone is reduced as far as the goal is kept, the others staying as they are (`search.smallest`).
3. All of them together are given what they need alone. As each slows the run a little, the goal may be missed: then all
   are enlarged in equal ratios, in eighths of the way back to the start, until it is kept.
4. From there, each is reduced once more with the others as they are by then, the cores first, as the dearest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.quantities import MILLI
from arl_tangram.model.topology import Topology
from arl_tangram.plan.goal import Goal, Runs, Taken
from arl_tangram.plan.resources import CORES, Resource
from arl_tangram.plan.search import smallest
from arl_tangram.replay.variants import Variant
from arl_tangram.simulate.calls import Call, Workload

_EIGHTHS = 8
Levels = dict[Resource, int]


@dataclass(frozen=True, slots=True)
class Alone:
    """One resource, reduced while the others stay as they are.

    Attributes:
        resource: which.
        amount: how much of it is needed, in its unit.
        tried: what a run takes with how much of it, ascending; None where it is not possible.
    """

    resource: Resource
    amount: float
    tried: tuple[tuple[float, Taken | None], ...]


@dataclass(frozen=True, slots=True)
class First:
    """What a policy needs of the first resource, and where to go on from.

    Attributes:
        variant: the policy.
        start: what there is to share, with which the goal is kept.
        level: steps of the first resource that are needed.
        alone: what was found out about it.
    """

    variant: Variant
    start: Topology
    level: int
    alone: Alone


@dataclass(frozen=True, slots=True)
class Need:
    """What a policy needs.

    Attributes:
        variant: the policy.
        alone: each resource by itself.
        together: what there is to share when all are reduced; the goal is kept there.
        taken: what a run takes there.
        enlarged: whether what each needs alone is not enough for all together.
    """

    variant: Variant
    alone: tuple[Alone, ...]
    together: Topology
    taken: Taken
    enlarged: bool


@dataclass(frozen=True, slots=True)
class Planner:
    """Finds what policies need for one goal.

    Attributes:
        runs: of the workload.
        recorded: what there was to share.
        resources: what can be set, at least one, the cores first.
        goal: what is to be kept.
        tell: hears in words what is looked for.
    """

    runs: Runs
    recorded: Topology
    resources: Sequence[Resource]
    goal: Goal
    tell: Callable[[str], None]

    def first(self, variant: Variant) -> First | None:
        """Return what a policy needs of the first resource; None if no number of cores is enough."""
        self.tell(f"{variant.name}: {self.resources[0].name}")
        start = self._start(variant)
        if start is None:
            return None
        return First(variant, start, *self._alone(variant, self.resources[0], start))

    def need(self, first: First) -> Need:
        """Return what a policy needs of everything."""
        variant, start = first.variant, first.start
        alone = [first.alone]
        levels = {first.alone.resource: first.level}
        for resource in self.resources[1:]:
            self.tell(f"{variant.name}: {resource.name}")
            levels[resource], one = self._alone(variant, resource, start)
            alone.append(one)
        self.tell(f"{variant.name}: all together")
        enlarged = not self._kept(_set(start, levels), variant)
        if enlarged:
            levels = self._tightened(variant, start, levels, self._enlarged(variant, start, levels))
        together = _set(start, levels)
        taken = self.runs.taken(together, variant)
        if taken is None or not self.goal.kept_by(taken):
            raise AssertionError(f"{variant.name} was found to keep the goal and does not: {taken}")
        return Need(variant, tuple(alone), together, taken, enlarged)

    def _start(self, variant: Variant) -> Topology | None:
        """Return what there was, with more cores if the policy needs them; None if that does not help."""
        topology, cores = self.recorded, self.resources[0]
        most = most_cores(self.runs.workload, variant) if cores.name == CORES else 0
        while not self._kept(topology, variant):
            level = cores.level_in(topology)
            if level >= most:
                return None
            topology = cores.at(topology, min(2 * level, most))
        return topology

    def _kept(self, topology: Topology, variant: Variant) -> bool:
        return self.goal.kept_by(self.runs.taken(topology, variant))

    def _alone(self, variant: Variant, resource: Resource, start: Topology) -> tuple[int, Alone]:
        """Return how many steps a resource can be reduced to, from a start that keeps the goal."""
        tried = {resource.amount(start): self.runs.taken(start, variant)}

        def keeps(level: int) -> bool:
            topology = resource.at(start, level)
            taken = tried[resource.amount(topology)] = self.runs.taken(topology, variant)
            return self.goal.kept_by(taken)

        least = smallest(keeps, 1, resource.level_in(start))
        return least, Alone(resource, resource.amount(resource.at(start, least)), tuple(sorted(tried.items())))

    def _enlarged(self, variant: Variant, start: Topology, least: Levels) -> Levels:
        """Return levels between what each needs alone and the start, with which the goal is kept together."""
        whole = {resource: resource.level_in(start) for resource in least}
        found = smallest(lambda part: self._kept(_set(start, _between(least, whole, part)), variant), 1, _EIGHTHS)
        return _between(least, whole, found)

    def _tightened(self, variant: Variant, start: Topology, least: Levels, levels: Levels) -> Levels:
        """Return the levels after each has been reduced again, one after the other."""
        found = dict(levels)
        for resource in levels:

            def keeps(level: int, resource: Resource = resource) -> bool:
                return self._kept(_set(start, found | {resource: level}), variant)

            found[resource] = smallest(keeps, least[resource], found[resource])
        return found


def most_cores(workload: Workload, variant: Variant) -> int:
    """Return a number of cores with which nothing ever waits for one."""
    reserved = variant.policy.reserved_cores
    rollouts = sum(
        max(reserved, *(sum(_most(call) for call in turn.calls) for turn in rollout.turns), 0)
        for rollout in workload.rollouts
    )
    return max(1, rollouts + sum(_most(arrival.call) for arrival in workload.arrivals))


def _most(call: Call) -> int:
    cpu = call.spec.cost.cpu
    return cpu.maximum if isinstance(cpu, Elastic) else -(-cpu // MILLI)


def _set(start: Topology, levels: Mapping[Resource, int]) -> Topology:
    topology = start
    for resource, level in levels.items():
        topology = resource.at(topology, level)
    return topology


def _between(least: Levels, whole: Levels, part: int) -> Levels:
    """Return levels in equal ratios between two, after so many eighths of the way."""
    return {
        resource: min(whole[resource], round(level * (whole[resource] / level) ** (part / _EIGHTHS)))
        for resource, level in least.items()
    }
