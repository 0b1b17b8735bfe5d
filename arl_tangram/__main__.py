"""The command line: `python -m arl_tangram demo | doctor | report | replay | plan | simulate | bench`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from arl_tangram.errors import TangramError

_COMMANDS = {
    "demo": ("arl_tangram.demo.command", "run coding rollouts, scheduled by action and reserved by trajectory"),
    "doctor": ("arl_tangram.doctor.command", "say what of this machine can be used, and what dead runs have left"),
    "report": ("arl_tangram.trace.command", "report on a trace"),
    "replay": ("arl_tangram.replay.command", "predict what a recorded run takes with other cores or policies"),
    "plan": ("arl_tangram.plan.command", "find how few cores, memory and calls a recorded run needs"),
    "simulate": ("arl_tangram.studies.command", "simulate what was published, beside what was published"),
    "bench": ("arl_tangram.bench.command", "measure the library on this machine"),
}


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code; 2 for wrong usage."""
    if not argv or argv[0] in ("-h", "--help"):
        print(_usage())
        return 0 if argv else 2
    if argv[0] not in _COMMANDS:
        print(f"unknown command {argv[0]!r}\n{_usage()}", file=sys.stderr)
        return 2
    module = importlib.import_module(_COMMANDS[argv[0]][0])
    try:
        return int(module.main(argv[1:]))
    except TangramError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _usage() -> str:
    lines = ["usage: python -m arl_tangram COMMAND [options]   (COMMAND --help tells more)", ""]
    lines += [f"  {name:<8} {text}" for name, (_, text) in _COMMANDS.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
