"""What clients ask of the agents of nodes, and what these answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


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
