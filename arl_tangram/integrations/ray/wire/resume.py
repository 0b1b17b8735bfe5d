"""What sessions tell an owner that was started again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from arl_tangram.integrations.ray.wire.commands import Declare, Open, Submit
from arl_tangram.integrations.ray.wire.shape import NodeOffer, Shape
from arl_tangram.managers.breakers import Tripped


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

    def aged(self, by_s: float) -> Resume:
        """Return it as of some seconds later."""
        return replace(
            self,
            trajectories=tuple(one._replace(open=_aged_open(one.open, by_s)) for one in self.trajectories),
            running=tuple(
                one._replace(submit=_aged_submit(one.submit, by_s), ran_s=one.ran_s + by_s) for one in self.running
            ),
            waiting=tuple(
                _aged_submit(one, by_s) if isinstance(one, Submit) else _aged_open(one, by_s) for one in self.waiting
            ),
            charges=tuple((dimension, units, age_s + by_s) for dimension, units, age_s in self.charges),
            kept=None if self.kept is None else self.kept.aged(by_s),
        )


def _aged_submit(submit: Submit, by_s: float) -> Submit:
    first_age_s = None if submit.first_age_s is None else submit.first_age_s + by_s
    return submit._replace(age_s=submit.age_s + by_s, first_age_s=first_age_s)


def _aged_open(asked: Open, by_s: float) -> Open:
    return asked._replace(age_s=asked.age_s + by_s)
