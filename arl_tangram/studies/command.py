"""The command `simulate`: one batch with several contenders, or all that was published."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from arl_tangram import plots
from arl_tangram.errors import TangramError
from arl_tangram.progress import progress_shown
from arl_tangram.simulate.workloads import Coding, Testbed
from arl_tangram.studies import charts, records, show
from arl_tangram.studies.contenders import OURS, PLACES, SERVERLESS, STATIC
from arl_tangram.studies.paper import PUBLISHED, QUICK, SEEDS, WORKERS_OF_TRAINER, compute, sections
from arl_tangram.studies.parameters import WORKLOADS, with_settings
from arl_tangram.studies.runs import Run
from arl_tangram.studies.tasks import Outcomes
from arl_tangram.studies.where import where_coding, where_mopd

MOST_WORKERS = 2

_CONTENDERS: Mapping[str, tuple[str, ...]] = {
    "coding": (OURS, "fixed(4)", "reserved(1)", "reserved(2)", "reserved(4)"),
    "deepsearch": (OURS, f"static({WORKERS_OF_TRAINER})", PLACES),
    "mopd": (OURS, STATIC, SERVERLESS),
}
_NAMES = {
    "coding": "elastic, paper, fixed(N), reserved(N), or 'elastic, resize'",
    "deepsearch": "elastic, static(N) or reserved",
    "mopd": "elastic, static or serverless",
}


def main(argv: Sequence[str]) -> int:
    """Simulate and print the table.

    Returns:
        0, 2 for wrong arguments or what can never be served, 130 after Ctrl-C.
    """
    try:
        found = _parser().parse_args(argv)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 2
    if found.json is not None and not found.json.parent.is_dir():
        sys.stderr.write(f"arl_tangram simulate: there is no folder {found.json.parent}\n")
        return 2
    try:
        text = _paper(found) if found.study == "paper" else _batch(found)
    except (TangramError, OSError) as error:
        sys.stderr.write(f"arl_tangram simulate: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    sys.stdout.write(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m arl_tangram simulate", description="Simulate what was published, in virtual time."
    )
    studies = parser.add_subparsers(required=True, dest="study", metavar=" | ".join([*WORKLOADS, "paper"]))
    for name in WORKLOADS:
        its = studies.add_parser(name, help=f"one batch of {name}", description=f"Simulate a batch of {name}.")
        its.add_argument("--batch", type=_whole, metavar="N", help="trajectories; default: as published")
        its.add_argument(
            "--policy", action="append", metavar="NAME", help=f"once for each column: {_NAMES[name]}".replace("%", "%%")
        )
        its.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="a parameter of the trajectories or of the machines; again for each",
        )
        _add_common(its, [1])
    paper = studies.add_parser(
        "paper", help="all that was published", description="Simulate what was published, beside what was published."
    )
    paper.add_argument("--where", action="store_true", help="instead: vary the parameters that matter most")
    paper.add_argument("--quick", action="store_true", help="small batches, which say nothing")
    paper.add_argument("--markdown", action="store_true", help="print the table as one of a page")
    paper.add_argument("--plot", type=Path, metavar="DIR", help="write charts there; needs the extra plot")
    _add_common(paper, list(SEEDS))
    return parser


def _add_common(parser: argparse.ArgumentParser, seeds: list[int]) -> None:
    shown = " ".join(map(str, seeds))
    parser.add_argument("--seeds", type=_seed, nargs="+", default=seeds, metavar="N", help=f"default: {shown}")
    parser.add_argument("--workers", type=int, choices=range(1, MOST_WORKERS + 1), help="processes at once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def _batch(found: argparse.Namespace) -> str:
    workload, machines = with_settings(WORKLOADS[found.study], found.set)
    if found.batch is not None:
        workload = replace(workload, rollouts=found.batch)
    names = dict.fromkeys(found.policy or _CONTENDERS[found.study])
    runs = {name: [Run(workload, seed, name, machines) for seed in found.seeds] for name in names}
    outcomes = Outcomes()
    with progress_shown(Console(stderr=True)) as tell:
        outcomes.run([run for ones in runs.values() for run in ones], _workers(found), tell)
    _write(found, records.of_outcomes(outcomes))
    figures = {name: [outcomes.figures(run) for run in ones] for name, ones in runs.items()}
    where = _cores(machines) if isinstance(workload, Coding) else _gpus(machines)
    return f"{show.introduction(found.seeds, where)}\n{show.contenders(figures)}"


def _paper(found: argparse.Namespace) -> str:
    plot = None if found.plot is None else found.plot / ("where.svg" if found.where else "paper.svg")
    if plot is not None:
        plots.check(plot)
    seeds = tuple(dict.fromkeys(found.seeds))
    return _where(found, seeds, plot) if found.where else _published(found, seeds, plot)


def _published(found: argparse.Namespace, seeds: tuple[int, ...], plot: Path | None) -> str:
    sizes = QUICK if found.quick else PUBLISHED
    with progress_shown(Console(stderr=True)) as tell:
        rows, outcomes = compute(sections(sizes, seeds), _workers(found), tell)
    _write(
        found, {"seeds": seeds, "quick": found.quick, "rows": records.of_rows(rows), **records.of_outcomes(outcomes)}
    )
    if plot is not None:
        plots.save(plot, charts.of_paper(sizes, seeds, rows, outcomes))
    if found.markdown:
        return show.markdown(rows)
    where = f"{_cores(sizes.machines)} and {_gpus(sizes.machines)}"
    return f"{show.introduction(seeds, where)}{show.TIMES}\n{show.table(rows)}"


def _where(found: argparse.Namespace, seeds: tuple[int, ...], plot: Path | None) -> str:
    coding, mopd = where_coding(seeds, quick=found.quick), where_mopd(seeds, quick=found.quick)
    outcomes = Outcomes()
    with progress_shown(Console(stderr=True)) as tell:
        outcomes.run([*coding.tasks(), *mopd.tasks()], _workers(found), tell)
        outcomes.run(coding.further(outcomes), _workers(found), tell)
    places, services = coding.places(outcomes), mopd.found(outcomes)
    _write(found, {"seeds": seeds, "quick": found.quick, **records.of_outcomes(outcomes)})
    if plot is not None:
        plots.save(plot, charts.of_where(places))
    tables = [
        show.cells_shown(cells, as_markdown=found.markdown)
        for cells in (show.where_cells(places, coding.dops), show.services_cells(services))
    ]
    text = "\n".join(tables)
    if found.markdown:
        return text
    where = f"{_cores(coding.machines)} (AI coding), and {_gpus(mopd.machines)} (MOPD)"
    return f"{show.introduction(seeds, where)}{show.TIMES}\n{text}"


def _cores(machines: Testbed) -> str:
    return f"{machines.nodes} x {machines.cores} cores"


def _gpus(machines: Testbed) -> str:
    return f"{machines.gpu_nodes} x {machines.gpus} GPUs"


def _workers(found: argparse.Namespace) -> int:
    return int(found.workers or min(MOST_WORKERS, len(os.sched_getaffinity(0))))


def _write(found: argparse.Namespace, figures: Mapping[str, object]) -> None:
    if found.json is not None:
        found.json.write_text(json.dumps(figures, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"takes a whole number from 1, not {text!r}")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"takes whole numbers from 0, not {text!r}")
    return int(text)
