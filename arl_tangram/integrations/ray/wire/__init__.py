"""What crosses between clients, owner and node agents: costs, grants and measurements, never bodies or arguments.

Points in time do not cross, as each process has a monotonic clock of its own: `age_s` and the like are spans that end
when the value is sent. What is made for every call is a named tuple, the rest are frozen dataclasses. Whoever sends or
reads them imports them from here.

    commands, node_commands   what clients, and agents, say to the owner
    events, node_events       what it says to them
    frames                    what carries these, and the answer to a greeting
    shape                     what there is to be shared
    resume                    what sessions tell an owner that was started again
    agent_calls               what clients ask of agents
"""

from __future__ import annotations

from arl_tangram.integrations.ray.wire.agent_calls import (
    AgentCall,
    AgentReply,
    CallId,
    LeaseNow,
    LeaseTold,
)
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
from arl_tangram.integrations.ray.wire.frames import (
    ClientFrame,
    Command,
    Event,
    OwnerFrame,
    Welcome,
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
from arl_tangram.integrations.ray.wire.resume import (
    HeldCall,
    HeldTrajectory,
    Kept,
    Resume,
)
from arl_tangram.integrations.ray.wire.shape import (
    ANY_IMAGE,
    NodeOffer,
    Shape,
    SharedQuota,
)

WIRE_VERSION = 1
"""Both sides must have the same; told in a greeting, which every version can read. It goes up with what crosses."""

__all__ = [
    "ANY_IMAGE",
    "WIRE_VERSION",
    "Admitted",
    "AgentCall",
    "AgentReply",
    "CallId",
    "Called",
    "CalledOff",
    "ClientFrame",
    "Close",
    "Command",
    "Declare",
    "DeviceCapacity",
    "Drop",
    "EndSession",
    "Ended",
    "Event",
    "Evict",
    "Expired",
    "Finish",
    "Granted",
    "HeldCall",
    "HeldTrajectory",
    "Judged",
    "Kept",
    "LeaseNow",
    "LeaseTold",
    "Leave",
    "Lend",
    "NodeCapacity",
    "NodeOffer",
    "NodeReady",
    "Open",
    "OwnerFrame",
    "Pause",
    "Reclaim",
    "Refused",
    "Remember",
    "Reshaped",
    "Resize",
    "RestoreFailed",
    "Restored",
    "Resume",
    "Resumed",
    "Roster",
    "Said",
    "SendBack",
    "ServiceLost",
    "SessionEnded",
    "Settle",
    "Shape",
    "SharedQuota",
    "Submit",
    "Take",
    "Welcome",
    "Withdraw",
]
