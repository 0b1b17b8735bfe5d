"""What the owner says to clients, and what it says to all."""

from __future__ import annotations

from typing import NamedTuple

from arl_tangram.errors import TangramError
from arl_tangram.integrations.ray.wire.resume import Kept
from arl_tangram.integrations.ray.wire.shape import Shape
from arl_tangram.model.gpu import Seat


class Granted(NamedTuple):
    """A call has its units; see `RunningAction`.

    Attributes:
        queued_s: how long it has waited at the owner, its age at the submission included.
        place: index among the places of its demand; None if it has none.
        lease: the number of this grant, unique for the owner; nodes know seats by it.
    """

    id: int
    queued_s: float
    place: int | None
    units: int
    expected_s: float
    seat: Seat | None
    lease: int


class Admitted(NamedTuple):
    """A trajectory has what it holds, on this node."""

    id: int
    queued_s: float
    node: int


class Expired(NamedTuple):
    """The `queue_timeout` of a call has passed."""

    id: int


class Refused(NamedTuple):
    """A call or a trajectory that waits can never start, or the scheduler failed."""

    id: int
    error: TangramError


class CalledOff(NamedTuple):
    """A call or a trajectory, waiting or running, is to end with this error."""

    id: int
    error: TangramError


class Resumed(NamedTuple):
    """A call has back what it lent; `error` if the scheduler failed."""

    id: int
    number: int
    error: TangramError | None = None


class Reshaped(NamedTuple):
    """There is more or less of something."""

    shape: Shape


class Remember(NamedTuple):
    """What an owner that is started again is to be told; the last one counts."""

    kept: Kept
