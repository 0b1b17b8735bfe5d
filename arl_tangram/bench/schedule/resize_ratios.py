"""What `bench schedule --resize` makes of its runs: means over the seeds, their ratios, and the promises about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from arl_tangram.bench.gates import Gate
from arl_tangram.bench.schedule.grid import ELASTIC, FIXED, Point, Table
from arl_tangram.bench.schedule.ratios import geometric_mean
from arl_tangram.bench.schedule.resize_runs import SIZE_AWARE, Figures, ResizeOutcome

MOST_OF_BEST_IN_THE_MEAN = 0.90
MOST_OF_BEST_WHERE_ALL_IS_ELASTIC = 0.75
MOST_OF_ELASTIC = 1.02


@dataclass(frozen=True, slots=True)
class ResizeRow:
    """A point in one of the tables.

    Attributes:
        table: what the scheduler knows.
        point: where.
        base: the contender that others are compared with: the fixed dop that is best in hindsight, and where
            everything is learned the default policy.
        figures: of each contender, means over the seeds.
    """

    table: Table
    point: Point
    base: str
    figures: Mapping[str, Figures]

    def act_ratio(self, contender: str, base: str) -> float:
        """Return the mean completion time of a contender relative to that of another."""
        return self.figures[contender].act_s / self.figures[base].act_s


def resize_rows(outcomes: Iterable[ResizeOutcome], table: Table) -> list[ResizeRow]:
    """Return a row for each point of a table, in the order of their first outcome."""
    groups: dict[Point, list[ResizeOutcome]] = {}
    for outcome in outcomes:
        if outcome.task.table is table:
            groups.setdefault(outcome.task.point, []).append(outcome)
    return [_row(table, point, group) for point, group in groups.items()]


def resize_gates(known: Sequence[ResizeRow], learned: Sequence[ResizeRow]) -> list[Gate]:
    """Return the promises about size-aware shares; those of a table only if it was run."""
    promised: list[Gate] = []
    if known:
        everywhere = [(row.act_ratio(SIZE_AWARE, row.base), row.point) for row in known]
        elastic = [(ratio, point) for ratio, point in everywhere if point.elastic == 1.0]
        promised.append(_in_the_mean("", MOST_OF_BEST_IN_THE_MEAN, everywhere))
        promised.append(_in_the_mean(" where every call is elastic", MOST_OF_BEST_WHERE_ALL_IS_ELASTIC, elastic))
        promised.append(_everywhere("durations known", known))
    if learned:
        promised.append(_everywhere("everything learned", learned))
    return promised


def _row(table: Table, point: Point, group: Sequence[ResizeOutcome]) -> ResizeRow:
    figures = {
        name: Figures(
            fmean(outcome.figures[name].act_s for outcome in group),
            fmean(outcome.figures[name].act_p99_s for outcome in group),
        )
        for name in group[0].figures
    }
    base = min(FIXED, key=lambda name: figures[name].act_s) if table is Table.KNOWN else ELASTIC
    return ResizeRow(table, point, base, figures)


def _in_the_mean(where: str, limit: float, ratios: Sequence[tuple[float, Point]]) -> Gate:
    worst, point = max(ratios, key=lambda pair: pair[0])
    return Gate(
        f"{SIZE_AWARE} at most {limit:g} times the best fixed dop in the geometric mean{where}",
        limit,
        geometric_mean([ratio for ratio, _ in ratios]),
        f"{len(ratios)} points; the worst, {worst:.3f}, is {point.name}",
    )


def _everywhere(knowledge: str, rows: Sequence[ResizeRow]) -> Gate:
    worst = max(rows, key=lambda row: row.act_ratio(SIZE_AWARE, ELASTIC))
    return Gate(
        f"{SIZE_AWARE} at most {MOST_OF_ELASTIC:g} times {ELASTIC}, at every point, {knowledge}",
        MOST_OF_ELASTIC,
        worst.act_ratio(SIZE_AWARE, ELASTIC),
        worst.point.name,
    )
