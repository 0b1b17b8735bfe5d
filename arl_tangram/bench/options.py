"""The options that benches have in common, and how those end that have no others: promises, figures, exit code."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from arl_tangram.bench import show
from arl_tangram.bench.gates import Gate
from arl_tangram.bench.machine import Machine


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        quick: little is measured, which judges nothing.
        json: file for all figures, or None.
    """

    quick: bool = False
    json: Path | None = None


def declare(parser: argparse.ArgumentParser, quick: str) -> None:
    """Declare the options; `quick` says what is measured then."""
    parser.add_argument("--quick", action="store_true", help=f"{quick}, which judge nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def read(found: argparse.Namespace) -> Options:
    """Return the options that were given."""
    return Options(quick=found.quick, json=found.json)


def conclude(options: Options, machine: Machine, figures: Mapping[str, object], judged: Sequence[Gate]) -> int:
    """Print the promises, write all figures if that was asked for, and return the exit code.

    Args:
        options: what the user asked for.
        machine: where it was measured.
        figures: what was, as JSON can have it.
        judged: the promises; none of a quick run.
    """
    print(show.gate_lines(judged) if judged else "A quick run is too small to judge by: no promises.\n", end="")
    if options.json is not None:
        record = {
            "machine": asdict(machine),
            "quick": options.quick,
            **figures,
            "gates": [asdict(gate) | {"passed": gate.passed} for gate in judged],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if any(gate.passed is False for gate in judged) else 0
