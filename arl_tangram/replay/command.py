"""The command `replay`: predict what a recorded run takes with other cores, policies or batches."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from arl_tangram.errors import ConfigurationError, TangramError
from arl_tangram.model.topology import Topology
from arl_tangram.replay import show
from arl_tangram.replay.source import Source, read_source
from arl_tangram.replay.variants import (
    Prediction,
    Variant,
    of_batch,
    policy_named,
    predict,
    variant_named,
    with_cores,
    with_memory,
)
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies import elastic
from arl_tangram.simulate.workloads import pool


def main(argv: Sequence[str]) -> int:
    """Read a recording, replay it and print the table.

    Returns:
        0, or 2 for wrong arguments, or a recording that cannot be read or replayed.
    """
    try:
        found = _parser().parse_args(argv)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 2
    try:
        text = _replay(found)
    except (TangramError, OSError) as error:
        sys.stderr.write(f"arl_tangram replay: {error}\n")
        return 2
    sys.stdout.write(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m arl_tangram replay",
        description="Predict, in virtual time, what a recorded run would have taken with other cores or policies.",
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="the file that Tangram(trace=...) wrote; or the files of another program's recording (comma-separated or "
        "JSON lines): calls with traj, start_s, dur_s, trajectories with traj, span_s",
    )
    parser.add_argument(
        "--cores",
        action="append",
        type=_whole,
        metavar="N",
        help="of the pool; once for each table; default: as many as there were",
    )
    parser.add_argument("--memory-gib", type=_amount, metavar="M", help="of the pool; default: as much as there was")
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        help="elastic, paper, fixed(N) or reserved(N), behind a comma resize, or an order, as in 'elastic, resize'; "
        "once for each column; default: as recorded",
    )
    parser.add_argument("--share", choices=["resize"], help="running actions share the cores, except under reserved(N)")
    parser.add_argument("--order", choices=get_args(Order), default="fcfs", help="who comes first (fcfs)")
    parser.add_argument("--batch", type=_whole, metavar="N", help="trajectories: the first N, or all again and again")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    return parser


def _replay(found: argparse.Namespace) -> str:
    source = read_source(found.files)
    topologies = [_topology(source, cores, found.memory_gib) for cores in found.cores or [None]]
    workload = source.workload if found.batch is None else of_batch(source.workload, found.batch)
    variants = _variants(source, found)
    tables = [
        [predict(workload, topology, variant, host=source.host) for variant in variants] for topology in topologies
    ]
    predictions = [prediction for table in tables for prediction in table]
    # What was asked for may be the run as it was: then that is done already.
    there = [one for one in predictions if (one.topology, workload) == (source.topology, source.workload)]
    recorded, itself = _recorded(source, there)
    if found.json:
        return json.dumps(_summary(source, predictions, itself), indent=1) + "\n"
    text = show.introduction(source, workload)
    for table in tables:
        columns = [recorded, *((one.variant.name, one.figures, one.topology) for one in table)]
        text += f"\n{show.table(columns)}{show.refusals(table)}"
    if source.measured is not None and itself is not None:
        text += f"\n{show.deviation(source.measured, itself)}"
    return text


def _topology(source: Source, cores: int | None, memory_gib: float | None) -> Topology:
    topology = source.topology
    if topology is None:
        if cores is None:
            raise ConfigurationError("the recording does not say how many cores there were: give --cores")
        topology = pool(cores)
    elif cores is not None:
        topology = with_cores(topology, cores)
    return topology if memory_gib is None else with_memory(topology, memory_gib)


def _variants(source: Source, found: argparse.Namespace) -> list[Variant]:
    share = found.share is not None
    if found.policy is not None:
        return [variant_named(name, order=found.order, share=share) for name in found.policy]
    own = _own(source)
    return [Variant(own.policy, found.order, share or own.shares)]


def _own(source: Source) -> Variant:
    """Return how the run was recorded; the default policy where that was the user's own, or is not known."""
    try:
        policy = elastic() if source.policy is None else policy_named(source.policy)
    except ConfigurationError:
        policy = elastic()
    return Variant(policy, share=source.shared)


def _recorded(source: Source, there: Sequence[Prediction]) -> tuple[show.Column, Prediction | None]:
    """Return the column of what was recorded, and the replay of the recorded run as it was, if that is known."""
    if source.measured is not None and source.topology is not None:
        own = _own(source)
        itself = next((one for one in there if one.variant == own), None)
        if itself is None:
            itself = predict(source.workload, source.topology, own, host=source.host)
        return ("measured", source.measured, source.topology), itself
    alone = predict(source.workload, pool(max(1, len(source.workload.rollouts))), Variant(elastic()))
    return ("recorded", alone.figures, None), None


def _summary(source: Source, predictions: Sequence[Prediction], itself: Prediction | None) -> dict[str, object]:
    """Return all figures, for a program."""
    return {
        "policy": source.policy,
        "notes": source.notes,
        "measured": None if source.measured is None else asdict(source.measured),
        "replayed_as_it_was": None if itself is None else _record(itself),
        "predicted": [_record(prediction) for prediction in predictions],
    }


def _record(prediction: Prediction) -> dict[str, object]:
    cores = show.cores_of(prediction.topology)
    return {"variant": prediction.variant.name, "cores": cores, **asdict(prediction.figures)}


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"takes a whole number from 1, not {text!r}")
    return int(text)


def _amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"takes an amount above 0, not {text!r}")
    return value
