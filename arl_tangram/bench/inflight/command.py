"""The command `bench inflight`: 50,000 actions in flight in one process; read the options, measure, print, judge."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import TypeVar

from arl_tangram.bench.gates import Gate
from arl_tangram.bench.inflight import show as inflight_show
from arl_tangram.bench.inflight.lag import MEAN_BODY_S, Crowd, Lag, measure_lag
from arl_tangram.bench.inflight.memory import Memory, Meter, Waiting, measure_memory
from arl_tangram.bench.machine import read_machine
from arl_tangram.bench.options import Options, conclude, declare

R = TypeVar("R")

IN_FLIGHT = 50_000
REPEATS = 3
"""Of the lag; the median counts."""

QUICK_IN_FLIGHT = 1_000
QUICK_BODY_S = 0.05

MOST_BYTES = 4096.0
MOST_LAG_MS = 20.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    declare(parser, "few actions, once")


def run(options: Options) -> int:
    """Measure, print the figures and the promises, and return the exit code."""
    machine = read_machine()
    in_flight, body_s = (QUICK_IN_FLIGHT, QUICK_BODY_S) if options.quick else (IN_FLIGHT, MEAN_BODY_S)
    print(inflight_show.introduction(machine, in_flight, body_s), flush=True)
    memories = _memories(in_flight)
    print(inflight_show.memory_table(memories), flush=True)
    lags = _lags(in_flight, body_s, 1 if options.quick else REPEATS)
    print(inflight_show.lag_table(lags))
    figures = {"memory": [asdict(one) for one in memories], "lag": [inflight_show.record(one) for one in lags]}
    return conclude(options, machine, figures, [] if options.quick else gates(memories, lags))


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


def _memories(in_flight: int) -> list[Memory]:
    measured: list[Memory] = []
    for who in Waiting:
        for meter in Meter:
            print(f"memory: {who}, {meter}", file=sys.stderr, flush=True)
            measured.append(in_fresh_process(measure_memory, who, meter, in_flight))
    return measured


def _lags(in_flight: int, body_s: float, repeats: int) -> list[Lag]:
    measured: list[Lag] = []
    for repeat in range(repeats):
        for crowd in Crowd:
            print(f"lag: {crowd}, {repeat + 1} of {repeats}", file=sys.stderr, flush=True)
            measured.append(in_fresh_process(measure_lag, crowd, in_flight, body_s))
    return measured


def in_fresh_process(measure: Callable[..., R], *args: object) -> R:
    """Measure in a new interpreter, so that nothing is left over from what was measured before."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, *args).result()
