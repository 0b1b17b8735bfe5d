"""The command `bench aoe`: read the options, measure, print the tables and the promises."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from arl_tangram.bench import show as bench_show
from arl_tangram.bench.aoe import show
from arl_tangram.bench.aoe.cores import CorePair, measure_cores
from arl_tangram.bench.aoe.crowd import CrowdCost, measure_crowd
from arl_tangram.bench.aoe.gates import gates
from arl_tangram.bench.aoe.grants import GrantTimes, time_grants
from arl_tangram.bench.aoe.overhead import Pooled, Visit, pooled, visit
from arl_tangram.bench.aoe.place import Place
from arl_tangram.bench.aoe.plan import FULL, MODES, QUICK, GrantKind, Mode, Plan
from arl_tangram.bench.aoe.progress import shown
from arl_tangram.bench.machine import Machine, read_machine
from arl_tangram.machine_image import image_of_this_machine

IMAGE = "arl_tangram-bench"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        quick: few of everything, which judges nothing.
        url: where the daemon listens; None asks the environment.
        live: the larger number of containers whose cost is compared.
        json: file for all figures, or None.
    """

    quick: bool = False
    url: str | None = None
    live: int | None = None
    json: Path | None = None

    @property
    def plan(self) -> Plan:
        """How much of everything."""
        plan = QUICK if self.quick else FULL
        if self.live is None:
            return plan
        return replace(plan, crowd=(min(plan.crowd[0], self.live), self.live))


@dataclass(frozen=True, slots=True)
class Results:
    """All that was measured."""

    visits: tuple[Visit, ...]
    grants: tuple[GrantTimes, ...]
    crowd: tuple[CrowdCost, ...]
    cores: tuple[CorePair, ...]
    why_not: Mapping[GrantKind, str]

    @property
    def cells(self) -> list[Pooled]:
        """The rounds of each cell together."""
        return pooled(sample for one in self.visits for sample in one.samples)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--quick", action="store_true", help="few of everything, which judges nothing (a minute)")
    parser.add_argument("--url", metavar="URL", help="where the daemon listens (default: as the docker CLI finds it)")
    parser.add_argument(
        "--live",
        type=_number,
        metavar="N",
        help="compare the cost of an action beside N live containers (default: 200) with 10",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def read(found: argparse.Namespace) -> Options:
    """Return the options that were given."""
    return Options(quick=found.quick, url=found.url, live=found.live, json=found.json)


def run(options: Options) -> int:
    """Measure, print the tables and the promises, and return the exit code.

    Raises:
        ConfigurationError: no daemon can be reached, or this machine lacks something that the image needs.
    """
    machine, plan = read_machine(), options.plan
    about_s = plan.about_s(machine.cores)
    print(show.introduction(machine, plan, about_s), flush=True)
    with shown(about_s) as tell:
        results = asyncio.run(_measure(options, plan, tell))
    for kind, why in results.why_not.items():
        print(f"{kind} grants are not measured: {why}\n")
    tables = (
        show.overhead_table(results.cells),
        show.grant_table(results.grants),
        show.crowd_table(results.crowd),
        show.cores_table(results.cores),
        show.latency_table(results.visits),
    )
    for table in tables:
        print(table)
    judged = [] if options.quick else gates(results.cells, results.grants)
    print(bench_show.gate_lines(judged) if judged else "A quick run is too short to judge by: no promises.\n", end="")
    if options.json is not None:
        record = _record(options, machine, plan, results) | {
            "gates": [asdict(gate) | {"passed": gate.passed} for gate in judged]
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if any(gate.passed is False for gate in judged) else 0


async def _measure(options: Options, plan: Plan, tell: Tell) -> Results:
    tell("the image")
    async with image_of_this_machine(IMAGE, url=options.url, tell=lambda _sent, _size: None) as image:
        place = Place(image, options.url)
        kinds: tuple[GrantKind, ...] = ("direct", "api")
        why_not: dict[GrantKind, str] = {}
        for kind in kinds:
            if (why := await place.why_not(kind)) is not None:
                why_not[kind] = why
        possible: list[GrantKind] = [kind for kind in kinds if kind not in why_not]
        modes = [mode for mode in MODES if mode.grants in possible]
        return Results(
            visits=tuple(await _visits(place, plan, modes, tell)),
            grants=tuple(await time_grants(place, possible, plan.grants, tell)),
            crowd=tuple(await measure_crowd(place, (modes[0], modes[-1]), plan, tell)),
            cores=tuple(await measure_cores(place, modes[0], plan.pairs, tell)),
            why_not=why_not,
        )


async def _visits(place: Place, plan: Plan, modes: Sequence[Mode], tell: Tell) -> list[Visit]:
    return [
        await visit(place, mode, round_, lives=plan.lives, repeats=plan.repeats_in(round_), tell=tell)
        for round_, order in plan.orders()
        for mode in order
        if mode in modes
    ]


def _record(options: Options, machine: Machine, plan: Plan, results: Results) -> dict[str, object]:
    return {
        "machine": asdict(machine),
        "quick": options.quick,
        "plan": asdict(plan),
        "overhead": [asdict(one) for one in results.cells],
        "samples": [asdict(sample) for one in results.visits for sample in one.samples],
        "latency": [
            {"mode": one.mode.name, "operations": {name: asdict(value) for name, value in one.latency.items()}}
            for one in results.visits
        ],
        "grants": [asdict(one) | {"median_s": one.median_s} for one in results.grants],
        "crowd": [asdict(one) | {"median_ms": one.median_ms} for one in results.crowd],
        "cores": [asdict(one) for one in results.cores],
        "not_measured": dict(results.why_not),
    }


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 2000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of containers from 1 to 2000")
    return int(text)
