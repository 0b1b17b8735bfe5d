"""How long one change of the cores of a running action takes here."""

from __future__ import annotations

import time
from statistics import median

from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.managers.manager import CpuPool
from arl_tangram.managers.one_sandbox import one_sandbox
from arl_tangram.model.quantities import MILLI

_CHANGES = 20


async def time_switches(pool: CpuPool) -> float:
    """Return the median of some changes of the cores of a sandbox that does nothing, until each is in effect.

    Raises:
        ConfigurationError: the pool has nothing to offer here.
    """
    async with one_sandbox(pool) as (manager, box):
        lease = manager.lease(MILLI, box)
        await lease.applied()
        seconds: list[float] = []
        for turn in range(_CHANGES):
            began_s = time.perf_counter()
            lease.resize(MILLI * (turn % 2))
            if isinstance(box, DockerSandbox):  # others have them at once
                await box.limits.settled()
            seconds.append(time.perf_counter() - began_s)
        lease.release()
        return median(seconds)
