"""The command `bench replay`: read recorded trajectories, run the contenders, print the table and the promises."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from arl_tangram.bench import show as bench_show
from arl_tangram.bench.gates import Gate
from arl_tangram.bench.replay import show
from arl_tangram.bench.replay.runs import CORES, Row, gates, measure
from arl_tangram.replay.recorded import Repairs, workload_of
from arl_tangram.replay.recording import of_group, read
from arl_tangram.replay.tables import CALL_COLUMNS, TRAJECTORY_COLUMNS, RecordingError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help=f"comma-separated: calls, with the columns {', '.join(CALL_COLUMNS)}; beside them, where there are any, "
        f"trajectories, with the columns {', '.join(TRAJECTORY_COLUMNS)}",
    )
    parser.add_argument(
        "--cores", type=_cores, nargs="+", default=list(CORES), metavar="N", help="of the pool; default: 8 16 32 64"
    )
    parser.add_argument("--group", metavar="NAME", help="only the trajectories of this group")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def run(found: argparse.Namespace) -> int:
    """Replay the files, print the table and the promises, and return the exit code.

    Returns:
        0 if the promises are kept, 1 if not, 2 if the files cannot be replayed.
    """
    try:
        workload, repairs = workload_of(of_group(read(found.files), found.group))
    except (OSError, RecordingError) as error:
        print(f"this cannot be replayed: {error}", file=sys.stderr)
        return 2
    print(show.introduction(workload, repairs), flush=True)
    rows = measure(workload, found.cores, _tell)
    print(show.table(rows))
    judged = gates(rows)
    print(bench_show.gate_lines(judged), end="")
    if found.json is not None:
        found.json.write_text(json.dumps(summary(repairs, rows, judged), indent=1) + "\n", encoding="utf-8")
    return 1 if any(gate.passed is False for gate in judged) else 0


def summary(repairs: Repairs, rows: Sequence[Row], judged: Sequence[Gate]) -> dict[str, object]:
    """Return everything that was found and decided, for a file."""
    return {
        "repairs": asdict(repairs),
        "runs": [asdict(row) for row in rows],
        "gates": [asdict(gate) | {"passed": gate.passed} for gate in judged],
    }


def _cores(text: str) -> int:
    """Return a number of cores, from 1."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of cores")
    return int(text)


def _tell(cores: int, contender: str) -> None:
    print(f"{cores} cores: {contender}", file=sys.stderr, flush=True)
