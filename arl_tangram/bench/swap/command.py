"""The command `bench swap`: read the options, measure, print the table and the promises."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import asdict

from arl_tangram.bench.machine import read_machine
from arl_tangram.bench.options import Options, conclude, declare
from arl_tangram.bench.swap import gates, show
from arl_tangram.managers.gpu.extra import need_torch

ROUNDS = 5
LAG_REPEATS = 20
"""Copies one after the other: the loop is asked for its turn a thousand times and more meanwhile."""

QUICK_ROUNDS = 2
QUICK_LAG_REPEATS = 3


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    declare(parser, "a small module and few rounds")


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
    figures = {"bytes": size, "rounds": [asdict(one) for one in measured]}
    judged = [] if options.quick else gates.gates(measured)
    return await asyncio.to_thread(conclude, options, machine, figures, judged)


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
