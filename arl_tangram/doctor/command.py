"""The command `python -m arl_tangram doctor`: look, remove if that is asked for, print."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from arl_tangram.doctor import daemons, host, leftovers, show
from arl_tangram.doctor.findings import Leftover, exit_code

_MEANING = """\
Each line has a subject, its state and the reason:
  ok       it can be used
  limited  it can be used, but not in full
  absent   it is not there, which is wrong only if you want it
  wrong    it is there, or was asked for with --url, and cannot be used
  left     a dead run has left it; what a run that lives has is never touched
  removed, failed   with --remove: what became of it

The exit code is 0 if nothing is wrong and nothing is left (any more), 1 if something is, 2 for wrong usage.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for.

    Attributes:
        url: of a Docker daemon; None looks for those of this machine.
        remove: whether leftovers are removed.
        json: whether to print JSON.
    """

    url: str | None
    remove: bool
    json: bool


def main(argv: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    options = read_options(argv)
    daemon_findings, containers = asyncio.run(daemons.look(options.url))
    findings = [*host.sandboxing(), *daemon_findings, *host.beside()]
    left = leftovers.find()
    if options.remove:
        containers = _removed(containers)
        left = leftovers.remove(left)
    found = [*containers, *left]
    if options.json:
        print(json.dumps(show.record(findings, found), indent=1))
    else:
        print(show.lines(findings, found, removing=options.remove))
    return exit_code(findings, found)


def read_options(argv: Sequence[str]) -> Options:
    """Parse the command line; exits with a message where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m arl_tangram doctor",
        description="Say what of this machine can be used and why the rest cannot, and what dead runs have left.",
        epilog=_MEANING,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--url", metavar="URL", help="of the Docker daemon to ask (default: those that can be found on this machine)"
    )
    parser.add_argument("--remove", action="store_true", help="remove what dead runs have left")
    parser.add_argument("--json", action="store_true", help="print all of it as one JSON object")
    found = parser.parse_args(argv)
    return Options(url=found.url, remove=found.remove, json=found.json)


def _removed(containers: Sequence[Leftover]) -> list[Leftover]:
    errors = asyncio.run(daemons.remove(containers))
    return [
        replace(leftover, error=errors[leftover.name]) if leftover.name in errors else replace(leftover, removed=True)
        for leftover in containers
    ]
