"""The command `bench ray`: read the options, measure, print the table and the promises."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from arl_tangram.bench import show as bench_show
from arl_tangram.bench.machine import read_machine
from arl_tangram.bench.ray import gates, show
from arl_tangram.bench.ray.figures import rows
from arl_tangram.integrations.ray.installed import find_ray


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        quick: few clients and calls, which judge nothing.
        json: file for all figures, or None.
    """

    quick: bool = False
    json: Path | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--quick", action="store_true", help="two clients and few calls, which judge nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def read(found: argparse.Namespace) -> Options:
    """Return the options that were given."""
    return Options(quick=found.quick, json=found.json)


def run(options: Options) -> int:
    """Measure, print, and return the exit code.

    Raises:
        MissingExtraError: Ray is not installed.
    """
    find_ray()
    from arl_tangram.bench.ray.rounds import Size, cluster, measure  # noqa: PLC0415 - no bench but this needs clients

    size = Size((1, 2), 1, 40, 400, 16) if options.quick else Size((1, 8, 16), 3, 1600, 16_000, 64)
    machine = read_machine("ray")
    print(show.introduction(machine, size.rounds, size.in_flight), flush=True)
    with cluster(machine.cores) as library:
        rounds = asyncio.run(measure(library, size, _tell))
    print(show.table(rows(rounds)))
    judged = [] if options.quick else gates.gates(rows(rounds))
    print(bench_show.gate_lines(judged) if judged else "A quick run is too small to judge by: no promises.\n", end="")
    if options.json is not None:
        record = {
            "machine": asdict(machine),
            "quick": options.quick,
            "size": asdict(size),
            "rounds": [asdict(one) for one in rounds],
            "rows": [one._asdict() for one in rows(rounds)],
            "gates": [asdict(gate) | {"passed": gate.passed} for gate in judged],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if any(gate.passed is False for gate in judged) else 0


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
