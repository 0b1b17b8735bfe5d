"""The command `plan`: how much of each resource a recorded run needs, to keep its ACT or its step."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from arl_tangram import plots
from arl_tangram.errors import ConfigurationError, TangramError
from arl_tangram.model.topology import Topology
from arl_tangram.plan.comparison import Kept, capacity_plan
from arl_tangram.plan.pictures import panels
from arl_tangram.plan.record import record_of
from arl_tangram.plan.show import shown
from arl_tangram.progress import progress_shown
from arl_tangram.replay.source import Source, read_source
from arl_tangram.replay.variants import Variant, policy_named, with_cores
from arl_tangram.simulate.workloads import pool

KEEP_ACT = 1.1
_INTERRUPTED = 130


def main(argv: Sequence[str]) -> int:
    """Read a recording, plan for it and print what is needed.

    Returns:
        0, 2 for wrong arguments, or a recording that cannot be read or planned for, 130 after Ctrl-C.
    """
    try:
        found = _parser().parse_args(argv)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 2
    try:
        text = _plan(found)
    except (TangramError, OSError) as error:
        sys.stderr.write(f"arl_tangram plan: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
    sys.stdout.write(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m arl_tangram plan",
        description="Find, in virtual time, how little of each resource a recorded run needs to be as fast.",
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="the file that Tangram(trace=...) wrote; or the files of another program's recording, as for replay",
    )
    parser.add_argument(
        "--keep-act",
        type=_factor,
        metavar="F",
        help=f"mean ACT with admission: at most F times the recorded, from 1; {KEEP_ACT:g} without --keep-step",
    )
    parser.add_argument("--keep-step", type=_factor, metavar="F", help="step: at most F times the recorded, from 1")
    parser.add_argument("--cores", type=_whole, metavar="N", help="that there were; default: as recorded")
    parser.add_argument(
        "--policy", default="elastic", metavar="NAME", help="elastic, paper, fixed(N) or reserved(N); default: elastic"
    )
    parser.add_argument("--share", choices=["resize"], help="running actions share the cores, except under reserved(N)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write plots: png, svg or pdf; needs the extra plot")
    parser.add_argument("--json", action="store_true", help="print all figures as one JSON object, and no progress")
    return parser


def _plan(found: argparse.Namespace) -> str:
    if found.plot is not None:
        plots.check(found.plot)
    variant = Variant(policy_named(found.policy), share=found.share is not None)
    kept = Kept(KEEP_ACT if found.keep_act is None and found.keep_step is None else found.keep_act, found.keep_step)
    source = read_source(found.files)
    topology = _topology(source, found.cores)
    with nullcontext(_silent) if found.json else progress_shown(Console(stderr=True)) as tell:
        plan = capacity_plan(source.workload, topology, variant, kept, host=source.host, tell=tell)
    if found.plot is not None:
        plots.save(found.plot, panels(plan))
    if found.json:
        return json.dumps(record_of(source, plan), indent=1, allow_nan=False) + "\n"
    return shown(source, plan, kept)


def _silent(_text: str, _done: int, _total: int) -> None:
    pass


def _topology(source: Source, cores: int | None) -> Topology:
    if source.topology is not None:
        return source.topology if cores is None else with_cores(source.topology, cores)
    if cores is None:
        raise ConfigurationError("the recording does not say how many cores there were: give --cores")
    return pool(cores)


def _factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"takes a factor from 1, not {text!r}")
    return value


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"takes a whole number from 1, not {text!r}")
    return int(text)
