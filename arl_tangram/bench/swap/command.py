"""The command `bench swap`: read the options, measure, print the table and the promises."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from arl_tangram.bench import show as bench_show
from arl_tangram.bench.machine import read_machine
from arl_tangram.bench.swap import gates, show
from arl_tangram.managers.gpu.extra import need_torch

ROUNDS = 5
LAG_REPEATS = 20
"""Copies one after the other: the loop is asked for its turn a thousand times and more meanwhile."""

QUICK_ROUNDS = 2
QUICK_LAG_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        quick: a small module and few rounds, which judge nothing.
        json: file for all figures, or None.
    """

    quick: bool = False
    json: Path | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--quick", action="store_true", help="a small module and few rounds, which judge nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def read(found: argparse.Namespace) -> Options:
    """Return the options that were given."""
    return Options(quick=found.quick, json=found.json)


def run(options: Options) -> int:
    """Measure, print, and return the exit code.

    Raises:
        MissingExtraError: torch is not installed.
    """
    need_torch()
    return asyncio.run(_run(options))


async def _run(options: Options) -> int:
    from arl_tangram.bench.swap.bed import made_bed  # noqa: PLC0415 - with torch, an extra
    from arl_tangram.bench.swap.rounds import measure  # noqa: PLC0415 - the same

    machine = await asyncio.to_thread(read_machine, "numpy", "torch")
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    async with made_bed(quick=options.quick) as bed:
        print(show.introduction(machine, bed.hosted.size, rounds), flush=True)
        measured = await measure(bed, rounds, QUICK_LAG_REPEATS if options.quick else LAG_REPEATS, _tell)
        size = bed.hosted.size
    print(show.table(measured, size))
    judged = [] if options.quick else gates.gates(measured)
    print(bench_show.gate_lines(judged) if judged else "A quick run is too small to judge by: no promises.\n", end="")
    if options.json is not None:
        record = {
            "machine": asdict(machine),
            "quick": options.quick,
            "bytes": size,
            "rounds": [asdict(one) for one in measured],
            "gates": [asdict(gate) | {"passed": gate.passed} for gate in judged],
        }
        await asyncio.to_thread(options.json.write_text, json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if any(gate.passed is False for gate in judged) else 0


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
