"""Count what services have cost and were used for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from arl_tangram.model.gpu import ServiceStatistics


class Counts:
    """The numbers of all services of a pool, by name."""

    def __init__(self, services: Iterable[str] = ()) -> None:
        self._by_service = {name: ServiceStatistics() for name in services}

    def used(self, service: str, *, asked: bool) -> None:
        """An action has taken a seat; whether it is to be restored for it."""
        found = self._by_service[service]
        self._by_service[service] = replace(found, uses=found.uses + 1, asked=found.asked + asked)

    def restored(self, service: str, took_s: float) -> None:
        """A restore has worked."""
        found = self._by_service[service]
        self._by_service[service] = replace(found, restores=found.restores + 1, restore_s=found.restore_s + took_s)

    def failed(self, service: str) -> None:
        """A restore has failed."""
        found = self._by_service[service]
        self._by_service[service] = replace(found, failures=found.failures + 1)

    def evicted(self, service: str) -> None:
        """An eviction has ended."""
        found = self._by_service[service]
        self._by_service[service] = replace(found, evictions=found.evictions + 1)

    def moved(self, service: str) -> None:
        """A resident was moved within a device."""
        found = self._by_service[service]
        self._by_service[service] = replace(found, moves=found.moves + 1)

    def lost(self, service: str) -> None:
        """A resident has died."""
        found = self._by_service[service]
        self._by_service[service] = replace(found, losses=found.losses + 1)

    def read(self) -> Mapping[str, ServiceStatistics]:
        """Return what was counted so far."""
        return dict(self._by_service)
