"""The command `bench inflight`: 50,000 actions in flight in one process; read the options, measure, print, judge."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from arl_tangram.bench import show
from arl_tangram.bench.gates import Gate
from arl_tangram.bench.inflight import show as inflight_show
from arl_tangram.bench.inflight.lag import MEAN_BODY_S, Crowd, Lag, measure_lag
from arl_tangram.bench.inflight.memory import Memory, Meter, Waiting, measure_memory
from arl_tangram.bench.machine import read_machine

R = TypeVar("R")

IN_FLIGHT = 50_000
REPEATS = 3
"""Of the lag; the median counts."""

QUICK_IN_FLIGHT = 1_000
QUICK_BODY_S = 0.05

MOST_BYTES = 4096.0
MOST_LAG_MS = 20.0


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        quick: few actions, once, which judge nothing.
        json: file for all figures, or None.
    """

    quick: bool = False
    json: Path | None = None

    @property
    def in_flight(self) -> int:
        """How many actions are in flight."""
        return QUICK_IN_FLIGHT if self.quick else IN_FLIGHT

    @property
    def repeats(self) -> int:
        """How often the lag is measured."""
        return 1 if self.quick else REPEATS

    @property
    def body_s(self) -> float:
        """How long a body lasts in the mean."""
        return QUICK_BODY_S if self.quick else MEAN_BODY_S


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--quick", action="store_true", help="few actions, once, which judge nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def read(found: argparse.Namespace) -> Options:
    """Return the options that were given."""
    return Options(quick=found.quick, json=found.json)


def run(options: Options) -> int:
    """Measure, print the figures and the promises, and return the exit code."""
    machine = read_machine()
    print(inflight_show.introduction(machine, options.in_flight, options.body_s), flush=True)
    memories = _memories(options)
    print(inflight_show.memory_table(memories), flush=True)
    lags = _lags(options)
    print(inflight_show.lag_table(lags))
    judged = [] if options.quick else gates(memories, lags)
    print(show.gate_lines(judged) if judged else "A quick run is too short to judge by: no promises.\n", end="")
    if options.json is not None:
        record = {
            "machine": asdict(machine),
            "quick": options.quick,
            "memory": [asdict(one) for one in memories],
            "lag": [inflight_show.record(one) for one in lags],
            "gates": [asdict(gate) | {"passed": gate.passed} for gate in judged],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if any(gate.passed is False for gate in judged) else 0


def gates(memories: Sequence[Memory], lags: Sequence[Lag]) -> list[Gate]:
    """Return the promises about memory and lag."""
    most = max((one for one in memories if one.who is not Waiting.TASK), key=lambda one: one.bytes_each)
    ours = median_run([one for one in lags if one.crowd is Crowd.MAP])
    return [
        Gate(
            f"a waiting action with its task at most {MOST_BYTES:,.0f} bytes",
            MOST_BYTES,
            most.bytes_each,
            f"{most.who}, {most.meter}",
        ),
        Gate(
            f"the loop comes at most {MOST_LAG_MS:g} ms late, p99",
            MOST_LAG_MS,
            ours.quantile_ms(0.99),
            f"{ours.crowd}, {ours.in_flight:,} in flight",
        ),
    ]


def median_run(lags: Sequence[Lag]) -> Lag:
    """Return the run whose 99th percentile is the median."""
    return sorted(lags, key=lambda one: one.quantile_ms(0.99))[len(lags) // 2]


def _memories(options: Options) -> list[Memory]:
    measured: list[Memory] = []
    for who in Waiting:
        for meter in Meter:
            print(f"memory: {who}, {meter}", file=sys.stderr, flush=True)
            measured.append(in_fresh_process(measure_memory, who, meter, options.in_flight))
    return measured


def _lags(options: Options) -> list[Lag]:
    measured: list[Lag] = []
    for repeat in range(options.repeats):
        for crowd in Crowd:
            print(f"lag: {crowd}, {repeat + 1} of {options.repeats}", file=sys.stderr, flush=True)
            measured.append(in_fresh_process(measure_lag, crowd, options.in_flight, options.body_s))
    return measured


def in_fresh_process(measure: Callable[..., R], *args: object) -> R:
    """Measure in a new interpreter, so that nothing is left over from what was measured before."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, *args).result()
