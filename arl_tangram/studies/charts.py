"""The charts beside the tables of `simulate paper`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from statistics import fmean

from arl_tangram.plots import Bars, Chart, Line
from arl_tangram.studies.ablation import THROUGHOUT
from arl_tangram.studies.coding import CodingSection
from arl_tangram.studies.paper import Sizes
from arl_tangram.studies.rows import Row, Unit
from arl_tangram.studies.tasks import Outcomes
from arl_tangram.studies.where import Place

_SAME = [("as fast", 1.0)]


def of_paper(sizes: Sizes, seeds: tuple[int, ...], rows: Sequence[Row], outcomes: Outcomes) -> list[Chart | Bars]:
    """Return the curve over the batch, the steps of a training, and what is saved."""
    section = CodingSection(sizes.coding, sizes.machines, sizes.batches, sizes.cores, seeds)
    ratios = [section.ratios(outcomes, batch, section.best(outcomes, batch)) for batch in sizes.batches]
    each = [
        Line(
            f"reserved({k})",
            sizes.batches,
            [fmean(section.ratios(outcomes, batch, k)) for batch in sizes.batches],
        )
        for k in sizes.cores
    ]
    steps = [
        _line(
            row.what.partition(",")[0],
            range(1, sizes.steps + 1),
            [row.ours[n :: sizes.steps] for n in range(sizes.steps)],
        )
        for row in rows
        if row.published == THROUGHOUT
    ]
    savings = [row for row in rows if row.unit is Unit.PERCENT and row.published == "71.2 %"]
    return [
        Chart(
            "AI coding: ACT of the baseline, the k that suits it best",
            "batch",
            "times ours",
            [_line("reserved(k)", sizes.batches, ratios)],
            levels=_SAME,
        ),
        Chart("AI coding: ACT of the baseline, each k", "batch", "times ours", each, levels=_SAME, log_y=True),
        Chart("AI coding: ACT with fixed cores", "step of a training", "times ours", steps, levels=_SAME),
        Bars(
            "Saved at the same ACT (no bar: not kept)",
            "percent",
            [row.what.partition(",")[0].removesuffix(" saved") for row in savings],
            [("here", [_mean(row.ours) for row in savings]), ("published", [71.2] * len(savings))],
        ),
    ]


def of_where(places: Sequence[Place]) -> list[Chart | Bars]:
    """Return a chart for each parameter that was varied."""
    charts: list[Chart | Bars] = []
    for axis, group in groupby(places, key=lambda place: place.point.axis):
        there = list(group)
        xs = [place.point.value for place in there]
        charts.append(
            Chart(
                axis,
                axis,
                "times ours",
                [
                    _line("ACT, best reserved(k)", xs, [place.act for place in there]),
                    _line("step, best reserved(k)", xs, [place.step for place in there]),
                ],
                levels=_SAME,
                log_x=axis.startswith(("batch", "durations", "told")),
            )
        )
    return charts


def _line(name: str, xs: Sequence[float], values: Sequence[Sequence[float]]) -> Line:
    return Line(name, xs, [fmean(ones) for ones in values], [(min(ones), max(ones)) for ones in values])


def _mean(values: Sequence[float]) -> float:
    return 0.0 if any(math.isnan(value) for value in values) else fmean(values)
