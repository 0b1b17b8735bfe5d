"""Otherwise than it was recorded: another policy, order, pool or batch, and what that would have taken."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.quantities import GIB, MILLI
from arl_tangram.model.sharing import Sharing
from arl_tangram.model.topology import CPU, MEMORY, Topology
from arl_tangram.replay.predicted import figures_of
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies import elastic, fixed, paper, reserved, size_aware
from arl_tangram.scheduling.policy import Policy
from arl_tangram.simulate.calls import Rollout, Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.results import Result
from arl_tangram.trace.figures import Figures

SWITCH_S = 0.0002
"""What a change of the cores of a running action costs where its cgroup is written directly, generously."""

_POLICIES: dict[str, Callable[[], Policy]] = {"elastic": elastic, "paper": partial(paper, best_prefix=True)}
_WITH_CORES: dict[str, Callable[[int], Policy]] = {"fixed": fixed, "reserved": reserved}
_NAMED = re.compile(r"(?P<name>[a-z]+)(\((?P<cores>[0-9]{1,6})?\))?")


@dataclass(frozen=True, slots=True)
class Variant:
    """How to run a workload.

    Attributes:
        policy: who starts, and on how many cores.
        order: who comes first.
        share: whether running actions share their cores; with a policy that reserves cores they never do.
    """

    policy: Policy
    order: Order = "fcfs"
    share: bool = False

    @property
    def shares(self) -> bool:
        """Whether running actions share their cores under this policy."""
        return self.share and not self.policy.reserved_cores

    @property
    def name(self) -> str:
        """What tables call it."""
        order = "" if self.order == "fcfs" else f", {self.order}"
        return f"{self.policy.name}{order}{', resize' if self.shares else ''}"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a variant would have taken.

    Attributes:
        variant: how it was run.
        topology: what there was to share.
        figures: as those of a measured run.
    """

    variant: Variant
    topology: Topology
    figures: Figures


def policy_named(name: str) -> Policy:
    """Return a policy by what it is called: `elastic`, `paper`, `fixed(4)` or `reserved(1)`.

    Raises:
        ConfigurationError: there is none of that name, or it takes a number of cores.
    """
    found = _NAMED.fullmatch(name.strip())
    cores = None if found is None or found["cores"] is None else int(found["cores"])
    if found is not None and cores is None and found["name"] in _POLICIES:
        return _POLICIES[found["name"]]()
    if found is not None and cores and found["name"] in _WITH_CORES:
        return _WITH_CORES[found["name"]](cores)
    raise ConfigurationError(f"unknown policy {name!r}: there are elastic, paper, fixed(N) and reserved(N)")


def predict(workload: Workload, topology: Topology, variant: Variant, *, host: int = 0) -> Prediction:
    """Run a workload in virtual time.

    Args:
        workload: what happens.
        topology: what there is to share.
        variant: how.
        host: the number of the node where what is outside of sandboxes runs, if there are several.

    Raises:
        InfeasibleError: a call or trajectory that the topology can never meet.
    """
    result = simulated(workload, topology, variant, host=host, record=True)
    return Prediction(variant, topology, figures_of(result, workload, topology))


def simulated(
    workload: Workload, topology: Topology, variant: Variant, *, host: int = 0, record: bool = False
) -> Result:
    """Return the run of which `predict` tells; with its events where it is recorded, which takes longer."""
    sharing = Sharing(size_aware(), SWITCH_S) if variant.shares else None
    return simulate(workload, topology, variant.policy, order=variant.order, record=record, host=host, sharing=sharing)


def with_cores(topology: Topology, cores: int) -> Topology:
    """Return what there is to share with another number of cores.

    Raises:
        ConfigurationError: there is no pool of cores, or it has several nodes.
    """
    return topology.with_capacity(_only(topology, CPU, "cores"), cores * MILLI)


def with_memory(topology: Topology, gib: float) -> Topology:
    """Return what there is to share with another amount of memory.

    Raises:
        ConfigurationError: memory is not counted, or there are several nodes.
    """
    return topology.with_capacity(_only(topology, MEMORY, "memory"), round(gib * GIB))


def of_batch(workload: Workload, rollouts: int) -> Workload:
    """Return so many trajectories: the first ones, or all of them again and again, each as it was recorded.

    Raises:
        ConfigurationError: there are none, or calls outside of trajectories, which belong to none.
    """
    if not workload.rollouts:
        raise ConfigurationError("--batch takes trajectories, and the recording has none")
    if workload.arrivals:
        raise ConfigurationError(
            f"--batch takes trajectories only, and {len(workload.arrivals):,} of the recorded calls are outside of any"
        )
    there = workload.rollouts
    made: list[Rollout] = [there[number % len(there)] for number in range(rollouts)]
    return replace(workload, rollouts=tuple(made))


def _only(topology: Topology, name: str, words: str) -> int:
    index = topology.index.get(name)
    if index is None:
        nodes = len(topology.nodes)
        there = f"{nodes} nodes, each with its own" if nodes > 1 else "none"
        raise ConfigurationError(f"the {words} of the recorded run cannot be set: it has {there}")
    return index
