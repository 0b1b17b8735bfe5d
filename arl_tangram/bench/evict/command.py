"""The command `bench evict`: read the options, play the requests, print the tables and the promises."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from arl_tangram.bench import show as bench_show
from arl_tangram.bench.evict import requests, show
from arl_tangram.bench.evict.gates import gates
from arl_tangram.bench.evict.runs import Case, drawn_cases, real_cases
from arl_tangram.bench.gates import Gate

SEEDS = (6, 7, 8, 9, 10)
"""Those on which results are published; the policies were tuned on 1 to 5."""

REQUESTS, QUICK_REQUESTS = 4_000, 200


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        seeds: of the services and of the requests.
        quick: few requests, which judge nothing.
        requests: a file of real requests, or None.
        json: file for all figures, or None.
    """

    seeds: tuple[int, ...] = SEEDS
    quick: bool = False
    requests: Path | None = None
    json: Path | None = None

    @property
    def count(self) -> int:
        """How many requests of each kind are drawn."""
        return QUICK_REQUESTS if self.quick else REQUESTS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), metavar="N", help="default: 6 to 10")
    parser.add_argument("--quick", action="store_true", help="few requests, which judge nothing")
    parser.add_argument(
        "--requests",
        type=Path,
        metavar="FILE",
        help=f"play these requests, too: comma-separated, with a column {' or '.join(requests.COLUMNS)}",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def read(found: argparse.Namespace) -> Options:
    """Return the options that were given."""
    return Options(tuple(found.seeds), found.quick, found.requests, found.json)


def run(options: Options) -> int:
    """Play everything, print the tables and the promises, and return the exit code.

    Returns:
        0 if the promises are kept, 1 if not, 2 if the file of requests cannot be used.
    """
    real: list[str] = []
    if options.requests is not None:
        try:
            real = requests.read(options.requests)
        except (OSError, ValueError) as error:
            print(f"these requests cannot be played: {error}", file=sys.stderr)
            return 2
    print(show.introduction(options.count, options.seeds), flush=True)
    cases = _told(drawn_cases(options.count, options.seeds))
    if options.requests is not None:
        cases += _told(real_cases(options.requests.stem, real, options.seeds))
    print(show.table(cases))
    print(show.hit_table(cases))
    judged = [] if options.quick else gates(cases)
    few = "So few requests are too few to judge by: no promises.\n"
    print(bench_show.gate_lines(judged) if judged else few, end="")
    if options.json is not None:
        record = summary(options, cases, judged)
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if any(gate.passed is False for gate in judged) else 0


def summary(options: Options, cases: Sequence[Case], judged: Sequence[Gate]) -> dict[str, object]:
    """Return everything that was found and decided, for a file."""
    return {
        "seeds": options.seeds,
        "quick": options.quick,
        "cases": [asdict(case) for case in cases],
        "gates": [asdict(gate) | {"passed": gate.passed} for gate in judged],
    }


def _told(cases: Iterable[Case]) -> list[Case]:
    """Return the cases, and say which one is over."""
    over: list[Case] = []
    for case in cases:
        print(f"{case.stream}{', engines' if case.engines else ''}", file=sys.stderr, flush=True)
        over.append(case)
    return over
