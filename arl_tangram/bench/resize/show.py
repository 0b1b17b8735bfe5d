"""The text that `bench resize` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from arl_tangram.bench.machine import Machine
from arl_tangram.bench.resize.changing import Changed
from arl_tangram.bench.resize.costs import Switches, Workers
from arl_tangram.bench.resize.ending import SUSPENDED_S, TIMEOUT_S, Kill, Timeout, TrainerKill
from arl_tangram.bench.resize.plan import MANY_WORKERS, Plan


def introduction(machine: Machine, plan: Plan, sandboxes: str) -> str:
    """Say what is done, on what, and how."""
    takes = "half a minute" if plan.about_s < 45 else f"{plan.about_s / 60:.0f} min"
    busy = machine.if_busy("every time longer")
    return (
        f"{machine.in_words}\n{busy}\n"
        f"Programs in {sandboxes}, whose cores are changed while they run: {plan.resizes:,} times at random, down to\n"
        "none and back. They hash, write to a socket, start children and print in order, and all of that is compared\n"
        "with what it must be. Then commands and sandboxes are ended while they are suspended, and trainers killed.\n"
        f"It takes about {takes}.\n"
    )


def changed(found: Changed) -> str:
    """Say what became of the programs."""
    counts = f"whose cores were changed {found.resizes:,} times, {found.suspensions:,} of them down to none"
    line = f"programs: {found.programs}, {counts}; {len(found.broken)} went wrong"
    return "\n".join([line, *(f"  {one}" for one in found.broken)])


def ended(timeouts: Sequence[Timeout], kills: Sequence[Kill], trainers: Sequence[TrainerKill]) -> str:
    """Say how what was suspended ended."""
    ran_s = ", ".join(f"{one.running_s:.2f}" for one in timeouts)
    seconds = ", ".join(f"{one.seconds:.3f}" for one in kills)
    gone_s = ", ".join(f"{one.seconds:.2f}" for one in trainers)
    return (
        f"a timeout of {TIMEOUT_S:g} s, of commands that were suspended for {SUSPENDED_S:g} s: ended after {ran_s} s "
        "of running\n"
        f"suspended sandboxes with {_counts(one.before for one in kills)} busy processes: cleaned up in {seconds} s, "
        f"{sum(one.left for one in kills)} processes left\n"
        f"trainers killed while a sandbox of {_counts(one.before for one in trainers)} processes was suspended: all of "
        f"them gone after {gone_s} s, {sum(one.left for one in trainers)} left; behind after the next start: "
        f"{sum(one.behind for one in trainers)}"
    )


def _counts(numbers: Iterable[int]) -> str:
    found = sorted(numbers)
    return f"{found[0]}" if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def costs(switches: Switches, workers: Workers) -> str:
    """Say what changes cost, and many workers on one core."""
    times = f"median {median(switches.seconds) * 1e3:.3f} ms, longest {max(switches.seconds) * 1e3:.3f} ms"
    planned = f"the scheduler counts {switches.planned_s * 1e3:g} ms"
    lines = [f"a change of cores: {times} of {len(switches.seconds)}; {planned}"]
    if switches.standing_share is not None:
        lines.append(
            f"a busy program: {switches.standing_share:.3f} of a core while it is suspended; it goes on after "
            f"{median(switches.delays_s) * 1e3:.2f} ms, {max(switches.delays_s) * 1e3:.2f} ms at most"
        )
    lines.append(
        f"the same work on one core: {min(workers.one_s):.3f} CPU seconds of one worker, {min(workers.many_s):.3f} of "
        f"{MANY_WORKERS}, {workers.ratio:.3f} times as much (best of {len(workers.one_s)} runs of each)"
    )
    return "\n".join(lines)
