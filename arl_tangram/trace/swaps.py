"""Add up what became of the services of a pool of GPUs: uses, restores, evictions."""

from __future__ import annotations

from arl_tangram.model.events import ActionStarted, RestoreFailed, ServiceEvicted, ServiceLost, ServiceRestored
from arl_tangram.model.gpu import ServiceStatistics
from arl_tangram.trace.figures import ServiceFigures
from arl_tangram.trace.tally import ratio, sane


class _Swaps:
    """The counts of one service."""

    __slots__ = ("asked", "evictions", "failures", "losses", "restore_s", "restores", "uses")

    def __init__(self) -> None:
        self.uses = 0
        self.asked = 0
        self.restores = 0
        self.restore_s = 0.0
        self.evictions = 0
        self.failures = 0
        self.losses = 0


class Swaps:
    """The services of one run; as many as its pool has."""

    def __init__(self) -> None:
        self._services: dict[str, _Swaps] = {}

    def started(self, event: ActionStarted) -> None:
        """An action has a seat."""
        seat = event.action.seat
        if seat is not None and seat.instance is not None:
            of = self._of(seat.instance.service)
            of.uses += 1
            of.asked += seat.restores

    def restored(self, event: ServiceRestored) -> None:
        """A service can be used."""
        of = self._of(event.instance.service)
        of.restores += 1
        of.restore_s += sane(event.took_s)

    def evicted(self, event: ServiceEvicted) -> None:
        """A service has to go."""
        self._of(event.instance.service).evictions += 1

    def failed(self, event: RestoreFailed) -> None:
        """A restore has failed."""
        self._of(event.instance.service).failures += 1

    def lost(self, event: ServiceLost) -> None:
        """A service has died."""
        self._of(event.instance.service).losses += 1

    def figures(self) -> tuple[ServiceFigures, ...]:
        """Return what that amounts to, in the order of the names."""
        return tuple(
            ServiceFigures(
                name=name,
                uses=of.uses,
                restores=of.restores,
                restore_s=of.restore_s,
                hit_share=ratio(of.uses - of.asked, of.uses),
                evictions=of.evictions,
                failures=of.failures,
                losses=of.losses,
            )
            for name, of in sorted(self._services.items())
        )

    def statistics(self) -> dict[str, ServiceStatistics]:
        """Return the counts by name; events do not tell of moves."""
        return {
            name: ServiceStatistics(
                uses=of.uses,
                restores=of.restores,
                restore_s=of.restore_s,
                evictions=of.evictions,
                failures=of.failures,
                losses=of.losses,
                asked=of.asked,
            )
            for name, of in self._services.items()
        }

    def _of(self, name: str) -> _Swaps:
        return self._services.setdefault(name, _Swaps())
