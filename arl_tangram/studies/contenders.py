"""Who is compared: how the same trajectories are served by the scheduler, and as others do it.

- `elastic` is the scheduler as it comes, with nothing told. On cores also `paper`, `fixed(N)` and `reserved(N)`, and
  with `, resize` behind them running calls share their cores. Under `reserved(N)` a trajectory is a container with N
  cores of its own from its first to its last turn, as Kubernetes has it, and waits where there are none left.
- On services, `static` has each of them on GPUs of its own from before the run, and `serverless` loads them on demand
  at one dop, the least recently used one goes. With quotas, `static(N)` has them split over N workers of the trainer
  besides, and `reserved` lets as many trajectories go on at once as the quota of pages has places; both have static
  services.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.sharing import Sharing
from arl_tangram.model.topology import Topology
from arl_tangram.replay.variants import SWITCH_S, policy_named
from arl_tangram.scheduling.policies import elastic, size_aware
from arl_tangram.scheduling.policy import Policy
from arl_tangram.simulate.baselines import serverless, static_services
from arl_tangram.simulate.calls import Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.gpus import Gpus
from arl_tangram.simulate.results import Result
from arl_tangram.simulate.workloads import DeepSearch, Testbed
from arl_tangram.studies.overheads import with_overhead
from arl_tangram.studies.quotas import places_for_trajectories, split_quotas

OURS = "elastic"
STATIC = "static"
SERVERLESS = "serverless"
PLACES = "reserved"
_RESIZE = ", resize"
_SPLIT = re.compile(r"static\((?P<workers>[1-9][0-9]{0,5})\)")


@dataclass(frozen=True, slots=True)
class Served:
    """How a workload is served.

    Attributes:
        workload: the trajectories, as they ask for it.
        topology: cores, memory and quotas that there are.
        policy: who starts, and on how many cores.
        sharing: how running calls share their cores, if they do.
        gpus: the pool of GPUs, if there is one.
    """

    workload: Workload
    topology: Topology
    policy: Policy
    sharing: Sharing | None = None
    gpus: Gpus | None = None

    def run(self) -> Result:
        """Simulate it.

        Raises:
            InfeasibleError: a call or trajectory that the pools can never meet.
        """
        return simulate(self.workload, self.topology, self.policy, sharing=self.sharing, gpus=self.gpus)


def on_cores(workload: Workload, machines: Testbed, contender: str) -> Served:
    """Return how trajectories with sandboxes are served.

    What the runtime adds to a call is added, except under `reserved(N)`: commands cost nothing there.

    Raises:
        ConfigurationError: there is no such contender.
    """
    name = contender.removesuffix(_RESIZE)
    policy = policy_named(name)
    if policy.reserved_cores:
        if name != contender:
            raise ConfigurationError(f"{contender!r}: what is reserved for a trajectory is not shared")
        return Served(workload, Topology(machines.dimensions()), policy)
    sharing = Sharing(size_aware(), SWITCH_S) if name != contender else None
    return Served(with_overhead(workload), Topology(machines.dimensions()), policy, sharing)


def on_teachers(workload: Workload, gpus: Gpus, contender: str) -> Served:
    """Return how trajectories are served that use services only.

    Raises:
        ConfigurationError: there is no such contender, or services have no room that need it.
    """
    if contender == STATIC:
        gpus = static_services(gpus)
    elif contender == SERVERLESS:
        gpus = serverless(gpus)
    elif contender != OURS:
        raise ConfigurationError(f"unknown policy {contender!r}: there are {OURS}, {STATIC} and {SERVERLESS}")
    return Served(workload, Topology([]), elastic(), gpus=gpus)


def on_quotas(workload: Workload, asked: DeepSearch, gpus: Gpus, contender: str) -> Served:
    """Return how trajectories are served that ask APIs and a judge.

    Args:
        workload: drawn with these parameters.
        asked: the parameters, which tell the quotas.
        gpus: where the judge is.
        contender: its name.

    Raises:
        ConfigurationError: there is no such contender, or a quota cannot be split like that.
    """
    quotas = asked.quotas()
    if contender == OURS:
        return Served(workload, Topology(quotas), elastic(), gpus=gpus)
    if contender == PLACES:
        workload, places = places_for_trajectories(workload, asked.pages_at_once)
        return Served(workload, Topology([*quotas, places]), elastic(), gpus=static_services(gpus))
    split = _SPLIT.fullmatch(contender)
    if split is None:
        raise ConfigurationError(f"unknown policy {contender!r}: there are {OURS}, static(N) and {PLACES}")
    workload, parts = split_quotas(workload, quotas, int(split["workers"]))
    return Served(workload, Topology(parts), elastic(), gpus=static_services(gpus))
