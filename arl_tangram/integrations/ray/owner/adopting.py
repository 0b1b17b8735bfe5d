"""What one client held of an owner that was started again, taken over by the next one."""

from __future__ import annotations

from collections.abc import Mapping

from arl_tangram.integrations.ray.owner.holding import Held
from arl_tangram.integrations.ray.owner.holdings import Holdings
from arl_tangram.integrations.ray.wire import HeldCall, HeldTrajectory, Open, Resume, Submit
from arl_tangram.model.lifecycle import PendingAction, RunningAction


def adopt(
    holdings: Holdings, resume: Resume, ids: Mapping[int, int], running: Mapping[int, RunningAction], now_s: float
) -> None:
    """Let a client have again what the scheduler holds for it.

    Args:
        holdings: those of the client, empty.
        resume: what it has told.
        ids: those of the owner, by the client's.
        running: the calls that run, by the owner's ids.
        now_s: the time.
    """
    for declared in resume.demands:
        holdings.take(declared)
    for trajectory in resume.trajectories:
        if (number := ids.get(trajectory.open.id)) is not None:
            _adopt_trajectory(holdings, trajectory, number, now_s)
    for call in resume.running:
        number = ids.get(call.submit.id)
        if number is not None and number in running:
            holdings.hold(_adopted(holdings, call, running[number]))
    holdings.spending.took_over(resume.charges)


def wait_again(holdings: Holdings, number: int, item: Submit | Open) -> None:
    """Let a call or a trajectory wait that waited, under a number of the owner."""
    holdings.know(item.id, number)
    holdings.take(item)


def reclaim_again(holdings: Holdings, resume: Resume) -> None:
    """Let calls have back what they have lent, as they wait for it."""
    for call in resume.running:
        if call.reclaim is not None and (held := holdings.running(call.submit.id)) is not None:
            holdings.reclaim(held, call.reclaim)


def _adopt_trajectory(holdings: Holdings, trajectory: HeldTrajectory, number: int, now_s: float) -> None:
    asked = trajectory.open
    if trajectory.closing:
        holdings.know(asked.id, number)
        return
    pending = PendingAction(number, holdings.demands.get(asked.demand), now_s - asked.age_s)
    holdings.hold(Held(holdings, asked.id, pending, is_trajectory=True, group=asked.group, is_admitted=True))


def _adopted(holdings: Holdings, call: HeldCall, running: RunningAction) -> Held:
    demand = holdings.demands.get(call.submit.demand)
    asked = demand if call.place is None else demand.places[call.place]
    held = Held(holdings, call.submit.id, running.pending, running=running, asked=asked)
    held.settled.update(call.settled)
    return held
