"""Measure a call that has ended: its outcome, and its time as queueing, execution, overhead and suspension."""

from __future__ import annotations

import asyncio

from arl_tangram.errors import InfrastructureError, QueueTimeout, RunTimeout
from arl_tangram.managers.manager import ExecUsage
from arl_tangram.model.lifecycle import FinishedAction, Outcome, PendingAction, RunningAction
from arl_tangram.model.quantities import MILLI


def measured(  # noqa: PLR0917 - one caller, and keywords cost time on every call
    pending: PendingAction,
    running: RunningAction | None,
    error: BaseException | None,
    now_s: float,
    body_s: float,
    usage: ExecUsage,
    milli_cores: int,
    regaining_s: float = 0.0,
    suspended_s: float = 0.0,
    switches: int = 0,
) -> FinishedAction:
    """Return the measurements of a call that ends now.

    Args:
        pending: the call.
        running: its grant; None if it never started.
        error: what its caller gets, or None.
        now_s: the time.
        body_s: seconds that its body has run, without those in which it was suspended; of those, what stood around
            commands is overhead.
        usage: what its commands took.
        milli_cores: what it was granted at its start.
        regaining_s: seconds of `body_s` in which it waited to have back what it had lent; they are queueing.
        suspended_s: seconds in which it was suspended.
        switches: how often its cores were changed.
    """
    if running is None:
        queueing_s, execution_s, overhead_s = now_s - pending.submitted_at_s, 0.0, 0.0
    else:
        queueing_s = running.started_at_s - pending.submitted_at_s + regaining_s
        execution_s = max(0.0, body_s - usage.overhead_s - regaining_s)
        overhead_s = max(0.0, now_s - running.started_at_s - execution_s - regaining_s - suspended_s)
    return FinishedAction(
        pending.id,
        pending.demand.name,
        pending.key,
        pending.trajectory,
        outcome_of(error),
        None if error is None else type(error).__name__,
        pending.submitted_at_s,
        queueing_s,
        execution_s,
        overhead_s,
        usage.cpu_s,
        milli_cores / MILLI,
        pending.demand.node,
        suspended_s,
        switches,
    )


def outcome_of(error: BaseException | None) -> Outcome:
    """Say how a call ended whose caller gets this error."""
    if error is None:
        return Outcome.OK
    if isinstance(error, asyncio.CancelledError):
        return Outcome.CANCELLED
    if isinstance(error, RunTimeout):
        return Outcome.RUN_TIMEOUT
    if isinstance(error, QueueTimeout):
        return Outcome.QUEUE_TIMEOUT
    return Outcome.INFRASTRUCTURE if isinstance(error, InfrastructureError) else Outcome.ERROR
