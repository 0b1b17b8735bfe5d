"""The command `report`: read a trace and print its report."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from arl_tangram.errors import TraceFormatError
from arl_tangram.trace.plausible import Plausible
from arl_tangram.trace.reader import Ending, open_trace
from arl_tangram.trace.report import render_figures
from arl_tangram.trace.summary import Summary


def main(argv: Sequence[str]) -> int:
    """Print the report of a trace file.

    Args:
        argv: the arguments after `report`.

    Returns:
        0, or 2 for wrong arguments or a file that cannot be read.
    """
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 2
    try:
        text = _report(arguments.trace, as_json=arguments.json, rows=arguments.rows)
    except (TraceFormatError, OSError) as error:
        sys.stderr.write(f"arl_tangram report: {error}\n")
        return 2
    sys.stdout.write(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m arl_tangram report",
        description="Show where the time of a traced run went: completion times and their parts, and utilisation.",
    )
    parser.add_argument("trace", help="the file that Tangram(trace=...) wrote, such as run.jsonl")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument("--rows", type=_count, default=20, help="the most action names to list (20)")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"takes a whole number from 1, not {text!r}")
    return int(text)


def _report(path: str, *, as_json: bool, rows: int) -> str:
    with open_trace(path) as reader:
        summary, plausible = Summary(reader.header.topology), Plausible(reader.header.topology)
        for event in reader.events():
            if (refusal := plausible.refusal(event)) is not None:
                raise reader.error(refusal)
            summary.add(event)
        figures, ending, policy = summary.figures(), reader.ending, reader.header.policy
    if as_json:
        record = {"policy": policy, "complete": ending.complete, "notes": _notes(ending), **asdict(figures)}
        return json.dumps(record, indent=2) + "\n"
    return render_figures(figures, policy=policy, notes=_notes(ending), rows=rows)


def _notes(ending: Ending) -> list[str]:
    """Say what the figures do not cover."""
    notes: list[str] = []
    if ending.footer is None:
        notes.append("the trace has no end: the run was killed or still goes on")
    elif ending.footer.dropped or ending.footer.lost:
        notes.append(
            f"{ending.footer.dropped:,} events were dropped because the writer could not keep up and "
            f"{ending.footer.lost:,} were lost to errors: counts are too low, and what seems held may be too high"
        )
    if ending.missing:
        notes.append(ending.told_missing())
    if ending.unknown:
        notes.append(f"fields that are not looked at: {', '.join(ending.unknown)}")
    if ending.truncated:
        notes.append("the last line is cut off and left out")
    if ending.unmatched:
        notes.append(f"{ending.unmatched:,} starts are left out: their submissions are not in the file")
    return notes
