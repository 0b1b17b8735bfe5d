"""The command `python -m arl_tangram bench`: finds the bench, and runs `bench overhead`: measure, print, judge."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from arl_tangram.bench import orders, plan, show
from arl_tangram.bench.aoe import command as aoe
from arl_tangram.bench.contenders import SLOTS, Traced, in_process
from arl_tangram.bench.evict import command as evict
from arl_tangram.bench.faults import command as faults
from arl_tangram.bench.gates import Gate, gates, growth
from arl_tangram.bench.gpu import command as gpu
from arl_tangram.bench.inflight import command as inflight
from arl_tangram.bench.machine import Machine, read_machine
from arl_tangram.bench.options import read
from arl_tangram.bench.ray import command as shared
from arl_tangram.bench.ray_task import find_ray, ray_contender
from arl_tangram.bench.replay import command as replay
from arl_tangram.bench.resize import command as resize
from arl_tangram.bench.rounds import Series, measure
from arl_tangram.bench.scale import command as scale
from arl_tangram.bench.schedule import command as schedule
from arl_tangram.bench.swap import command as swap

IN_FLIGHT = (1_000, 100_000)
"""A batch of rollouts, and far more than anybody has: between them, what grows with those who wait shows."""

ROUNDS = 5
"""Odd, so that the median is a round that happened; five, so that two disturbed ones do not move it far."""

LEAST_ACTIONS = 10_000
"""Of one contender in one round: 1,000 no-op actions are over in 30 ms, which one hiccup of the machine can double."""

QUICK_IN_FLIGHT = (100, 1_000)
QUICK_ROUNDS = 2
QUICK_LEAST_ACTIONS = 100


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        quick: a short run that judges nothing.
        ray: whether Ray is measured.
        ray_everywhere: whether it is measured at every size, not at the smallest only.
        trace: whether the action with its trace written is measured.
        json: file for all figures, or None.
    """

    quick: bool = False
    ray: bool = True
    ray_everywhere: bool = False
    trace: bool = False
    json: Path | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many actions are in flight."""
        return QUICK_IN_FLIGHT if self.quick else IN_FLIGHT

    @property
    def rounds(self) -> int:
        """How many rounds count."""
        return QUICK_ROUNDS if self.quick else ROUNDS

    @property
    def least_actions(self) -> int:
        """How many actions of a contender a round has at least."""
        return QUICK_LEAST_ACTIONS if self.quick else LEAST_ACTIONS

    @property
    def ray_sizes(self) -> tuple[int, ...]:
        """Where Ray takes part."""
        return self.sizes if self.ray_everywhere else self.sizes[:1]


def main(argv: Sequence[str]) -> int:
    """Run a bench.

    Args:
        argv: the arguments after `bench`.

    Returns:
        0 if every promise that was measured is kept, 1 if not, 130 after Ctrl-C.

    Raises:
        MissingExtraError: Ray is to be measured and is not installed.
    """
    found = _parse(argv)
    try:
        return int(found.run(found))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def read_options(argv: Sequence[str]) -> Options:
    """Return the options of `bench overhead`; exits with a message where they are wrong."""
    return _read_overhead(_parse(argv))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; `run` of what is returned runs the bench with it."""
    parser = argparse.ArgumentParser(prog="python -m arl_tangram bench", description="Measure the library.")
    benches = parser.add_subparsers(required=True, metavar=" | ".join(_BENCHES))
    for name, bench in _BENCHES.items():
        its = benches.add_parser(name, help=bench.help, description=bench.description)
        bench.add_options(its)
        its.set_defaults(run=bench.run)
    found = parser.parse_args(argv)
    if found.json is not None and not found.json.parent.is_dir():
        parser.error(f"there is no folder {found.json.parent}")
    return found


def _add_overhead(overhead: argparse.ArgumentParser) -> None:
    overhead.add_argument("--quick", action="store_true", help="a few small rounds, which judge nothing")
    with_ray = overhead.add_mutually_exclusive_group()
    with_ray.add_argument("--without-ray", action="store_true", help="leave Ray out, and the promise about it")
    with_ray.add_argument(
        "--ray-everywhere", action="store_true", help="measure Ray at every size, not at the smallest only (minutes)"
    )
    overhead.add_argument("--trace", action="store_true", help="also measure what writing a trace adds")
    overhead.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def _read_overhead(found: argparse.Namespace) -> Options:
    return Options(
        quick=found.quick,
        ray=not found.without_ray,
        ray_everywhere=found.ray_everywhere,
        trace=found.trace,
        json=found.json,
    )


def run_overhead(options: Options) -> int:
    """Measure, print the tables and the promises, and return the exit code.

    Raises:
        MissingExtraError: Ray is asked for and not installed.
    """
    if options.ray:
        find_ray()
    machine = read_machine()
    print(show.introduction(machine, options.rounds, options.least_actions), flush=True)
    if machine.is_busy:
        print(
            "This machine is busy with something else: whoever waits for a turn to run pays for that too.\n", flush=True
        )
    traced = Traced(options.sizes) if options.trace else None
    series = _measure(options, machine, traced)
    print(show.table(series, options.sizes))
    print(show.ratio_table(series, options.sizes))
    for note in _notes(options, traced):
        print(note)
    judged = [] if options.quick else gates(series)
    print(show.gate_lines(judged) if judged else "A quick run is too short to judge by: no promises.", end="")
    print()
    if options.json is not None:
        record = summary(options, machine, series, judged)
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if any(gate.passed is False for gate in judged) else 0


