"""What carries commands and events between a session and its owner."""

from __future__ import annotations

from dataclasses import dataclass

from arl_tangram.errors import TangramError
from arl_tangram.integrations.ray.wire.commands import (
    Called,
    Close,
    Declare,
    Ended,
    Finish,
    Judged,
    Leave,
    Lend,
    Open,
    Pause,
    Reclaim,
    Said,
    SendBack,
    Settle,
    Submit,
    Withdraw,
)
from arl_tangram.integrations.ray.wire.events import (
    Admitted,
    CalledOff,
    Expired,
    Granted,
    Refused,
    Remember,
    Reshaped,
    Resumed,
)
from arl_tangram.integrations.ray.wire.node_commands import (
    DeviceCapacity,
    NodeCapacity,
    NodeReady,
    Restored,
    RestoreFailed,
    ServiceLost,
    SessionEnded,
)
from arl_tangram.integrations.ray.wire.node_events import (
    Drop,
    EndSession,
    Evict,
    Resize,
    Roster,
    Take,
)
from arl_tangram.integrations.ray.wire.shape import (
    Shape,
)

Command = (
    Declare | Submit | Open | Withdraw | Close | Finish | SendBack | Lend | Reclaim | Settle | Pause | Ended
    | Called | Said | Judged | Leave
    | NodeReady | SessionEnded | NodeCapacity | Restored | RestoreFailed | ServiceLost | DeviceCapacity
)  # fmt: skip

Event = (
    Granted | Admitted | Expired | Refused | CalledOff | Resumed | Reshaped | Remember
    | EndSession | Take | Drop | Evict | Resize | Roster
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClientFrame:
    """What a client or an agent sends.

    Attributes:
        epoch: of the owner that it believes in.
        session: which one it is.
        first: the number of the first command here; they are numbered from 1.
        commands: all that was not acknowledged, as far as they fit.
        ack: the number of the last event that it has.
        wait_s: how long the owner may wait for something to say; 0 for the end of its next decision.
    """

    epoch: str
    session: str
    first: int
    commands: tuple[Command, ...]
    ack: int
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class OwnerFrame:
    """What the owner answers.

    Attributes:
        epoch: its own; if it is another than that of the frame, nothing of that was taken.
        first: the number of the first event here; they are numbered from 1.
        events: all that was not acknowledged, as far as they fit.
        ack: the number of the last command that it has.
        ended: why the session is over, if it is; nothing of the frame was taken then.
    """

    epoch: str
    first: int
    events: tuple[Event, ...]
    ack: int
    ended: TangramError | None = None


@dataclass(frozen=True, slots=True)
class Welcome:
    """What a greeting is answered with.

    Attributes:
        epoch: of the owner.
        session: the name that it has given to this one.
        lease_s: what is held without a word for so long is lost.
        grace_s: what the owner waits beyond that.
        shape: None for an agent that is the first one.
    """

    epoch: str
    session: str
    lease_s: float
    grace_s: float
    shape: Shape | None
