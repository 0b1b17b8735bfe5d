"""What the manager of a pool of GPUs does around the core, in virtual time: restores, and waiting for them.

As in a run, a seat is made real from its decision on: what has to go for it is gone at once, as weights are frozen and
nothing is copied back. A restore takes what its service declares, and the copies to one device go one after the other,
in the order of decisions; one that is on several devices waits for all of them, and one that has to leave other
devices first lets all others of its decision go before. Whoever has a seat on an instance that is not there yet, also
one who has joined it, waits until it is. No restore fails, and nothing has to be moved within a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.gpu import HostedService, Instance, Seat
from arl_tangram.model.lifecycle import RunningAction
from arl_tangram.scheduling.decisions import Decisions


class Restore(NamedTuple):
    """An instance on its way.

    Attributes:
        instance: which.
        took_s: seconds of its own copy, without waiting for others.
        at_s: when it can be used.
    """

    instance: Instance
    took_s: float
    at_s: float


class Restores:
    """The devices of one run.

    Args:
        services: what is restored.
        swaps: whether anything may go.

    Raises:
        ConfigurationError: a service that does not say what a restore takes.
    """

    __slots__ = ("_copied_s", "_ready_s", "_restore_s", "_swaps")

    def __init__(self, services: Sequence[HostedService], *, swaps: bool) -> None:
        self._restore_s: dict[Instance, float] = {}
        for service in services:
            declared = dict(service.restore_s)
            for dop in service.dops:
                took_s = declared.get(dop, -1.0)
                if not 0 <= took_s < float("inf"):
                    raise ConfigurationError(
                        f"the service {service.name!r} needs finite seconds from 0 for a restore at a dop of {dop}"
                    )
                self._restore_s[Instance(service.name, dop)] = took_s
        self._swaps = swaps
        self._copied_s: dict[int, float] = {}
        self._ready_s: dict[Instance, float] = {}

    def take(self, seat: Seat, now_s: float) -> Restore | None:
        """Make a seat real that was decided now; return what is restored for it, if anything is.

        Raises:
            ConfigurationError: something has to go for it, in a pool where nothing may.
        """
        if seat.evicts and not self._swaps:
            raise ConfigurationError(
                f"{seat.evicts[0]} would have to go for {seat.instance or 'a call with GPUs of its own'}, and "
                "Gpus(swaps=False) lets nothing go"
            )
        if seat.instance is None or not seat.restores:
            return None
        took_s = self._restore_s[seat.instance]
        devices = seat.chunk.devices
        at_s = max(now_s, *[self._copied_s.get(device, 0.0) for device in devices]) + took_s
        for device in devices:
            self._copied_s[device] = at_s
        self._ready_s[seat.instance] = at_s
        return Restore(seat.instance, took_s, at_s)

    def ready_s(self, seat: Seat, now_s: float) -> float:
        """Return from when on the one with a seat can use it, at the earliest now."""
        return now_s if seat.instance is None else max(now_s, self._ready_s[seat.instance])


def in_line(decisions: Decisions) -> list[RunningAction]:
    """Return what starts in the order in which its services are copied: who has to leave other devices comes last."""
    gone = set(decisions.evicted or ())
    for running in decisions.started:
        if running.seat is not None:
            gone.update(running.seat.evicts)
    if not gone:
        return decisions.started
    return sorted(decisions.started, key=lambda running: running.seat is not None and running.seat.instance in gone)
