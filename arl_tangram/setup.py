"""What a runtime is made from, checked: its pool, its quotas, and how it schedules."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.manager import GpuManager
from arl_tangram.managers.manager import CpuManager, CpuPool, GpuPool
from arl_tangram.managers.quota import Quota
from arl_tangram.model.quantities import seconds, whole
from arl_tangram.model.sharing import Share, SharePolicy, check_share
from arl_tangram.model.topology import CPU, GPU, PROCESSES, THREADS, Dimension, Topology, resource_of, service_seats
from arl_tangram.scheduling.gpu.eviction import make_eviction
from arl_tangram.scheduling.gpu.seats import Seats
from arl_tangram.scheduling.order import Order, order_of
from arl_tangram.scheduling.policies import Plan, Policy, elastic, size_aware
from arl_tangram.scheduling.policies.own import policy_of
from arl_tangram.trace.sink import Sink


@dataclass(frozen=True, slots=True)
class Setup:
    """What a runtime is made from.

    Attributes:
        pool: of cores, or None.
        gpus: the pool of GPUs, or None.
        quotas: of APIs.
        policy: how candidates share the cores.
        share: how running actions share them, or None.
        order: who comes first among those of one priority.
        trace: where the trace goes, or None.
        kill_grace_s: seconds that a cancelled body has to end.
        max_threads: plain bodies that may run at once.
        max_processes: bodies that may run in worker processes at once; None for twice as many as cores, at least 8.
    """

    pool: CpuPool | None
    gpus: GpuPool | None
    quotas: tuple[Quota, ...]
    policy: Policy
    order: Order
    trace: str | PathLike[str] | Sink | None
    kill_grace_s: float
    max_threads: int
    max_processes: int | None
    share: SharePolicy | None = None

    def topology(
        self, offered: Sequence[Dimension], cores: int, seats: Seats | None, services: Sequence[str]
    ) -> Topology:
        """Return all that there is to share.

        Args:
            offered: what the pool of cores has.
            cores: how many of them are for bodies in worker processes.
            seats: those of the pool of GPUs.
            services: the names of what there is on these.
        """
        dimensions = [*offered, Dimension(THREADS, self.max_threads)]
        for quota in self.quotas:
            dimensions += quota.dimensions()
        dimensions.append(Dimension(PROCESSES, self.max_processes or max(2 * cores, 8)))
        if seats is not None:
            dimensions.append(Dimension(GPU, seats.devices))
            dimensions += [Dimension(service_seats(name), seats.capacity_of(name)) for name in services]
        return Topology(dimensions)


def checked(
    resources: Sequence[Any],
    *,
    policy: Policy | Plan | None,
    order: Order,
    trace: str | PathLike[str] | Sink | None,
    kill_grace_s: float,
    max_threads: int,
    max_processes: int | None,
) -> Setup:
    """Return the setup of a runtime; see `Tangram`.

    Raises:
        ConfigurationError: pools, quotas or options that cannot work.
    """
    quotas = tuple(found for found in resources if isinstance(found, Quota))
    gpus = [found for found in resources if not isinstance(found, type) and hasattr(found, "services")]
    pools = [found for found in resources if not isinstance(found, Quota) and found not in gpus]
    for pool in pools:
        if isinstance(pool, type) or not callable(getattr(pool, "manager", None)):
            raise ConfigurationError(f"Tangram() takes pools and quotas, not {pool!r}")
    if len(pools) > 1:
        raise ConfigurationError(f"Tangram() takes one pool of cores, not {len(pools)}: {pools}")
    if len(gpus) > 1:
        raise ConfigurationError(f"Tangram() takes one pool of GPUs, not {len(gpus)}: {gpus}")
    names = [quota.name for quota in quotas]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"two quotas have the same name: {', '.join(names)}")
    if max_processes is not None:
        max_processes = whole(max_processes, "max_processes", ConfigurationError, least=1)
    pool = pools[0] if pools else None
    chosen = elastic() if policy is None else policy_of(policy)
    return Setup(
        pool=pool,
        gpus=gpus[0] if gpus else None,
        quotas=quotas,
        policy=chosen,
        order=order_of(order),
        trace=trace,
        kill_grace_s=seconds(kill_grace_s, "kill_grace_s", ConfigurationError),
        max_threads=whole(max_threads, "max_threads", ConfigurationError, least=1),
        max_processes=max_processes,
        share=_share_of(pool, chosen),
    )


def _share_of(pool: CpuPool | None, policy: Policy) -> SharePolicy | None:
    """Return how running actions are to share the cores of a pool; None if they are not.

    Raises:
        ConfigurationError: a pool of the user's own says what makes no sense, or each trajectory is to keep its cores.
    """
    share: Share = getattr(pool, "share", None)  # a pool of the user's own may know nothing of it
    if share is None:
        return None
    check_share(share, type(pool).__name__)
    if policy.reserved_cores:
        raise ConfigurationError(
            f"policy={policy.name} lets each trajectory keep its cores, and {type(pool).__name__}(share=) lets running "
            "actions share them; leave one of them out"
        )
    return size_aware() if share == "resize" else share


def seats_of(gpu: GpuManager) -> Seats:
    """Return the seats of a pool of GPUs whose manager has started; nobody sits there."""
    return Seats(gpu.nodes, gpu.services, make_eviction(gpu.policy))


def cores_of(cpu: CpuManager | None) -> int:
    """Return how many cores host bodies have: those of the node that is this machine, else those of this process."""
    host = None if cpu is None else cpu.host_node()
    if cpu is None or host is None:
        return len(os.sched_getaffinity(0))
    offered = [d.capacity // d.scale for d in cpu.dimensions() if resource_of(d.name) == CPU]
    return offered[host]
