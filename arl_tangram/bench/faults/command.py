"""The command `bench faults`: what bodies of every kind can do, and what then became of the runtime."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from arl_tangram.bench.faults.actions import has_sandbox
from arl_tangram.bench.faults.cases import (
    BY_NAME,
    DEAF_S,
    ENDED_S,
    KILL_GRACE_S,
    TIMEOUT_S,
    WORDS,
    Case,
    Kind,
    Promise,
    chosen,
)
from arl_tangram.bench.faults.runs import Results, run_cases
from arl_tangram.bench.faults.trainer import Row
from arl_tangram.bench.faults.watch import Ending
from arl_tangram.bench.machine import Machine, read_machine
from arl_tangram.machine_image import image_of_this_machine

IMAGE = "arl_tangram-faults"

_HEADS = ("body", "fault", "the caller gets", "mask", "answer", "free", "loop", "next", "left", "")
_NOT_LIMITED = "exit code 0"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        only: kinds, faults, or both with a slash between; all if empty.
        json: file for all figures, or None.
        docker: sandboxes are Docker containers, and only bodies that have one are tried.
        url: where the Docker daemon listens; None asks the environment.
    """

    only: tuple[str, ...] = ()
    json: Path | None = None
    docker: bool = False
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise, and where it is broken.

    Attributes:
        promise: what is promised, in words.
        of: how many cases or trainers it is about.
        broken: the names of those in which it is broken.
    """

    promise: str
    of: int
    broken: tuple[str, ...]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="WHAT",
        help="kinds of body, faults, or both as in process/spin; default: all of them",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--docker", action="store_true", help="only bodies with a sandbox, which is a Docker container")
    parser.add_argument(
        "--url", metavar="URL", help="with --docker: where the daemon listens (default: as the docker CLI finds it)"
    )


def read(found: argparse.Namespace) -> Options:
    """Return the options that were given."""
    return Options(only=tuple(found.only), json=found.json, docker=found.docker, url=found.url)


def run(options: Options) -> int:
    """Have all faults, print what came of them and the promises, and return the exit code."""
    try:
        cases = _cases(options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    machine = read_machine()
    print(introduction(machine), flush=True)
    results = asyncio.run(_in_containers(cases, options.url)) if options.docker else run_cases(cases, _tell)
    print(f"Grants here: {results.enforced}.\n")
    print(table(results.rows))
    judged = verdicts(results)
    print(verdict_lines(judged), end="")
    if options.json is not None:
        options.json.write_text(json.dumps(summary(machine, results, judged), indent=1) + "\n", encoding="utf-8")
    return 1 if any(one.broken for one in judged) else 0


def _cases(options: Options) -> tuple[Case, ...]:
    """Return the cases that were asked for; raises `ValueError` where that makes no sense."""
    if options.url is not None and not options.docker:
        raise ValueError("--url goes with --docker")
    try:
        cases = chosen(options.only)
    except ValueError as error:
        raise ValueError(f"--only: {error}") from None
    if not options.docker:
        return cases
    if not (cases := tuple(case for case in cases if has_sandbox(case))):
        raise ValueError(f"--only: with --docker there are {Kind.COMMAND} and {Kind.TRAJECTORY}")
    return cases


async def _in_containers(cases: Sequence[Case], url: str | None) -> Results:
    """Run the cases in containers whose image has this Python.

    Raises:
        ConfigurationError: no daemon can be reached, or this machine lacks something that the image needs.
    """
    async with image_of_this_machine(IMAGE, (), url=url, tell=lambda _sent, _size: None) as image:
        return await asyncio.to_thread(run_cases, cases, _tell, image=image, url=url)


def _tell(name: str) -> None:
    print(name, file=sys.stderr, flush=True)


def introduction(machine: Machine) -> str:
    """Say what is tried, and how the columns are meant."""
    return (
        f"{machine.python} on {machine.system}, {machine.cores} cores of {machine.processor}\n\n"
        "Each fault in bodies of every kind: an async function on the loop, a function on a thread, one in a worker\n"
        "process, a command in a sandbox, and an async function in a trajectory while a command runs in its sandbox.\n"
        "Faults of one kind are had in one runtime, one after the other; each that ruins its trainer, in a trainer of\n"
        f"its own. Bodies that never end have timeout={TIMEOUT_S:g} and kill_grace_s={KILL_GRACE_S:g}; a deaf "
        f"coroutine ends after {DEAF_S:g} s.\n"
        "mask: it is an InfrastructureError. answer, free: seconds from the call until its caller was answered, and\n"
        "until all units were free. loop: the longest time in seconds for which the event loop did not turn. next:\n"
        "whether the next action was served. left: processes, threads, tasks, descriptors, folders, cgroups, or\n"
        "containers.\n"
    )


def table(rows: Sequence[Row]) -> str:
    """Return a line for each case."""
    cells = [_HEADS, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADS))]
    return "".join("  ".join(map(str.ljust, line, widths)).rstrip() + "\n" for line in cells)


def verdicts(results: Results) -> list[Verdict]:
    """Return the promises and what became of them."""
    living = [row for row in results.rows if not _case(row).is_ruin]
    holding = [row for row in living if _case(row).promise is Promise.HOLDS]
    lingering = [row for row in living if _case(row).promise is Promise.LINGERS]
    named = [row for row in results.rows if _case(row).is_named]
    closing = [one for one in results.endings if _closes(one)]
    killed = [one for one in results.endings if not _closes(one)]
    return [
        _judge(
            "every caller gets what the table says", results.rows, lambda row: _is_expected(row, results.limits_memory)
        ),
        _judge("it gets that in time", living, lambda row: _is_in_time(row, row.answer_s)),
        _judge("all units are free again in time", holding, lambda row: _is_in_time(row, row.capacity_s)),
        _judge("a thread that does not end is shown as lingering", lingering, lambda row: row.lingering),
        _judge("nothing is left but what is said", living, lambda row: row.left == _case(row).leaves),
        _judge("the next action is served", living, lambda row: row.served),
        _judge("a body that blocks the loop is named", named, lambda row: row.note.startswith("named")),
        _judge_endings("a runtime closes, and leaves nothing", closing, lambda one: one.closed and one.behind == 0),
        _judge_endings("a trainer that is killed leaves no process", killed, lambda one: not one.closed),
        Verdict("the next start removes what it left", 1, ("the last start",) if results.unswept else ()),
    ]


def verdict_lines(judged: Sequence[Verdict]) -> str:
    """Return one line for each promise: pass, FAIL with the names, or that it was not tried."""
    lines = ""
    for one in judged:
        verdict = "----" if one.of == 0 else "FAIL" if one.broken else "pass"
        broken = f": not {', '.join(one.broken)}" if one.broken else ""
        lines += f"{verdict}  {one.promise} ({one.of - len(one.broken)} of {one.of}){broken}\n"
    return lines


def summary(machine: Machine, results: Results, judged: Sequence[Verdict]) -> dict[str, object]:
    """Return everything that was measured and decided, for a file."""
    return {
        "machine": asdict(machine),
        "enforced": results.enforced,
        "docker": results.in_containers,
        "rows": [asdict(row) | {"promise": _case(row).promise, "expected": _case(row).outcome} for row in results.rows],
        "trainers": [asdict(ending) for ending in results.endings],
        "unswept": results.unswept,
        "gates": [asdict(one) | {"passed": not one.broken if one.of else None} for one in judged],
    }


def _case(row: Row) -> Case:
    return BY_NAME[row.name]


def _is_expected(row: Row, can_limit: bool) -> bool:
    if row.name == "command/memory" and not can_limit:
        return row.outcome == _NOT_LIMITED
    return (row.outcome, row.infrastructure) == (_case(row).outcome, _case(row).infrastructure)


def _is_in_time(row: Row, taken_s: float | None) -> bool:
    return taken_s is not None and taken_s <= _case(row).answer_s


def _judge(promise: str, rows: Sequence[Row], is_kept: Callable[[Row], bool]) -> Verdict:
    return Verdict(promise, len(rows), tuple(row.name for row in rows if not is_kept(row)))


def _judge_endings(promise: str, endings: Sequence[Ending], is_kept: Callable[[Ending], bool]) -> Verdict:
    """Judge how trainers ended: in time, without a process but those that their cases leave, and as is said."""
    broken = [one for one in endings if one.left != _strays(one) or one.ended_s > ENDED_S or not is_kept(one)]
    return Verdict(promise, len(endings), tuple("+".join(one.names) for one in broken))


def _closes(ending: Ending) -> bool:
    return all(BY_NAME[name].is_closed for name in ending.names)


def _strays(ending: Ending) -> int:
    return sum(BY_NAME[name].strays for name in ending.names)


def _cells(row: Row) -> tuple[str, ...]:
    case = _case(row)
    return (
        case.kind,
        WORDS[case.fault],
        row.outcome,
        "-" if case.is_ruin else "yes" if row.infrastructure else "no",
        _seconds(row.answer_s, "never"),
        _seconds(row.capacity_s, "lingers" if case.promise is Promise.LINGERS else "never"),
        "for ever" if case.promise is Promise.BLOCKS else _seconds(row.held_s, "-"),
        "-" if case.is_ruin else "yes" if row.served else "NO",
        ", ".join(row.left) or "nothing",
        row.note,
    )


def _seconds(value_s: float | None, otherwise: str) -> str:
    return otherwise if value_s is None else f"{value_s:.3f}"
