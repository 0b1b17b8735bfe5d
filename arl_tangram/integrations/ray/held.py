"""What a client holds and waits for, call by call, and how it tells an owner that was started again. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from arl_tangram.deciding import Waiter
from arl_tangram.integrations.ray.charges import counted
from arl_tangram.integrations.ray.wire import (
    Declare,
    HeldCall,
    HeldTrajectory,
    Kept,
    Open,
    Resume,
    Shape,
    Submit,
)
from arl_tangram.model.lifecycle import PendingAction, RunningAction


@dataclass(slots=True, eq=False)
class HeldHere:
    """A call or a trajectory, until it is over.

    Attributes:
        pending: as it was submitted.
        waiter: who waits, or has waited, for it.
        is_trajectory: whether it is one.
        group: of a trajectory.
        node: the number of the node where a trajectory is; None until it is admitted.
        running: the call with its units; None while it waits.
        place: where it was granted, among the places of its demand.
        since_s: when it had its units.
        unused: whether its body never began.
        lent: whether it lends now, and its cores, too; None if it does not.
        reclaim: the number of the reclaim that waits.
        regained: who is told when it has back what it lent.
        closing: whether a trajectory was closed, and calls of it still run.
        settled: what it counts for, by dimension, of those rates and budgets that it has settled.
    """

    pending: PendingAction
    waiter: Waiter
    is_trajectory: bool = False
    group: str | None = None
    node: int | None = None
    running: RunningAction | None = None
    place: int | None = None
    since_s: float = 0.0
    unused: bool = False
    lent: bool | None = None
    reclaim: int | None = None
    regained: Callable[[Exception | None], None] | None = None
    closing: bool = False
    settled: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def waits(self) -> bool:
        """Whether it waits, and so holds nothing."""
        return self.running is None and self.node is None


def resume_of(
    shape: Shape,
    demands: tuple[Declare, ...],
    held: Sequence[HeldHere],
    charges: Iterable[tuple[int, int, float]],
    *,
    kept: Kept | None,
    now_s: float,
    submit: Callable[[HeldHere], Submit],
    open_: Callable[[HeldHere], Open],
) -> Resume:
    """Return what a client tells an owner that was started again.

    Args:
        shape: the last one that it was told.
        demands: those in use.
        held: all that it holds and waits for.
        charges: of calls that do not run any more: dimension, units, and how long ago they took them.
        kept: what it was to remember.
        now_s: the time.
        submit: returns what submits a call.
        open_: returns what opens a trajectory.
    """
    ordered = sorted(held, key=lambda one: one.pending.id)
    return Resume(
        shape,
        demands,
        tuple(HeldTrajectory(open_(one), one.node, one.closing) for one in ordered if one.node is not None),
        tuple(_call(one, submit(one), now_s) for one in ordered if one.running is not None),
        tuple(open_(one) if one.is_trajectory else submit(one) for one in ordered if one.waits),
        tuple(charges),
        kept=kept,
    )


def charges_of(held: HeldHere) -> list[tuple[int, int, int]]:
    """Return what a call counts for: a dimension, units of its grant, and those that it has settled beyond these."""
    if held.running is None:
        return []
    return counted(dict(held.running.pending.demand.fixed), held.settled)


def _call(held: HeldHere, submit: Submit, now_s: float) -> HeldCall:
    assert held.running is not None
    return HeldCall(
        submit,
        held.place,
        held.running.units,
        held.running.seat is not None,
        held.lent,
        held.reclaim,
        now_s - held.since_s,
        tuple(held.settled.items()),
    )