def summary(options: Options, machine: Machine, series: Sequence[Series], judged: Sequence[Gate]) -> dict[str, object]:
    """Return everything that was measured and decided, for a file."""
    names = dict.fromkeys(one.name for one in series)
    return {
        "machine": asdict(machine),
        "quick": options.quick,
        "slots": SLOTS,
        "least_actions": options.least_actions,
        "rounds": options.rounds,
        "series": [asdict(one) | {"median_us": one.median_us} for one in series],
        "growth": {name: growth(series, name) for name in names},
        "gates": [asdict(gate) | {"passed": gate.passed} for gate in judged],
    }


def _measure(options: Options, machine: Machine, traced: Traced | None) -> list[Series]:
    contenders = in_process(options.sizes)
    if traced is not None:
        contenders.append(traced.contender)
    with ExitStack() as stack:
        if options.ray:
            contenders.append(stack.enter_context(ray_contender(options.ray_sizes, machine.cores)))
        return measure(contenders, options.sizes, options.rounds, _tell_round, least_actions=options.least_actions)


def _tell_round(in_flight: int, round_: int) -> None:
    which = f"round {round_}" if round_ else "warm-up"
    print(f"{in_flight:,} in flight: {which}", file=sys.stderr, flush=True)


def _notes(options: Options, traced: Traced | None) -> list[str]:
    """Say what a reader of the tables must know."""
    notes: list[str] = []
    if not options.ray:
        notes.append("Ray: left out with --without-ray.\n")
    elif options.ray_sizes != options.sizes:
        notes.append(
            f"Ray: with {options.ray_sizes[-1]:,} in flight only, because a round of {options.sizes[-1]:,} Ray tasks "
            "takes up to a minute; --ray-everywhere measures them too.\n"
        )
    if traced is not None:
        notes.append(show.trace_line(traced.events, traced.dropped))
    return notes


@dataclass(frozen=True, slots=True)
class _Bench:
    """One bench: what the command line says of it, and what it does."""

    help: str
    description: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


_BENCHES = {
    "overhead": _Bench(
        "what scheduling costs per action",
        "Measure microseconds per no-op action beside asyncio, anyio and Ray; exit 1 if a promise breaks.",
        _add_overhead,
        lambda found: run_overhead(_read_overhead(found)),
    ),
    "schedule": _Bench(
        "how good the decisions are, in virtual time",
        "Compare policies over a grid of workloads in virtual time; exit 1 if a promise breaks.",
        schedule.add_options,
        lambda found: schedule.run(schedule.read(found)),
    ),
    "orders": _Bench(
        "who should come first, in virtual time",
        "Compare the orders of the queue on rollouts that think between their calls, in virtual time.",
        orders.add_options,
        orders.run,
    ),
    "replay": _Bench(
        "what recorded trajectories would have taken, in virtual time",
        "Replay recorded trajectories under several policies in virtual time; exit 1 if a promise breaks.",
        replay.add_options,
        replay.run,
    ),
    "plan": _Bench(
        "how long deciding takes",
        "Measure how long the scheduler decides under load; exit 1 if a promise breaks.",
        plan.add_options,
        lambda found: plan.run(read(found)),
    ),
    "scale": _Bench(
        "what large clusters ask of the scheduler, in virtual time",
        "Simulate clusters of up to 100,000 cores and 50,000 trajectories, under one scheduler and under several.",
        scale.add_options,
        lambda found: scale.run(read(found)),
    ),
    "inflight": _Bench(
        "what 50,000 actions in flight cost",
        "Measure memory per waiting action and the lag of the loop with 50,000 in flight; exit 1 if a promise breaks.",
        inflight.add_options,
        lambda found: inflight.run(read(found)),
    ),
    "faults": _Bench(
        "what bodies can do, and what is left of it",
        "Have every fault in bodies of every kind and tell what became of the runtime; exit 1 if a promise breaks.",
        faults.add_options,
        lambda found: faults.run(faults.read(found)),
    ),
    "aoe": _Bench(
        "what a grant and a command cost in Docker containers",
        "Measure the overhead of actions in Docker containers, directly and through the daemon; exit 1 if a promise "
        "breaks.",
        aoe.add_options,
        lambda found: aoe.run(aoe.read(found)),
    ),
    "resize": _Bench(
        "what becomes of running programs whose cores change",
        "Change the cores of programs that check their own work, end what is suspended, and measure what changes cost; "
        "exit 1 if a promise breaks.",
        resize.add_options,
        lambda found: resize.run(resize.read(found)),
    ),
    "evict": _Bench(
        "which services should go when room is wanted",
        "Compare what policies of eviction lose by restoring services again; exit 1 if a promise breaks.",
        evict.add_options,
        lambda found: evict.run(evict.read(found)),
    ),
    "swap": _Bench(
        "what restoring a service and evicting it costs",
        "Measure restores and evictions beside plain copies of as many bytes; exit 1 if a promise breaks.",
        swap.add_options,
        lambda found: swap.run(read(found)),
    ),
    "gpu": _Bench(
        "what one GPU does with services that take turns",
        "Measure restores, evictions and a mix of teachers on one GPU; exit 1 if a promise breaks, 2 without a GPU.",
        gpu.add_options,
        lambda found: gpu.run(gpu.read(found)),
    ),
    "ray": _Bench(
        "what asking a shared runtime adds to an action",
        "Measure actions through a shared runtime of a cluster beside bare actor calls; exit 1 if a promise breaks.",
        shared.add_options,
        lambda found: shared.run(read(found)),
    ),
}
