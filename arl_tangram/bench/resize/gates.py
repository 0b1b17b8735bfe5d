"""What `bench resize` promises: arithmetic on its figures. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from arl_tangram.bench.gates import Gate
from arl_tangram.bench.resize.ending import TIMEOUT_S, Kill, Timeout, TrainerKill
from arl_tangram.bench.resize.plan import MANY_WORKERS
from arl_tangram.bench.resize.program import SPREAD
from arl_tangram.bench.resize.results import Results

MOST_OFF_S = 0.5
MOST_KILL_S = 2.0
MOST_OF_PLANNED = 2.0
MOST_STANDING = 0.05
MOST_OF_ONE_WORKER = 1.1


def gates(found: Results) -> list[Gate]:
    """Return the promises; those that could not be measured here say so."""
    changed, switches, workers = found.changed, found.switches, found.workers
    return [
        Gate(
            "output, exit code and children of every program are right, whatever is done to its cores",
            0,
            len(changed.broken),
            f"broken of {changed.programs} programs, {changed.resizes:,} changes",
        ),
        _timeouts(found.timeouts),
        _kills(found.kills),
        _trainers(found.trainers),
        Gate(
            f"a change takes at most {MOST_OF_PLANNED:g} times what the scheduler counts for it",
            MOST_OF_PLANNED,
            median(switches.seconds) / switches.planned_s,
            f"median of {len(switches.seconds)}, against {switches.planned_s * 1e3:g} ms",
        ),
        Gate(
            f"a busy program takes at most {MOST_STANDING:.0%} of a core while it is suspended",
            MOST_STANDING,
            switches.standing_share,
            "its clock is not that of this machine" if switches.standing_share is None else "of a core",
        ),
        Gate(
            f"on one core, {MANY_WORKERS} workers take at most {MOST_OF_ONE_WORKER:g} times the CPU time of one",
            MOST_OF_ONE_WORKER,
            workers.ratio,
            f"best of {len(workers.one_s)} runs of each",
        ),
    ]


def _timeouts(timeouts: Sequence[Timeout]) -> Gate:
    promise = f"a timeout stands still during a suspension: it is at most {MOST_OFF_S:g} s off"
    early = [one for one in timeouts if not one.timed_out]
    if early:
        return Gate(promise, MOST_OFF_S, float("inf"), f"{len(early)} of {len(timeouts)} did not time out")
    worst_s = max(abs(one.running_s - TIMEOUT_S) for one in timeouts)
    return Gate(promise, MOST_OFF_S, worst_s, f"worst of {len(timeouts)}, in seconds of running")


def _kills(kills: Sequence[Kill]) -> Gate:
    promise = f"what is killed while it is suspended is gone within {MOST_KILL_S:g} s"
    left = sum(one.left for one in kills)
    if left or any(one.before <= SPREAD for one in kills):
        return Gate(promise, MOST_KILL_S, float("inf"), f"{left} processes were left")
    return Gate(promise, MOST_KILL_S, max(one.seconds for one in kills), f"longest of {len(kills)}, in seconds")


def _trainers(trainers: Sequence[TrainerKill]) -> Gate:
    promise = "a trainer that is killed while something is suspended leaves nothing running"
    if any(one.before == 0 for one in trainers):
        return Gate(promise, 0, None, "the processes of the sandboxes cannot be seen from here")
    left = sum(one.left + one.behind for one in trainers)
    slowest_s = max(one.seconds for one in trainers)
    return Gate(promise, 0, left, f"left by {len(trainers)} trainers, gone after {slowest_s:.2f} s at most")
