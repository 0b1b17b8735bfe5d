"""The command `bench scale`: read the options, run the clusters, print the table."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from arl_tangram.bench.machine import read_machine
from arl_tangram.bench.options import Options, conclude, declare
from arl_tangram.bench.scale.clusters import Cluster, Figures, run_cluster

TURNS = 2.0
"""Few, so that many trajectories end within minutes; what a call costs does not depend on how many follow."""


def clusters(*, quick: bool = False) -> list[Cluster]:
    """Return the cases: larger and larger clusters as loaded as each other, then groups of a full one."""
    if quick:
        return [
            Cluster(2, 16, 16, TURNS),
            Cluster(4, 16, 32, TURNS),
            Cluster(4, 4, 32, TURNS, groups=2, assign="random"),
            Cluster(4, 4, 32, TURNS, groups=2),
        ]
    growing = [Cluster(nodes, 256, nodes * 128, TURNS) for nodes in (2, 16, 98, 391)]
    full = Cluster(60, 32, 60 * 128, TURNS)
    grouped = [
        Cluster(full.nodes, full.cores, full.rollouts, TURNS, groups, assign)
        for groups in (4, 15, 60)
        for assign in ("fewest", "random")
    ]
    return [*growing, full, *grouped]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    declare(parser, "small clusters")


def run(options: Options) -> int:
    """Run the clusters, print what they took, and return the exit code."""
    machine = read_machine()
    print(f"{machine.in_words}\n\n{introduction()}\n{header()}", flush=True)
    found: list[Figures] = []
    for cluster in clusters(quick=options.quick):
        print(f"{cluster.name} ...", file=sys.stderr, flush=True)
        found.append(run_cluster(cluster))
        print(row(found[-1]), flush=True)
    print()
    return conclude(options, machine, {"figures": [asdict(one) for one in found]}, [])


def introduction() -> str:
    """Say what the columns are."""
    return (
        "Coding trajectories, all begun at once, in virtual time; running actions share their cores. CPU time of\n"
        "decisions alone. busy: of a processor, what the busiest scheduler has need of while the step goes on.\n"
    )


def header() -> str:
    """Return the names of the columns."""
    heads = ("calls", "decisions", "median us", "p99 us", "longest ms", "busy", "ACT s")
    return f"{'':<48}" + "".join(f"{head:>11}" for head in heads)


def row(one: Figures) -> str:
    """Return what one case took."""
    values = (
        f"{one.calls:,}",
        f"{one.decisions:,}",
        f"{one.median_s * 1e6:.0f}",
        f"{one.p99_s * 1e6:.0f}",
        f"{one.longest_s * 1e3:.1f}",
        f"{one.busy:.1%}",
        f"{one.act_s:.3f}",
    )
    return f"{one.cluster.name:<48}" + "".join(f"{value:>11}" for value in values)
