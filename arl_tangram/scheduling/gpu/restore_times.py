"""What a restore is expected to take: as declared until one was measured, then the mean of those that were."""

from __future__ import annotations

import math
from collections.abc import Iterable

from arl_tangram.model.gpu import HostedService, Instance
from arl_tangram.scheduling.relative import LONGEST_S
from arl_tangram.scheduling.running_mean import SHORTEST_S, RunningMean


class RestoreTimes:
    """Expected restores in seconds, from 1e-6 to 1e7, by instance."""

    __slots__ = ("_declared", "_measured")

    def __init__(self, services: Iterable[HostedService]) -> None:
        self._declared = {
            Instance(service.name, dop): _bounded(seconds) for service in services for dop, seconds in service.restore_s
        }
        self._measured: dict[Instance, RunningMean] = {}

    def expected_s(self, instance: Instance) -> float:
        """Return what a restore of an instance is expected to take."""
        measured = self._measured.get(instance)
        return self._declared.get(instance, SHORTEST_S) if measured is None else measured.mean_s

    def add(self, instance: Instance, took_s: float) -> None:
        """Take note of what a restore took; what is no duration is ignored."""
        if not math.isfinite(took_s) or took_s < 0:
            return
        took_s = _bounded(took_s)
        measured = self._measured.get(instance)
        if measured is None:
            self._measured[instance] = RunningMean(took_s)
        else:
            measured.add([took_s])


def _bounded(seconds: float) -> float:
    return LONGEST_S if not math.isfinite(seconds) else min(max(seconds, SHORTEST_S), LONGEST_S)
