"""What the owner says to the agents of nodes."""

from __future__ import annotations

from typing import NamedTuple

from arl_tangram.model.gpu import Instance, Seat


class EndSession(NamedTuple):
    """A client is gone: kill its commands, close its sandboxes, release its leases, then say `SessionEnded`."""

    session: str


class Take(NamedTuple):
    """A seat was decided, in the order of decisions; the client awaits it by the number of the lease."""

    lease: int
    session: str
    seat: Seat


class Drop(NamedTuple):
    """A seat is given back, in the order of decisions as `Take`: its call has ended, or waits again."""

    lease: int


class Evict(NamedTuple):
    """Services have to go, for nobody; in the order of decisions as `Take`."""

    instances: tuple[Instance, ...]


class Resize(NamedTuple):
    """Let the pool of the node have more or less of a dimension; it says `NodeCapacity` when it has."""

    name: str
    capacity: int


class Roster(NamedTuple):
    """These sessions of clients are open; kept for an owner that is started again."""

    sessions: tuple[str, ...]
