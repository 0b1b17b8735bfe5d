"""What crosses between clients, owner and node agents: costs, grants and measurements, never bodies or arguments.

Points in time do not cross, as each process has a monotonic clock of its own: `age_s` and the like are spans that end
when the value is sent. Ids of calls and trajectories are those of the client; the owner has its own. What is made for
every call is a named tuple, the rest are frozen dataclasses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from arl_tangram.errors import TangramError
from arl_tangram.managers.breakers import Tripped
from arl_tangram.model.gpu import HostedService, Instance, Seat
from arl_tangram.model.lifecycle import Demand, FinishedAction
from arl_tangram.model.topology import Dimension

WIRE_VERSION = 1
"""Both sides must have the same; told in a greeting, which every version can read."""

# From a client to the owner.


class Declare(NamedTuple):
    """From now on `number` means this demand."""

    number: int
    demand: Demand


class Submit(NamedTuple):
    """A call wants to run; see `PendingAction`.

    Attributes:
        age_s: seconds since it was submitted.
        first_age_s: seconds since it was first submitted, if it was tried before.
    """

    id: int
    demand: int
    key: str
    trajectory: int | None
    turn: bool
    parent: int | None
    age_s: float
    first_age_s: float | None = None


class Open(NamedTuple):
    """A trajectory wants to be admitted."""

    id: int
    demand: int
    group: str | None
    age_s: float


class Withdraw(NamedTuple):
    """A call or a trajectory is not wanted any more; if it was granted meanwhile, it ends as unused."""

    id: int


class Close(NamedTuple):
    """An admitted trajectory ends."""

    trajectory: int


class Finish(NamedTuple):
    """A running call gives its units back.

    Attributes:
        ran_s: how long it ran, to learn from; None if it did not end well.
        unused: whether its body never began, so that nothing of a rate or a budget counts.
    """

    id: int
    ran_s: float | None
    unused: bool = False


class SendBack(NamedTuple):
    """A running call whose service could not be restored waits again at its old place."""

    id: int


class Lend(NamedTuple):
    """A running call waits for calls that it has made."""

    id: int
    cores: bool


class Reclaim(NamedTuple):
    """A call that has lent wants all back; `number` ascends, and comes back in `Resumed`."""

    id: int
    number: int


class Settle(NamedTuple):
    """A running call counts other units of rates and budgets than it was granted."""

    id: int
    amounts: tuple[tuple[int, int], ...]


class Pause(NamedTuple):
    """Grant nothing of a dimension for some seconds."""

    dimension: int
    for_s: float


class Called(NamedTuple):
    """A running call, which takes of quotas with breakers, waits for one that takes of these."""

    id: int
    quotas: tuple[str, ...]


class Said(NamedTuple):
    """A body has said how a call of a quota went; None if its end says nothing about that."""

    id: int
    quota: str
    failed: bool | None


class Judged(NamedTuple):
    """How a call went that takes of quotas with breakers.

    Attributes:
        id: of the call; its units may be back.
        is_over: whether it has ended; if not, only its caller has an answer.
        failed: whether what is behind the quota may be to blame; None if its end says nothing about that.
        reason: the type of the error.
    """

    id: int
    is_over: bool
    failed: bool | None
    reason: str


class Ended(NamedTuple):
    """The caller of an action has its answer; `submitted_at_s` of the measurements is the age at that moment."""

    finished: FinishedAction
    age_s: float


class Leave(NamedTuple):
    """The last word of a client that closes: nothing of it runs any more, and all that it has is to be ended."""


# From a node agent to the owner.


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


Command = (
    Declare | Submit | Open | Withdraw | Close | Finish | SendBack | Lend | Reclaim | Settle | Pause | Ended
    | Called | Said | Judged | Leave
    | NodeReady | SessionEnded | NodeCapacity | Restored | RestoreFailed | ServiceLost | DeviceCapacity
)  # fmt: skip

# From the owner to a client.


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


# From the owner to a node agent.


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


# From the owner to all.


class Remember(NamedTuple):
    """What an owner that is started again is to be told; the last one counts."""

    kept: Kept


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
class NodeOffer:
    """What a node has.

    Attributes:
        name: of the node; empty for the only one.
        node_id: Ray's name of the machine, for bodies without a sandbox.
        dimensions: of its pools, named by the node.
        no_image: why a trajectory cannot be there that names no image; None if it can.
        image: why one cannot be there that names one.
        least_memory_bytes: for a sandbox with a limit.
        services: those that it hosts.
        devices: the capacities of its devices by name, in the order of their numbers.
        text: what enforces grants there, in one line.
    """

    name: str
    node_id: str
    dimensions: tuple[Dimension, ...]
    no_image: str | None = None
    image: str | None = None
    least_memory_bytes: int = 0
    services: tuple[HostedService, ...] = ()
    devices: tuple[tuple[str, int], ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class SharedQuota:
    """What a client needs to know of a quota.

    Attributes:
        keys: those that calls take; never written anywhere.
        longest_pause_s: the most seconds for which a `Retry-After` is obeyed.
    """

    name: str
    keys: tuple[str, ...] = field(default=(), repr=False)
    longest_pause_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Shape:
    """All that is shared, as clients need to know it to resolve costs.

    Attributes:
        version: ascends.
        dimensions: of the owner's topology, in its order, with what lost nodes have when they come back.
        nodes: in the order of their numbers.
        quotas: what calls can declare.
        reserved_cores: whole cores that each trajectory holds.
        kill_grace_s: seconds that a cancelled body has to end.
        max_processes: as for `Tangram`.
        lost: the numbers of nodes that cannot be used now.
    """

    version: int
    dimensions: tuple[Dimension, ...]
    nodes: tuple[NodeOffer, ...]
    quotas: tuple[SharedQuota, ...] = ()
    reserved_cores: int = 0
    kill_grace_s: float = 5.0
    max_processes: int | None = None
    lost: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """What an owner knows beside what is held; see `Remember`.

    Attributes:
        version: ascends, also from one owner to the next.
        halted: whether nothing new is to start, by `pause()` or `drain()`.
        pauses: names of dimensions of which nothing is granted, and for how many seconds.
        tripped: the breakers that are not closed.
        charges: what clients that are gone took of rates and budgets; see `Resume.charges`.
    """

    version: int
    halted: bool = False
    pauses: tuple[tuple[str, float], ...] = ()
    tripped: tuple[Tripped, ...] = ()
    charges: tuple[tuple[int, int, float], ...] = ()

    def aged(self, by_s: float) -> Kept:
        """Return it as of some seconds later."""
        return replace(
            self,
            pauses=tuple((name, left_s - by_s) for name, left_s in self.pauses if left_s > by_s),
            tripped=tuple(one._replace(left_s=one.left_s - by_s) for one in self.tripped),
            charges=tuple((dimension, units, age_s + by_s) for dimension, units, age_s in self.charges),
        )


class HeldCall(NamedTuple):
    """A running call, as its client tells it to an owner that was started again.

    Attributes:
        submit: as it was submitted; its age is the present one.
        place: where it was granted.
        units: what it was granted of its elastic dimension.
        seated: whether it has a seat on a GPU, which is not taken over.
        lent: whether it lends now, and its cores, too; None if it does not.
        reclaim: the number of the `Reclaim` that waits, if one does.
        ran_s: for how long it has held its units.
        settled: what it counts for, by dimension, of those rates and budgets that it has settled.
    """

    submit: Submit
    place: int | None
    units: int
    seated: bool
    lent: bool | None
    reclaim: int | None
    ran_s: float
    settled: tuple[tuple[int, int], ...] = ()


class HeldTrajectory(NamedTuple):
    """An admitted trajectory, as its client tells it to an owner that was started again.

    Attributes:
        open: as it was asked for; its age is the present one.
        node: where it is.
        closing: whether it is closed when the last of its calls that run has ended.
    """

    open: Open
    node: int
    closing: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """What a session holds and waits for, told to an owner that was started again.

    Attributes:
        shape: the last one that it was told; None for an agent that was told none.
        demands: by their number, as declared.
        trajectories: that are admitted.
        running: calls that hold units, in the order of their ids.
        waiting: calls and trajectories that wait, in the order of their ids.
        charges: units of rates and budgets that calls of this session counted for that do not run any more, and how
            long ago they took them: dimension, units, age_s.
        offer: of an agent: what its node has now.
        sessions: of an agent: the roster that it keeps, and those that it is ending; None if it was told none.
        kept: what it was to remember; None if there was nothing.
    """

    shape: Shape | None
    demands: tuple[Declare, ...] = ()
    trajectories: tuple[HeldTrajectory, ...] = ()
    running: tuple[HeldCall, ...] = ()
    waiting: tuple[Submit | Open, ...] = ()
    charges: tuple[tuple[int, int, float], ...] = ()
    offer: NodeOffer | None = None
    sessions: tuple[str, ...] | None = None
    kept: Kept | None = None


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


# From a client to a node agent.


class CallId(NamedTuple):
    """A call of a client at an agent; a second one with the same id is not run again."""

    session: str
    number: int


class LeaseTold(NamedTuple):
    """The cores of an action, applied at the agent with its first command.

    Attributes:
        lease: a number of the client, ascending; another one each time the action had lent its cores and has them back.
        milli_cores: how much.
        again: whether it had as much before; see `CpuManager.lease`.
    """

    lease: int
    milli_cores: int
    again: bool


class LeaseNow(NamedTuple):
    """What is known of a lease at its agent, said in each answer that belongs to it.

    Attributes:
        turn: ascends with each answer, as they may come in another order.
        alive: whether something that its commands started may be alive.
        own_s: seconds that its commands ran, those at once counted once.
        cpu_s: CPU seconds of its commands.
        core_ids: the host's numbers of its cores.
    """

    turn: int
    alive: bool
    own_s: float
    cpu_s: float
    core_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AgentCall:
    """Something that an agent is to do.

    Attributes:
        id: whose call it is.
        what: the name of what is asked, one of `agent.CALLS`.
        arguments: values of builtins, of this module and of `model`; what is the user's is pickled in `load`.
        load: pickled arguments of the user, for a service.
    """

    id: CallId
    what: str
    arguments: Mapping[str, Any]
    load: bytes = b""


@dataclass(frozen=True, slots=True)
class AgentReply:
    """What came of it: see `answers`.

    Attributes:
        value: of builtins, of this module and of `model`.
        told: pickled `Told` of `managers.processes.outcome`, if it raised or returned something of the user's.
        load: what belongs to that.
    """

    value: Any = None
    told: bytes = b""
    load: bytes = b""
