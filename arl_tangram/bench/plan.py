"""The command `bench plan`: how long the scheduler decides; read the options, measure, print, judge."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from arl_tangram.bench.decisions import CORES, NODES, Burst, Rounds, burst, rounds
from arl_tangram.bench.gates import Gate
from arl_tangram.bench.machine import Machine, read_machine
from arl_tangram.bench.options import Options, conclude, declare
from arl_tangram.scheduling.policies import Policy, fixed, paper
from arl_tangram.scheduling.policies.elastic import elastic

ACTIONS = 1_536
WAITING = 10_000
FEW, MANY = 1_000, 100_000
ROUNDS = 2_000
REPEATS = 5

MOST_BURST_MS = 50.0
MOST_DECIDE_MS = 10.0
MOST_MEDIAN_ROUND_US = 200.0
MOST_ROUND_MS = 10.0
MOST_GROWTH = 1.5


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured of one policy.

    Attributes:
        policy: its name.
        bursts: one for each repeat.
        many: rounds with 10,000 waiting, one for each repeat.
        growth: pairs of rounds with 1,000 and 100,000 waiting, one for each repeat.
    """

    policy: str
    bursts: tuple[Burst, ...]
    many: tuple[Rounds, ...]
    growth: tuple[tuple[Rounds, Rounds], ...]

    @property
    def burst_ms(self) -> float:
        """Milliseconds for the whole burst, median of the repeats."""
        return median(one.total_s for one in self.bursts) * 1e3

    @property
    def longest_decide_ms(self) -> float:
        """The longest single decision on the burst, in all repeats."""
        return max(max(one.decides_s) for one in self.bursts) * 1e3

    @property
    def median_round_us(self) -> float:
        """Microseconds of the median round."""
        return median(second for one in self.many for second in one.rounds_s) * 1e6

    @property
    def longest_round_ms(self) -> float:
        """The longest round, in all repeats."""
        return max(max(one.rounds_s) for one in self.many) * 1e3

    @property
    def few_us(self) -> float:
        """Microseconds per action with few waiting, median of the repeats."""
        return median(few.per_action_s for few, _ in self.growth) * 1e6

    @property
    def many_us(self) -> float:
        """Microseconds per action with many waiting, median of the repeats."""
        return median(many.per_action_s for _, many in self.growth) * 1e6

    @property
    def times_dearer(self) -> float:
        """What an action costs with many waiting against with few."""
        return self.many_us / self.few_us


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    declare(parser, "small sizes, once")


def run(options: Options) -> int:
    """Measure, print the figures and the promises, and return the exit code."""
    machine = read_machine()
    print(introduction(machine), flush=True)
    contenders: list[Callable[[], Policy]] = [elastic, lambda: paper(best_prefix=True), lambda: fixed(4)]
    figures = [_measure(make(), options) for make in contenders]
    print(table(figures))
    judged = [] if options.quick else gates(figures[0])
    return conclude(options, machine, {"figures": [asdict(one) for one in figures]}, judged)


def gates(figures: Figures) -> list[Gate]:
    """Return the promises about how long the default policy decides."""
    waiting = f"{WAITING:,} waiting"
    return [
        Gate(f"a burst of {ACTIONS:,} at most {MOST_BURST_MS:g} ms", MOST_BURST_MS, figures.burst_ms, "in all"),
        Gate(f"no decision on it over {MOST_DECIDE_MS:g} ms", MOST_DECIDE_MS, figures.longest_decide_ms, "the longest"),
        Gate(
            f"a round at most {MOST_MEDIAN_ROUND_US:g} us",
            MOST_MEDIAN_ROUND_US,
            figures.median_round_us,
            f"median, {waiting}",
        ),
        Gate(f"no round over {MOST_ROUND_MS:g} ms", MOST_ROUND_MS, figures.longest_round_ms, f"the longest, {waiting}"),
        Gate(
            f"an action with {MANY:,} waiting at most {MOST_GROWTH:g} times that with {FEW:,}",
            MOST_GROWTH,
            figures.times_dearer,
            f"{figures.few_us:.0f} and {figures.many_us:.0f} us",
        ),
    ]


def introduction(machine: Machine) -> str:
    """Say what is measured, and on what."""
    return (
        f"{machine.in_words}\n\n"
        f"{NODES} nodes of {CORES} cores, elastic actions with 5 options, CPU time of the scheduler alone; medians\n"
        f"of {REPEATS} repeats. Burst: {ACTIONS:,} actions on the idle cluster, all decisions and the longest one.\n"
        f"Round: on the full cluster with {WAITING:,} waiting one action ends and the scheduler decides.\n"
        f"Per action: submitting, deciding and ending it, with {FEW:,} and {MANY:,} waiting.\n"
    )


def table(figures: Sequence[Figures]) -> str:
    """Return a row for each policy."""
    heads = ("burst ms", "longest ms", "round us", "longest ms", "us, few", "us, many", "growth")
    lines = [f"{'':<42}" + "".join(f"{head:>12}" for head in heads)]
    for one in figures:
        values = (
            one.burst_ms,
            one.longest_decide_ms,
            one.median_round_us,
            one.longest_round_ms,
            one.few_us,
            one.many_us,
            one.times_dearer,
        )
        lines.append(f"{one.policy:<42}" + "".join(f"{value:>12.2f}" for value in values))
    return "\n".join(lines) + "\n"


def _measure(policy: Policy, options: Options) -> Figures:
    shrink = 50 if options.quick else 1
    repeats = 1 if options.quick else REPEATS
    count = ROUNDS // shrink
    bursts: list[Burst] = []
    many: list[Rounds] = []
    growth: list[tuple[Rounds, Rounds]] = []
    for repeat in range(repeats):
        print(f"{policy.name}: {repeat + 1} of {repeats}", file=sys.stderr, flush=True)
        bursts.append(burst(policy, ACTIONS // shrink))
        many.append(rounds(policy, WAITING // shrink, count))
        growth.append((rounds(policy, FEW // shrink, count), rounds(policy, MANY // shrink, count)))
    return Figures(policy.name, tuple(bursts), tuple(many), tuple(growth))
