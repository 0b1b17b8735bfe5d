"""What `python -m arl_tangram demo --judge` does: score alone, run each way, print what came of it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from arl_tangram.demo.judge import show
from arl_tangram.demo.judge.answers import JudgedRun, faults_in
from arl_tangram.demo.judge.catalogue import CORES, MAX_CONCURRENCY, SERVICES, SLOTS, WAYS
from arl_tangram.demo.judge.scripts import JudgedScript, draw_scripts, split, uses
from arl_tangram.demo.progress import progress_for
from arl_tangram.demo.search_api import CALLS, PERIOD_S, search_server
from arl_tangram.demo.show import show_load, show_terms
from arl_tangram.demo.suite import installed_tree
from arl_tangram.demo.thinking import SIGMA, draw_thinking, scale
from arl_tangram.managers.gpu.extra import need_torch

if TYPE_CHECKING:
    from arl_tangram.demo.judge.alone import Alone

THINKING_S = 1.2
"""What the model thinks before a turn, in the mean over all."""


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """What the user asked for.

    Attributes:
        quick: a few short trajectories, and no ratios.
        seed: of the scripts and the thinking times.
        trace: file for the traces, or None.
        json: file for the figures, or None.
    """

    quick: bool = False
    seed: int = 0
    trace: Path | None = None
    json: Path | None = None


def run_judge(options: JudgeOptions, console: Console) -> int:
    """Run the demo; returns 0 if all trajectories came to the same everywhere, else 1.

    Raises:
        MissingExtraError: torch is not installed.
        ConfigurationError: the machine lacks something else that the demo needs.
    """
    need_torch()
    folders = installed_tree().folders
    scripts = draw_scripts(options.seed, quick=options.quick)
    _introduce(console, scripts)
    alone = _score_alone(scripts)
    runs = _run_all(options, console, scripts, alone, folders)
    _show(options, console, runs)
    if options.json is not None:
        options.json.write_text(json.dumps(_summary(options, runs, alone), indent=1) + "\n", encoding="utf-8")
    return _verdict(console, faults_in(runs, alone.scores))


def _introduce(console: Console, scripts: Sequence[JudgedScript]) -> None:
    console.print(
        f"{len(scripts)} scripted agents think, call a tool (a shell command in a sandbox, or a search API that takes "
        f"{CALLS} calls per {PERIOD_S:g} s), and have what they wrote scored: each turn by the teacher of their "
        f"domain, now and then by a judge, and in the end by judge and reward model. The {len(SERVICES)} models are "
        "transformer encoders with random weights: their scores mean nothing, but each is a real forward pass. A part "
        f"of this machine's memory, which holds {SLOTS} of them, takes the place of GPUs. Sandboxes have {CORES} core; "
        f"a model scores up to {MAX_CONCURRENCY} texts at once, on a thread each. The same work runs under "
        f"{', '.join(WAYS)}, one after another. Only the agents' thinking is simulated, by waiting: {THINKING_S:g} s "
        f"before each turn in the mean, log-normal with sigma {SIGMA}.",
        highlight=False,
    )
    show_terms(console, show.TERMS)
    show_load(console, load=os.getloadavg()[0], cpus=os.cpu_count() or 1)


def _score_alone(scripts: Sequence[JudgedScript]) -> Alone:
    import torch  # noqa: PLC0415 - an extra

    from arl_tangram.demo.judge.alone import score_alone  # noqa: PLC0415 - with torch

    torch.set_num_threads(1)
    return score_alone(scripts)


def _run_all(
    options: JudgeOptions, console: Console, scripts: Sequence[JudgedScript], alone: Alone, folders: tuple[Path, ...]
) -> list[JudgedRun]:
    from arl_tangram.demo.judge.comparison import Bench, run_way  # noqa: PLC0415 - with torch

    counts = uses(scripts)
    slots = split(counts, SLOTS)
    show.show_services(console, counts, slots, alone.forward_s)
    thinking = scale(draw_thinking(options.seed, scripts), THINKING_S * len(scripts[0].turns))

    async def run_all(bench: Bench) -> list[JudgedRun]:
        return [await run_way(bench, way, scripts, thinking) for way in WAYS]

    with search_server(folders[0]) as address:
        return asyncio.run(run_all(Bench(folders, address, progress_for(console), slots, options.trace)))


def _show(options: JudgeOptions, console: Console, runs: Sequence[JudgedRun]) -> None:
    console.print(show.comparison_table(runs, trajectories=len(runs[0].answers)))
    if options.quick:
        console.print("A quick run is too short to compare the ways: no ratios. Leave out --quick for those.")
    else:
        console.print(show.ratio_table(runs))


def _summary(options: JudgeOptions, runs: Sequence[JudgedRun], alone: Alone) -> dict[str, object]:
    return {
        "seed": options.seed,
        "quick": options.quick,
        "slots": SLOTS,
        "forward_s": alone.forward_s,
        "runs": [dataclasses.asdict(run) for run in runs],
    }


def _verdict(console: Console, faults: Sequence[str]) -> int:
    for fault in faults:
        console.print(f"FAILED: {fault}", style="bold red", highlight=False)
    if not faults:
        console.print(
            "All trajectories came to the same results in every run, and each score is, bit by bit, what its model "
            "gives by itself."
        )
    return 1 if faults else 0
