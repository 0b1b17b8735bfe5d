"""The command `bench ray`: read the options, measure, print the table and the promises."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import asdict

from arl_tangram.bench.machine import read_machine
from arl_tangram.bench.options import Options, conclude, declare
from arl_tangram.bench.ray import gates, show
from arl_tangram.bench.ray.figures import rows
from arl_tangram.integrations.ray.installed import find_ray


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    declare(parser, "two clients and few calls")


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
    figures = {
        "size": asdict(size),
        "rounds": [asdict(one) for one in rounds],
        "rows": [one._asdict() for one in rows(rounds)],
    }
    return conclude(options, machine, figures, [] if options.quick else gates.gates(rows(rounds)))


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
