"""What clients say to the owner. Ids of calls and trajectories are those of the client; the owner has its own."""

from __future__ import annotations

from typing import NamedTuple

from arl_tangram.model.lifecycle import Demand, FinishedAction


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
