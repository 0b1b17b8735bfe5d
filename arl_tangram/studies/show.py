"""The text of `simulate`: tables for a terminal, or for a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from arl_tangram.studies.overheads import COMMAND_S
from arl_tangram.studies.rows import Row, Unit
from arl_tangram.studies.runs import Figures
from arl_tangram.studies.where import Place, ServicesPlace

_HEADS = ("", "published", "here", "least to most", "CPU", "made of")
TIMES = (
    "Times (x) are how many times longer the baseline takes; the cores that it reserves are those that suit it best.\n"
)
_WHERE_HEADS = ("", "best k", "ACT", "step", "cores saved")


def introduction(seeds: Sequence[int], machines: str) -> str:
    """Say what is compared, and how."""
    return (
        f"In virtual time, through the scheduler that the runtime drives, on {machines}; seeds {_listed(seeds)}.\n"
        "Figures are means over the seeds, with the least and the most of them. The scheduler is told no durations.\n"
        f"On cores each of its calls takes {1000 * COMMAND_S:g} ms longer, as measured; not so under reserved(N).\n"
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows for a terminal."""
    return _aligned([_HEADS, *map(_cells, rows)])


def markdown(rows: Sequence[Row]) -> str:
    """Return the rows as a table of a page."""
    return _page([_HEADS, *map(_cells, rows)])


def where_cells(places: Sequence[Place], dops: Sequence[int]) -> list[tuple[str, ...]]:
    """Return the head and the cells of what was varied for AI coding."""
    head = (*_WHERE_HEADS, *[f"fixed({dop})" for dop in dops])
    return [
        head,
        *[
            (
                f"{place.point.axis} {place.point.value:g}",
                str(place.cores),
                _spread(place.act, Unit.TIMES),
                _spread(place.step, Unit.TIMES),
                _spread(place.saved, Unit.PERCENT),
                *[_spread(ratios, Unit.TIMES) for ratios in place.fixed],
            )
            for place in places
        ],
    ]


def services_cells(places: Sequence[ServicesPlace]) -> list[tuple[str, ...]]:
    """Return the head and the cells of what was varied for MOPD."""
    return [
        ("", "static", "loading on demand"),
        *[
            (
                f"batch {place.batch:,}, {place.gpus} GPUs",
                "no room" if place.static is None else _spread(place.static, Unit.TIMES),
                _spread(place.serverless, Unit.TIMES),
            )
            for place in places
        ],
    ]


def cells_shown(cells: Sequence[Sequence[str]], *, as_markdown: bool) -> str:
    """Return cells, the first of them heads, for a page or for a terminal."""
    return _page(cells) if as_markdown else _aligned(cells)


def contenders(found: Mapping[str, Sequence[Figures]]) -> str:
    """Return the figures of each contender: means over the seeds, and the least and the most if there are several."""
    cells = [("", *found)]
    for label, figure, form in _FIGURES:
        values = {name: [figure(one) for one in figures] for name, figures in found.items()}
        if not all(math.isnan(value) for ones in values.values() for value in ones):
            cells.append((label, *[_told(ones, form) for ones in values.values()]))
    return _aligned(cells)


_FIGURES: tuple[tuple[str, Callable[[Figures], float], str], ...] = (
    ("calls", lambda figures: figures.calls, ",.0f"),
    ("mean ACT, s", lambda figures: figures.act_s, ",.3f"),
    ("  queueing", lambda figures: figures.queueing_s, ",.3f"),
    ("  execution", lambda figures: figures.execution_s, ",.3f"),
    ("  overhead", lambda figures: figures.overhead_s, ",.3f"),
    ("  of all but rewards", lambda figures: figures.environment_s, ",.3f"),
    ("  of rewards", lambda figures: figures.reward_s, ",.3f"),
    ("ACT, p99, s", lambda figures: figures.act_p99_s, ",.1f"),
    ("step, s", lambda figures: figures.step_s, ",.0f"),
)


def _cells(row: Row) -> tuple[str, ...]:
    if not row.kept:
        figures = "-", "-"
    elif len(row.kept) < len(row.ours):
        figures = "-", _range(row.kept, row.unit)
    else:
        figures = _figure(row.mean, row.unit), _range(row.kept, row.unit)
    return row.what, row.published, *figures, f"{row.took_s:,.0f} s", row.detail


def _figure(value: float, unit: Unit) -> str:
    if unit is Unit.PERCENT:
        return f"{value:.1f} %"
    return f"{value:.1f}x" if value >= 10 else f"{value:.2f}x"


def _range(values: Sequence[float], unit: Unit) -> str:
    return f"{_figure(min(values), unit)} to {_figure(max(values), unit)}"


def _spread(values: Sequence[float], unit: Unit) -> str:
    if any(math.isnan(value) for value in values):
        return "-"
    return f"{_figure(fmean(values), unit)} ({_range(values, unit)})"


def _told(values: Sequence[float], form: str) -> str:
    mean = format(fmean(values), form)
    return mean if len(values) == 1 else f"{mean} ({format(min(values), form)} to {format(max(values), form)})"


def _aligned(cells: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if place in (0, 5) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _page(cells: Sequence[Sequence[str]]) -> str:
    lines = [" | ".join(cell.strip() for cell in row) for row in cells]
    lines.insert(1, " | ".join("---" for _ in cells[0]))
    return "".join(f"| {line} |\n" for line in lines)


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))
