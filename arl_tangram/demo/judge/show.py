"""Turn what `demo --judge` measured into tables and words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from arl_tangram.demo.judge.answers import JudgedRun
from arl_tangram.demo.judge.catalogue import LAYERS, SERVICES, SLOTS, ServiceName, WayName, size_of, slot_mib
from arl_tangram.demo.judge.figures import JudgedFigures

DEFAULT: WayName = "loss"

TERMS = (
    ("ACT", "action completion time, as a trajectory sees it: from the call of a tool or a score to its answer"),
    ("static", f"{SLOTS} slots with services of their own; a slot is reloaded when its service's queue is empty"),
    ("lru", "all services share the memory of the slots; who was used longest ago is evicted"),
    ("loss", "the default: who costs fewest seconds of restoring, by what waits and how often it was used"),
    ("swaps", "how often a service's weights were copied into that memory, and how long it took, in all"),
    ("hit rate", "share of the scores whose service did not have to be restored for them"),
    ("overhead share", "overhead / (execution + overhead), summed; waiting for a restore is overhead"),
)


def _seconds(value: float) -> str:
    return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"


_ROWS: tuple[tuple[str, Callable[[JudgedFigures], str]], ...] = (
    ("step time", lambda f: _seconds(f.step_s)),
    ("ACT, mean", lambda f: _seconds(f.mean_act_s)),
    ("ACT, p99", lambda f: _seconds(f.p99_act_s)),
    ("ACT of scores, mean", lambda f: _seconds(f.mean_score_s)),
    ("ACT of scores, p99", lambda f: _seconds(f.p99_score_s)),
    ("  of it execution, mean", lambda f: _seconds(f.execution_s)),
    ("swaps", lambda f: str(f.swaps)),
    ("seconds of restoring", lambda f: _seconds(f.restore_s)),
    ("hit rate", lambda f: f"{f.hit_share:.1%}"),
    ("overhead share", lambda f: f"{f.overhead_share:.1%}"),
    ("overhead share of scores", lambda f: f"{f.score_overhead_share:.1%}"),
    ("calls; scores among them", lambda f: f"{f.calls}; {f.scores}"),
)
_COMPARED: tuple[tuple[str, Callable[[JudgedFigures], float]], ...] = (
    ("step time", lambda f: f.step_s),
    ("ACT, mean", lambda f: f.mean_act_s),
    ("ACT of scores, mean", lambda f: f.mean_score_s),
    ("ACT of scores, p99", lambda f: f.p99_score_s),
)


def show_services(
    console: Console,
    counts: Mapping[ServiceName, int],
    slots: Sequence[Sequence[ServiceName]],
    forward_s: Mapping[ServiceName, float],
) -> None:
    """Print the services: how large they are, where the static placement has them, how often they will be used."""
    table = Table(title="Services", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("", "layers", "MiB", "static slot", "scores", "forward pass, alone"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name in SERVICES:
        slot = next(number for number, names in enumerate(slots) if name in names)
        took = f"{forward_s[name] * 1000:.0f} ms" if name in forward_s else "-"
        size = f"{size_of(name) / (1 << 20):.0f}"
        table.add_row(name, str(LAYERS[name]), size, str(slot), str(counts[name]), took)
    console.print(table)


def comparison_table(runs: Sequence[JudgedRun], *, trajectories: int) -> Table:
    """Return one table: a column for each way, a row for each figure."""
    table = Table(
        title=f"{trajectories} trajectories, {len(SERVICES)} services, room for {SLOTS} of {slot_mib()} MiB",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("")
    for run in runs:
        table.add_column(run.way, justify="right", no_wrap=True, style="bold" if run.way == DEFAULT else "")
    for name, figure in _ROWS:
        table.add_row(name, *(figure(run.figures) for run in runs))
    return table


def ratio_table(runs: Sequence[JudgedRun]) -> Table:
    """Return how many times lower the figures of the other ways are than those of the first."""
    first, *others = runs
    table = Table(title=f"Times lower than {first.way}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for run in others:
        table.add_column(run.way, justify="right", no_wrap=True, style="bold" if run.way == DEFAULT else "")
    for name, figure in _COMPARED:
        table.add_row(name, *(f"{ratio_of(figure(first.figures), figure(run.figures)):.2f}x" for run in others))
    return table


def ratio_of(first: float, other: float) -> float:
    """Return how many times lower the other is; infinite if it is nothing."""
    return first / other if other else float("inf")
