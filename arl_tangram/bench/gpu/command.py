"""The command `bench gpu`: read the options, find the GPU, measure part by part, print, judge."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arl_tangram.bench import show as bench_show
from arl_tangram.bench.gpu import gates, show
from arl_tangram.bench.gpu.figures import Found
from arl_tangram.bench.gpu.plan import DRY, FULL, GIB, MOST_S, Plan, needed_on_device, needed_on_host
from arl_tangram.bench.machine import read_machine
from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.discovery.found import find_gpus
from arl_tangram.managers.gpu.extra import need_torch
from arl_tangram.managers.gpu.host.free_memory import available_bytes

if TYPE_CHECKING:
    from collections.abc import Generator

    from arl_tangram.bench.gates import Gate
    from arl_tangram.bench.gpu.card import Card
    from arl_tangram.bench.machine import Machine

NO_GPU = 2
"""The exit code where there is nothing to measure."""

_MIX_S = 200.0  # what the last part may take at least: larger modules are left out rather than that


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        dry_run: everything in small on a CPU device, which judges nothing.
        json: file for all figures, or None.
    """

    dry_run: bool = False
    json: Path | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--dry-run", action="store_true", help="everything in small on a CPU device, which judges nothing"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def read(found: argparse.Namespace) -> Options:
    """Return the options that were given."""
    return Options(dry_run=found.dry_run, json=found.json)


def run(options: Options) -> int:
    """Measure, print, and return the exit code.

    Returns:
        0 if the promises are kept, 1 if not, 2 if there is no GPU that can be used.

    Raises:
        MissingExtraError: torch or nvidia-ml-py is not installed.
    """
    began_s = time.perf_counter()
    need_torch()
    try:
        with _card(options) as card:
            return asyncio.run(_run(options, card, began_s))
    except ConfigurationError as error:
        print(f"bench gpu: {error}; --dry-run shows on a CPU device what it does", file=sys.stderr)
        return NO_GPU


@contextmanager
def _card(options: Options) -> Generator[Card]:
    """Open the first GPU that this process may use, or what stands for it in a dry run.

    Raises:
        ConfigurationError: there is none, or it does not work.
    """
    from arl_tangram.bench.gpu.cuda_card import CudaCard  # noqa: PLC0415 - with torch, an extra
    from arl_tangram.bench.gpu.dry_card import DryCard  # noqa: PLC0415 - the same
    from arl_tangram.managers.gpu.discovery.nvml import opened  # noqa: PLC0415 - for GPUs only

    if options.dry_run:
        yield DryCard()
        return
    found = find_gpus(os.environ)
    if not found.gpus:
        raise ConfigurationError(f"there is no GPU: {found.reason}")
    with opened() as nvml:
        yield CudaCard(found.gpus[0], nvml)


async def _run(options: Options, card: Card, began_s: float) -> int:
    plan = DRY if options.dry_run else FULL
    machine = await asyncio.to_thread(read_machine, "numpy", "torch", "nvidia-ml-py")
    print(show.introduction(machine, card.name, plan), flush=True)
    record = Record(options.json, card.name, machine, plan)
    found = await _measured(card, plan, began_s, record)
    promises, aims = _judged(plan, found)
    print(bench_show.gate_lines(promises) if promises else "A dry run judges nothing: no promises.\n", end="")
    print(show.aim_lines(aims), end="")
    return 1 if any(gate.passed is False for gate in promises) else 0


def _judged(plan: Plan, found: Found) -> tuple[list[Gate], list[Gate]]:
    return ([], []) if plan.dry else (gates.promises(found), gates.aims(found))


@dataclass(frozen=True, slots=True)
class Record:
    """The file with all figures.

    Attributes:
        path: where it is; None for no file.
        card: the name of the device.
        machine: what it is in.
        plan: what is to be measured.
    """

    path: Path | None
    card: str
    machine: Machine
    plan: Plan

    async def write(self, found: Found) -> None:
        """Write what was found so far; what was not measured is null, or empty."""
        if self.path is None:
            return
        promises, aims = _judged(self.plan, found)
        record = {
            "card": self.card,
            "machine": asdict(self.machine),
            "plan": asdict(self.plan),
            "found": asdict(found),
            "gates": [asdict(gate) | {"passed": gate.passed} for gate in promises],
            "aims": [asdict(aim) | {"met": aim.passed} for aim in aims],
        }
        await asyncio.to_thread(self.path.write_text, json.dumps(record, indent=1) + "\n", encoding="utf-8")


async def _measured(card: Card, plan: Plan, began_s: float, record: Record) -> Found:
    """Measure part by part; print and write each as soon as it is there: whoever ends it early has what was found."""
    from arl_tangram.bench.gpu import memory, mix, overlap, swaps  # noqa: PLC0415 - with torch, an extra

    def left_s() -> float:
        return MOST_S - (time.perf_counter() - began_s)

    found = Found()

    async def add(**part: Any) -> None:
        nonlocal found
        found = replace(found, **part)
        await record.write(found)

    for size in plan.sizes:
        if why := await _why_not(card, size, left_s()):
            print(f"{show.size_of(size)}: left out: {why}", flush=True)
            continue
        _tell(f"a module of {show.size_of(size)}", began_s)
        await add(sized=(*found.sized, await swaps.measure_size(card, plan, size)))
    print(show.sizes(found.sized), flush=True)
    _tell(f"{plan.swaps} swaps, and the lag of the loop", began_s)
    bits, lags = await swaps.measure_usual(card, plan)
    await add(bits=bits, lags=lags)
    print(show.bits(bits))
    print(show.lags(lags), flush=True)
    _tell("restoring beside computing", began_s)
    overlaps = await overlap.measure(card, plan)
    await add(overlaps=overlaps)
    print(show.overlaps(overlaps), flush=True)
    _tell("memory", began_s)
    used = await memory.measure(card, plan)
    await add(memory=used)
    print(show.memory(used, dry=plan.dry), flush=True)
    _tell(f"{len(plan.mix.sizes)} teachers, {plan.mix.actions} rollouts", began_s)
    mixed = await mix.measure(card, plan, left_s())
    print(show.mixed(mixed), flush=True)
    await add(mixed=mixed, took_s=time.perf_counter() - began_s)
    return found


async def _why_not(card: Card, size: int, left_s: float) -> str:
    """Return why a module of this size cannot be measured, if so."""
    for what, needed, has in (
        ("the GPU", needed_on_device(size), await asyncio.to_thread(card.free_bytes)),
        ("the host", needed_on_host(size), await asyncio.to_thread(available_bytes)),
    ):
        if needed > has:
            return f"{what} has {has / GIB:.1f} GiB, and {needed / GIB:.1f} are needed"
    return "" if left_s > _MIX_S else f"{left_s:.0f} s are left for everything"


def _tell(what: str, began_s: float) -> None:
    print(f"{time.perf_counter() - began_s:.0f} s: {what}", file=sys.stderr, flush=True)
