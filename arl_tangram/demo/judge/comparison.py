"""Run the same trajectories with the services placed in one way after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from arl_tangram.demo.comparison import Progress, trace_path
from arl_tangram.demo.judge.actions import SCORING
from arl_tangram.demo.judge.answers import JudgedRun
from arl_tangram.demo.judge.catalogue import ServiceName, WayName
from arl_tangram.demo.judge.figures import figures_of
from arl_tangram.demo.judge.play import Stage, play
from arl_tangram.demo.judge.scripts import JudgedScript
from arl_tangram.demo.judge.ways import Trace, opened
from arl_tangram.demo.playing import at_once
from arl_tangram.demo.search_api import search_api
from arl_tangram.demo.thinking import Thinking
from arl_tangram.trace.reader import read_trace
from arl_tangram.trace.sink import MemorySink


@dataclass(frozen=True, slots=True)
class Bench:
    """What all runs share.

    Attributes:
        folders: what is copied into the sandboxes.
        address: of the search API.
        progress: where to show how it goes on.
        slots: the services of each slot of the static placement.
        trace: where to write the traces, or None.
    """

    folders: tuple[Path, ...]
    address: str
    progress: Progress
    slots: tuple[tuple[ServiceName, ...], ...]
    trace: Path | None = None


async def run_way(bench: Bench, way: WayName, scripts: Sequence[JudgedScript], thinking: Thinking) -> JudgedRun:
    """Run the scripts with the services placed in one way."""
    traces: list[Trace] = []

    def trace_for(runtime: str) -> Trace:
        traces.append(MemorySink() if bench.trace is None else trace_path(bench.trace, runtime))
        return traces[-1]

    with bench.progress.watch(way, len(scripts), sum(script.calls for script in scripts)) as watcher:
        async with search_api(bench.address) as api, opened(way, bench.slots, trace_for) as placement:
            stage = Stage(bench.folders, api, placement, watcher)
            answers, step_s = await at_once(partial(play, stage), scripts, thinking)
    figures = figures_of(
        [trace.events if isinstance(trace, MemorySink) else read_trace(trace).events for trace in traces],
        step_s=step_s,
        tools_s=stage.tools_s,
        scores_s=stage.scores_s,
        scoring=[action.spec.name for action in SCORING.values()],
    )
    return JudgedRun(way, figures, answers)
