"""Lay out the figures of a run as aligned plain text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence

from arl_tangram.model.estimates import Estimate, Learned, SpeedupSource
from arl_tangram.model.topology import CPU, MEMORY, is_breaker, resource_of
from arl_tangram.trace.figures import ActionFigures, DimensionFigures, Figures, ServiceFigures, TrajectoryFigures
from arl_tangram.trace.summary import Summary

WIDTH = 110
"""Characters of a line of a note."""

LEGEND = (
    "ACT (action completion time) = queueing + execution + overhead, mean per call; p50, p99: its quantiles (+-1 %);",
    "overhead % = overhead / (execution + overhead); core-s = cores x seconds held, cpu-s = CPU seconds used.",
)


def render(
    summary: Summary,
    *,
    now_s: float | None = None,
    policy: str | None = None,
    notes: Iterable[str] = (),
    rows: int = 20,
    learned: Learned | None = None,
) -> str:
    """Return the report of what a summary has added up so far.

    Args:
        summary: the sums.
        now_s: until when what is held counts; with None, until the last event.
        policy: name of the scheduling policy, for the title.
        notes: lines about the quality of the data, shown last.
        rows: the most action names to list, those with the largest sum of completion times.
        learned: what the scheduler has learned about durations, or None.
    """
    return render_figures(summary.figures(now_s), policy=policy, notes=notes, rows=rows, learned=learned)


def render_figures(
    figures: Figures,
    *,
    policy: str | None = None,
    notes: Iterable[str] = (),
    rows: int = 20,
    learned: Learned | None = None,
) -> str:
    """Return the report of some figures; the arguments are those of `render`."""
    title = f"{figures.total.calls:,} actions in {_seconds(figures.elapsed_s)}"
    blocks = [
        [f"{title}, policy {_printable(policy)}" if policy else title, *LEGEND],
        _actions(figures, rows),
        _parts(figures, rows),
        _failures(figures, rows),
        _retries(figures, rows),
        _resizing(figures, rows),
        _dimensions(figures.dimensions),
        _services(figures.services),
        _trajectories(figures),
        [] if learned is None else _learned(learned),
        [f"still holding units: {figures.holding:,} calls"] if figures.holding else [],
        _pauses(figures),
        _refusal(figures),
        [line for note in notes for line in _note(_printable(note))],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _note(note: str) -> list[str]:
    """Return a note in lines that are not too wide, broken at its semicolons where that is possible."""
    lines: list[str] = []
    line = "note:"
    for clause in note.replace("; ", ";\n").splitlines():
        for part in textwrap.wrap(clause, WIDTH - len("note: ")):
            if len(line) + 1 + len(part) > WIDTH:
                lines.append(line)
                line = "     "
            line += f" {part}"
    return [*lines, line]


def _refusal(figures: Figures) -> list[str]:
    lines: list[str] = []
    if figures.refused is not None:
        lines.append(f"policy {_printable(figures.refused)}")
        lines.append("since then, whoever fits starts in order, with its least units")
    if figures.refused_share is not None:
        lines.append(f"policy of shared cores {_printable(figures.refused_share)}")
        lines.append("since then, running actions share cores equally")
    return lines


def _pauses(figures: Figures) -> list[str]:
    if not figures.pauses:
        return []
    times = "once" if figures.pauses == 1 else f"{figures.pauses:,} times"
    return [f"paused: {times}, {_seconds(figures.paused_s)} in all, which count to the queueing of those that waited"]


def _actions(figures: Figures, rows: int) -> list[str]:
    head = ("action", "calls", "failed", "ACT", "p50", "p99", "queueing", "execution", "overhead", "overhead %",
            "core-s", "cpu-s")  # fmt: skip
    lines = _table([head, *(_action(action) for action in figures.actions[:rows]), _action(figures.total)])
    more = len(figures.actions) - rows
    if more > 0:
        lines.insert(-1, f"(and {more:,} more names)")
    return lines


def _action(action: ActionFigures) -> tuple[str, ...]:
    return (
        _printable(action.name),
        f"{action.calls:,}",
        f"{sum(action.failures.values()):,}",
        _seconds(action.act_mean_s),
        _seconds(action.act_p50_s),
        _seconds(action.act_p99_s),
        _seconds(action.queueing_mean_s),
        _seconds(action.execution_mean_s),
        _seconds(action.overhead_mean_s),
        _share(action.overhead_share),
        f"{action.core_s:,.1f}",
        f"{action.cpu_s:,.1f}",
    )


def _parts(figures: Figures, rows: int) -> list[str]:
    """Return median and 99th percentile of the parts of the completion time."""
    head = ("p50 / p99", "queueing", "execution", "overhead")
    listed = [*figures.actions[:rows], figures.total]
    return _table([head, *(_part(action) for action in listed)]) if figures.total.calls else []


def _part(action: ActionFigures) -> tuple[str, ...]:
    return (
        _printable(action.name),
        f"{_seconds(action.queueing_p50_s)} / {_seconds(action.queueing_p99_s)}",
        f"{_seconds(action.execution_p50_s)} / {_seconds(action.execution_p99_s)}",
        f"{_seconds(action.overhead_p50_s)} / {_seconds(action.overhead_p99_s)}",
    )


def _failures(figures: Figures, rows: int) -> list[str]:
    return [
        f"failed: {_printable(action.name)}: "
        + ", ".join(f"{count:,} {outcome}" for outcome, count in action.failures.items())
        for action in figures.actions[:rows]
        if action.failures
    ]


def _retries(figures: Figures, rows: int) -> list[str]:
    return [
        f"tried again: {_printable(action.name)}: {action.retries:,} of its {action.calls:,} calls are further attempts"
        for action in figures.actions[:rows]
        if action.retries
    ]


def _resizing(figures: Figures, rows: int) -> list[str]:
    """Say how often cores of running calls were changed, if they were."""
    total = figures.total
    if not total.switches:
        return []
    changed = [
        f"resizing: {_printable(action.name)}: {_changes(action)}" for action in figures.actions if action.switches
    ]
    return [*changed[:rows], f"resizing: all: {_changes(total)}, which counts to ACT"]


def _changes(action: ActionFigures) -> str:
    calls = f"{action.switches:,} changes of cores in {action.resized:,} of {action.calls:,} calls"
    return f"{calls}, suspended for {_seconds(action.suspended_s)} in all"


def _dimensions(figures: Sequence[DimensionFigures]) -> list[str]:
    dimensions = [dimension for dimension in figures if not is_breaker(dimension.name)]
    if not dimensions:
        return []
    head = ("pool", "capacity", "held", "used")
    return _table(
        [head, *((_printable(d.name), _capacity(d), _share(d.held_share), _share(d.used_share)) for d in dimensions)]
    )


def _capacity(dimension: DimensionFigures) -> str:
    mean = dimension.mean_capacity
    changed = "" if mean is None or math.isclose(mean, dimension.capacity) else f" (mean {mean:,.1f})"
    resource = resource_of(dimension.name)
    if resource == MEMORY:
        return f"{dimension.capacity:,.1f} GiB{changed}"
    unit = " cores" if resource == CPU else ""
    window = "" if dimension.window_s is None else f" per {dimension.window_s:g} s"
    return f"{dimension.capacity:,.10g}{unit}{window}{changed}"


def _services(figures: Sequence[ServiceFigures]) -> list[str]:
    if not figures:
        return []
    head = ("service", "uses", "there already", "restores", "restoring", "mean", "evictions", "failed", "died")
    return _table([head, *(_service(service) for service in figures)])


def _service(service: ServiceFigures) -> tuple[str, ...]:
    return (
        _printable(service.name),
        f"{service.uses:,}",
        _share(service.hit_share),
        f"{service.restores:,}",
        _seconds(service.restore_s),
        _seconds(service.restore_s / service.restores if service.restores else None),
        f"{service.evictions:,}",
        f"{service.failures:,}",
        f"{service.losses:,}",
    )


def _trajectories(figures: Figures) -> list[str]:
    trajectories: TrajectoryFigures = figures.trajectories
    if not trajectories.opened:
        return []
    admission = f"mean {_seconds(trajectories.waited_mean_s)}, p99 {_seconds(trajectories.waited_p99_s)}"
    act = f"mean {_seconds(figures.admitted_act_mean_s)}, p99 {_seconds(figures.admitted_act_p99_s)}"
    counts = f"{trajectories.opened:,} opened, {trajectories.closed:,} closed"
    return [
        f"trajectories: {counts}; wait for admission: {admission}",
        f"ACT with this wait counted to each trajectory's first action: {act}",
    ]


def _learned(learned: Learned) -> list[str]:
    if not learned.estimates:
        return []
    head = ("learned from runs", "runs", "at one unit", "speed-up")
    lines = _table([head, *(_estimate(estimate) for estimate in learned.estimates)])
    if learned.more:
        lines.append(f"(and {learned.more:,} more)")
    return lines


def _estimate(estimate: Estimate) -> tuple[str, ...]:
    name = f"{estimate.name} [{estimate.key}]" if estimate.key else estimate.name
    return _printable(name), f"{estimate.runs:,}", _seconds(estimate.duration_s), _speedup(estimate)


def _speedup(estimate: Estimate) -> str:
    if estimate.source is SpeedupSource.NONE:
        return "-"
    law = "" if estimate.exponent is None else f" n^{estimate.exponent:.2f}"
    runs = f" from {estimate.speedup_runs:,} runs" if estimate.source is SpeedupSource.LEARNED else ""
    return f"{estimate.source}{law}{runs}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _seconds(seconds: float | None) -> str:
    """Show a duration with three digits in the unit that suits it."""
    if seconds is None:
        return "-"
    for unit, factor in (("us", 1e6), ("ms", 1e3)):
        if seconds * factor < 999.5:
            return f"{_three_digits(seconds * factor)} {unit}" if seconds else "0 s"
    return f"{_three_digits(seconds)} s"


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _printable(text: str) -> str:
    """Replace control characters, which a name from a file could hold."""
    return "".join(character if character.isprintable() else "?" for character in text)
