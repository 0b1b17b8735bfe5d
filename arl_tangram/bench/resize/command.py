"""The command `bench resize`: programs that run while their cores change, and what the changes cost."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from arl_tangram.bench import options as common
from arl_tangram.bench.aoe.progress import shown
from arl_tangram.bench.faults.where import Where
from arl_tangram.bench.machine import read_machine
from arl_tangram.bench.resize import show
from arl_tangram.bench.resize.changing import change_at_random
from arl_tangram.bench.resize.costs import compare_workers, time_switches
from arl_tangram.bench.resize.ending import kill, kill_trainers, time_out
from arl_tangram.bench.resize.gates import gates
from arl_tangram.bench.resize.place import bed
from arl_tangram.bench.resize.plan import FULL, QUICK, Plan
from arl_tangram.bench.resize.results import Results
from arl_tangram.errors import ConfigurationError
from arl_tangram.machine_image import image_of_this_machine

IMAGE = "arl_tangram-resize"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        quick: little is done, which judges nothing.
        resizes: random changes; None for as many as is usual.
        docker: the sandboxes are Docker containers.
        url: where the Docker daemon listens; None asks the environment.
        json: file for all figures, or None.
    """

    quick: bool = False
    resizes: int | None = None
    docker: bool = False
    url: str | None = None
    json: Path | None = None

    @property
    def plan(self) -> Plan:
        """How much of everything."""
        plan = QUICK if self.quick else FULL
        return plan if self.resizes is None else replace(plan, resizes=self.resizes)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    common.declare(parser, "a few changes")
    parser.add_argument(
        "--resizes", type=_number, metavar="N", help=f"random changes of running programs (default: {FULL.resizes:,})"
    )
    parser.add_argument("--docker", action="store_true", help="sandboxes are Docker containers")
    parser.add_argument(
        "--url", metavar="URL", help="with --docker: where the daemon listens (default: as the docker CLI finds it)"
    )


def read(found: argparse.Namespace) -> Options:
    """Return the options that were given."""
    return Options(found.quick, found.resizes, found.docker, found.url, found.json)


def run(options: Options) -> int:
    """Do all of it, print what came of it and the promises, and return the exit code.

    Raises:
        ConfigurationError: cores cannot be changed here, no daemon can be reached, or this machine lacks something
            that the image needs.
    """
    if options.url is not None and not options.docker:
        print("--url goes with --docker", file=sys.stderr)
        return 2
    machine, plan = read_machine(), options.plan
    sandboxes = "Docker containers" if options.docker else "sandboxes of this machine"
    print(show.introduction(machine, plan, sandboxes), flush=True)
    with shown(plan.about_s) as tell, tempfile.TemporaryDirectory(prefix="arl_tangram-") as folder:
        results = asyncio.run(_measure(options, Path(folder, "sandboxes"), tell))
    print(f"Grants here: {results.grants}.\n")
    print(show.changed(results.changed))
    print(show.ended(results.timeouts, results.kills, results.trainers))
    print(show.costs(results.switches, results.workers))
    print()
    figures = {"docker": options.docker, "plan": asdict(plan), **asdict(results)}
    asked = common.Options(options.quick, options.json)
    return common.conclude(asked, machine, figures, [] if options.quick else gates(results))


async def _measure(options: Options, root: Path, tell: Callable[[str], None]) -> Results:
    if not options.docker:
        return await _measure_in(Where(root), options.plan, tell)
    tell("the image")
    async with image_of_this_machine(IMAGE, (), url=options.url, tell=lambda _sent, _size: None) as image:
        return await _measure_in(Where(root, image, options.url), options.plan, tell)


async def _measure_in(where: Where, plan: Plan, tell: Callable[[str], None]) -> Results:
    async with bed(where, secrets.token_hex(8)) as made:
        if (why := made.manager.cannot_resize()) is not None:
            raise ConfigurationError(f"the cores of running programs cannot be changed here: {why}")
        grants = made.manager.describe()
        changed = await change_at_random(made, plan, tell)
        timeouts = await time_out(made, plan, tell)
        kills = await kill(made, plan, tell)
        switches = await time_switches(made, plan, tell)
        workers = await compare_workers(made, plan, tell)
    trainers = await asyncio.to_thread(kill_trainers, where, plan, tell)
    return Results(grants, changed, tuple(timeouts), tuple(kills), tuple(trainers), switches, workers)


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of changes from 1 to 1000000")
    return int(text)
