"""A policy that knows all requests to come: what could be reached at best, for comparison only."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import inf

from arl_tangram.model.gpu import Instance
from arl_tangram.scheduling.gpu.eviction import Resident


class Clairvoyant:
    """The value of a resident is its restore time over the number of requests until it is wanted again.

    With equal restore times that is Belady's rule (IBM Systems Journal, 1966); with unequal ones no simple rule is the
    best one, and this one may be beaten.

    Args:
        requests: the service of each request, all that there will be.
    """

    in_seconds = True

    def __init__(self, requests: Sequence[str]) -> None:
        self._now = 0
        self._when: dict[str, list[int]] = {}
        for number, service in enumerate(requests):
            self._when.setdefault(service, []).append(number)

    def used(self, resident: Resident) -> None:
        """One more request is over."""
        self._now += 1

    def left(self, instance: Instance) -> None:
        """It makes no difference."""

    def evicted(self, instance: Instance) -> None:
        """It makes no difference."""

    def values(self, residents: Sequence[Resident], upcoming: Sequence[str]) -> list[float]:
        """Return the restore time over the distance; 0 for what is not wanted any more."""
        return [resident.restore_s / self._distance(resident.instance.service) for resident in residents]

    def _distance(self, service: str) -> float:
        when = self._when.get(service, [])
        index = bisect_right(when, self._now)
        return when[index] - self._now if index < len(when) else inf
