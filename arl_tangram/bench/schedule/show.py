"""The text that `bench schedule` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from arl_tangram.bench.schedule.grid import CORES, KINDS, LEARNED_AFTER, WRONG_BY, Point
from arl_tangram.bench.schedule.ratios import KnownRow, LearnedRow, geometric_mean
from arl_tangram.simulate.workloads import MEAN_WORK_S

PLACE = 38


def place(point: Point) -> str:
    """Return what a row of a table is about."""
    least, most = point.exponents
    return f"{f'elastic {point.elastic:g}, {least:g}-{most:g}, {point.arrivals}':<{PLACE}}"


def introduction(seeds: Sequence[int]) -> str:
    """Say what is compared, and how."""
    shown = ", ".join(map(str, seeds))
    return (
        f"Mean action completion time (ACT) on {CORES} cores in virtual time, through the scheduler that the runtime\n"
        f"drives; means over the seeds {shown}. Calls take log-normal work (mean {MEAN_WORK_S:.1f} s on one core);\n"
        "elastic ones can get 1, 2, 4, 8 or 16 cores and speed up by a power of that, with the exponents given.\n"
    )


def known_table(rows: Sequence[KnownRow]) -> str:
    """Return the table of policies with the durations known."""
    lines = ["durations known: mean ACT relative to the best fixed dop in hindsight"]
    lines.append(f"{'':<{PLACE}}{'best fixed dop':>20}{'paper/best':>12}{'elastic/best':>14}{'elastic/paper':>15}")
    lines += [
        f"{place(row.point)}{f'{row.best} {row.best_s:.2f} s':>20}{row.paper_of_best:>12.3f}"
        f"{row.elastic_of_best:>14.3f}{row.elastic_of_paper:>15.3f}"
        for row in rows
    ]
    values: list[list[float]] = [
        [row.paper_of_best for row in rows],
        [row.elastic_of_best for row in rows],
        [row.elastic_of_paper for row in rows],
    ]
    for name, summarise in SUMMARIES:
        paper, best, of_paper = map(summarise, values)
        lines.append(f"{name:<{PLACE}}{'':>20}{paper:>12.3f}{best:>14.3f}{of_paper:>15.3f}")
    return "\n".join(lines) + "\n"


def learned_table(rows: Sequence[LearnedRow]) -> str:
    """Return the table of what learning costs."""
    lines = [
        "everything learned: mean ACT of elastic relative to the informed run, which knows each call",
        f"({KINDS} actions; later: calls after {LEARNED_AFTER} of the same action; wrong: priors {WRONG_BY:g}x off)",
    ]
    heads = ("informed", "learned", "later", "wrong", "later", "declared, later")
    lines.append(f"{'':<{PLACE}}" + "".join(f"{head:>{_width(head)}}" for head in heads))
    for row in rows:
        cells = [f"{value:.3f}" for value in _ratios(row)]
        shown = zip(heads, [f"{row.informed_s:.2f} s", *cells], strict=True)
        lines.append(place(row.point) + "".join(f"{cell:>{_width(head)}}" for head, cell in shown))
    for name, summarise in SUMMARIES:
        cells = [f"{summarise(column):.3f}" for column in zip(*map(_ratios, rows), strict=True)]
        shown = zip(heads, ["", *cells], strict=True)
        lines.append(f"{name:<{PLACE}}" + "".join(f"{cell:>{_width(head)}}" for head, cell in shown))
    return "\n".join(lines) + "\n"


SUMMARIES: tuple[tuple[str, Callable[[Sequence[float]], float]], ...] = (
    ("geometric mean", geometric_mean),
    ("worst", max),
)


def _ratios(row: LearnedRow) -> Iterable[float]:
    return (row.learned, row.learned_later, row.wrong, row.wrong_later, row.declared_later)


def _width(head: str) -> int:
    return max(11, len(head) + 2)
