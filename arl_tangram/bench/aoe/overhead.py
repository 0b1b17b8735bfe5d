"""The overhead of an action in a container: what the runtime measures, and what the clock beside it says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import arl_tangram as tangram
from arl_tangram.bench.aoe.place import Place, cores_of, runtime
from arl_tangram.bench.aoe.plan import MODES, Cell, Mode
from arl_tangram.bench.aoe.residents import Residents, Timed
from arl_tangram.model.events import ActionEnded
from arl_tangram.model.lifecycle import FinishedAction
from arl_tangram.model.statistics import LatencyStatistics
from arl_tangram.trace.sink import MemorySink

SETTLE_S = 0.5
"""After containers were created: the daemon has work to finish, which is not part of an action."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sample:
    """The actions of one cell in one round; sums are over them, in seconds.

    Attributes:
        cell: which.
        round: number, from 0.
        overheads_s: of each action, as the runtime tells.
        execution_s: sum, as the runtime tells.
        own_s: sum of what the commands took, as their results tell.
        asked_s: sum of how long the commands were asked to sleep.
        wall_s: sum of the time until a caller had its answer, by another clock.
    """

    cell: Cell
    round: int
    overheads_s: tuple[float, ...]
    execution_s: float
    own_s: float
    asked_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class Visit:
    """What one mode came to in one round.

    Attributes:
        mode: which.
        samples: of its cells.
        latency: how long the daemon took, by operation.
    """

    mode: Mode
    samples: tuple[Sample, ...]
    latency: Mapping[str, LatencyStatistics]


def _place(place: str, _seconds: float) -> str:
    return place


@tangram.action(cpu=1, timeout=120, key=_place)
async def sleeping(place: str, seconds: float) -> float:  # noqa: ARG001 - the place is the key of what is measured
    """Run a command that sleeps so long; return how long it took, as its result tells."""
    done = await tangram.current_sandbox().exec(["sleep", f"{seconds:g}"])
    if done.exit_code != 0:
        raise RuntimeError(f"sleep ended with {done.exit_code}: {done.stderr.decode(errors='replace')}")
    return done.duration_s


async def visit(
    place: Place, mode: Mode, round_: int, *, lives: Sequence[int], repeats: Sequence[tuple[float, int]], tell: Tell
) -> Visit:
    """Measure one mode: with ever more live containers, commands of each length, as many at a time as cores."""
    sink, pool = MemorySink(), place.pool(mode)
    timed: dict[Cell, list[Timed]] = {}
    async with runtime(pool, sink) as tg:
        residents = Residents(tg)
        for live in lives:
            tell(f"round {round_ + 1}, {mode.name}: {live} live, creating")
            await residents.become(live)
            await asyncio.sleep(SETTLE_S)
            for command_s, each in repeats:
                tell(f"round {round_ + 1}, {mode.name}: {live} live, commands of {command_s:g} s")
                job = partial(sleeping, f"{live}/{command_s:g}", command_s)
                timed[Cell(mode, live, command_s)] = await residents.work(job, workers=cores_of(tg), each=each)
        tell(f"round {round_ + 1}, {mode.name}: removing")
        await residents.become(0)
    ended = finished(sink)
    return Visit(mode, tuple(_sample(cell, round_, walls, ended) for cell, walls in timed.items()), pool.latency())


def finished(sink: MemorySink) -> list[FinishedAction]:
    """Return the actions that ended, in order."""
    return [event.action for event in sink.events if isinstance(event, ActionEnded)]


def _sample(cell: Cell, round_: int, timed: Sequence[Timed], ended: Iterable[FinishedAction]) -> Sample:
    own = [action for action in ended if action.key == f"{cell.live}/{cell.command_s:g}"]
    if len(own) != len(timed):
        raise RuntimeError(f"{len(timed)} actions were run, and the trace has {len(own)}")
    return Sample(
        cell=cell,
        round=round_,
        overheads_s=tuple(action.overhead_s for action in own),
        execution_s=sum(action.execution_s for action in own),
        own_s=sum(one.own_s for one in timed),
        asked_s=cell.command_s * len(timed),
        wall_s=sum(one.wall_s for one in timed),
    )


@dataclass(frozen=True, slots=True)
class Pooled:
    """All rounds of a cell together.

    Attributes:
        cell: which.
        actions: how many.
        share: overhead / (execution + overhead), a ratio of sums.
        each_ms: overhead of an action, median.
        worst_ms: the largest of all.
        checked_share: the same by another clock: what the callers waited beyond what the commands were asked to take.
    """

    cell: Cell
    actions: int
    share: float
    each_ms: float
    worst_ms: float
    checked_share: float


def pooled(samples: Iterable[Sample]) -> list[Pooled]:
    """Put the rounds of each cell together, by mode, number of containers and length."""
    by_cell: dict[Cell, list[Sample]] = {}
    for sample in samples:
        by_cell.setdefault(sample.cell, []).append(sample)
    return [_pooled(cell, by_cell[cell]) for cell in sorted(by_cell, key=_rank)]


def _rank(cell: Cell) -> tuple[int, int, float]:
    return MODES.index(cell.mode), cell.live, cell.command_s


def _pooled(cell: Cell, samples: Sequence[Sample]) -> Pooled:
    overheads = sorted(s for sample in samples for s in sample.overheads_s)
    overhead_s, execution_s = sum(overheads), sum(sample.execution_s for sample in samples)
    wall_s, asked_s = sum(sample.wall_s for sample in samples), sum(sample.asked_s for sample in samples)
    return Pooled(
        cell=cell,
        actions=len(overheads),
        share=overhead_s / (execution_s + overhead_s),
        each_ms=overheads[len(overheads) // 2] * 1e3,
        worst_ms=overheads[-1] * 1e3,
        checked_share=1 - asked_s / wall_s,
    )
