"""What is used of each resource right now, in whole units."""

from __future__ import annotations

from arl_tangram.model.statistics import DimensionStatistics
from arl_tangram.model.topology import is_breaker
from arl_tangram.scheduling.core import SchedulerCore


def usage_of(core: SchedulerCore) -> dict[str, DimensionStatistics]:
    """Return what there is of the dimensions of a core, by name, and what is used of it; breakers are none of them."""
    return {
        d.name: DimensionStatistics(core.capacity(i) / d.scale, core.used(i) / d.scale, core.free(i) / d.scale)
        for i, d in enumerate(core.topology.dimensions)
        if not is_breaker(d.name)
    }
