"""What the agents of nodes say to the owner."""

from __future__ import annotations

from typing import NamedTuple

from arl_tangram.errors import TangramError
from arl_tangram.integrations.ray.wire.shape import NodeOffer, Shape
from arl_tangram.model.gpu import Instance


class NodeReady(NamedTuple):
    """The node offers this from now on; everything that earlier incarnations of its agent left is removed.

    Attributes:
        offer: what it has.
        shape: the last one that it was told; of use to an owner that was started again and knows of no nodes.
    """

    offer: NodeOffer
    shape: Shape | None = None


class SessionEnded(NamedTuple):
    """Nothing of a session is left on the node: answers `EndSession`."""

    session: str


class NodeCapacity(NamedTuple):
    """There is more or less of a dimension by itself, as when cores go offline."""

    name: str
    capacity: int


class Restored(NamedTuple):
    """A service is resident."""

    instance: Instance
    took_s: float


class RestoreFailed(NamedTuple):
    """A service could not be restored."""

    instance: Instance
    error: TangramError


class ServiceLost(NamedTuple):
    """A resident service has died."""

    instance: Instance
    error: TangramError


class DeviceCapacity(NamedTuple):
    """There is more or less of a device than before."""

    device: int
    capacity_bytes: int
