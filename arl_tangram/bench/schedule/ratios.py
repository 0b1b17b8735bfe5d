"""What `bench schedule` makes of its runs: means over the seeds, their ratios, and the promises about them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from arl_tangram.bench.gates import Gate
from arl_tangram.bench.schedule.grid import (
    DECLARED,
    ELASTIC,
    FIXED,
    INFORMED,
    LEARNED,
    LEARNED_AFTER,
    PAPER,
    WRONG,
    WRONG_BY,
    Outcome,
    Point,
    Table,
)

MOST_OF_BEST = 1.05
MOST_OF_BEST_IN_THE_MEAN = 0.97
MOST_OF_PAPER = 1.02
MOST_OF_INFORMED = 1.05
MOST_OF_INFORMED_AFTER_WRONG = 1.15


@dataclass(frozen=True, slots=True)
class KnownRow:
    """A point with the durations known; means over the seeds.

    Attributes:
        point: where.
        best: the fixed dop that is best in hindsight.
        best_s: its mean action completion time.
        paper_s: that of the published algorithm, with every prefix tried.
        elastic_s: that of the default policy.
    """

    point: Point
    best: str
    best_s: float
    paper_s: float
    elastic_s: float

    @property
    def paper_of_best(self) -> float:
        """The published algorithm against the best fixed dop."""
        return self.paper_s / self.best_s

    @property
    def elastic_of_best(self) -> float:
        """The default policy against the best fixed dop."""
        return self.elastic_s / self.best_s

    @property
    def elastic_of_paper(self) -> float:
        """The default policy against the published algorithm."""
        return self.elastic_s / self.paper_s


@dataclass(frozen=True, slots=True)
class LearnedRow:
    """A point where everything is learned; mean action completion times over the seeds, against the informed run.

    Attributes:
        point: where.
        informed_s: mean action completion time of the informed run, over all calls.
        learned: nothing declared; over all calls.
        learned_later: the same, over the calls before which 200 of their kind were made.
        wrong: priors three times too long or too short; over all calls.
        wrong_later: the same, over those later calls.
        declared_later: the true means and speed-ups of the kinds declared; over those later calls.
    """

    point: Point
    informed_s: float
    learned: float
    learned_later: float
    wrong: float
    wrong_later: float
    declared_later: float


def known_rows(outcomes: Iterable[Outcome]) -> list[KnownRow]:
    """Return a row for each point that was run with the durations known, in the order of their first outcome."""
    rows: list[KnownRow] = []
    for point, group in _by_point(outcomes, Table.KNOWN).items():
        means = {name: fmean(outcome.act_s[name] for outcome in group) for name in group[0].act_s}
        best = min(FIXED, key=means.__getitem__)
        rows.append(KnownRow(point, best, means[best], means[PAPER], means[ELASTIC]))
    return rows


def learned_rows(outcomes: Iterable[Outcome]) -> list[LearnedRow]:
    """Return a row for each point where everything was learned."""
    rows: list[LearnedRow] = []
    for point, group in _by_point(outcomes, Table.LEARNED).items():
        whole = {name: fmean(outcome.act_s[name] for outcome in group) for name in group[0].act_s}
        later = {name: fmean(outcome.later_s[name] for outcome in group) for name in group[0].later_s}
        rows.append(
            LearnedRow(
                point,
                informed_s=whole[INFORMED],
                learned=whole[LEARNED] / whole[INFORMED],
                learned_later=later[LEARNED] / later[INFORMED],
                wrong=whole[WRONG] / whole[INFORMED],
                wrong_later=later[WRONG] / later[INFORMED],
                declared_later=later[DECLARED] / later[INFORMED],
            )
        )
    return rows


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of ratios."""
    return math.exp(fmean(math.log(value) for value in values))


def known_gates(rows: Sequence[KnownRow]) -> list[Gate]:
    """Return the promises about the default policy with the durations known."""
    return [
        Gate(
            f"elastic at most {MOST_OF_BEST:g} times the best fixed dop in hindsight, at every point",
            MOST_OF_BEST,
            *_worst([(row.elastic_of_best, row.point) for row in rows]),
        ),
        Gate(
            f"elastic at most {MOST_OF_BEST_IN_THE_MEAN:g} times the best fixed dop in the geometric mean",
            MOST_OF_BEST_IN_THE_MEAN,
            geometric_mean([row.elastic_of_best for row in rows]),
            f"{len(rows)} points",
        ),
        Gate(
            f"elastic at most {MOST_OF_PAPER:g} times paper(best_prefix=True), at every point",
            MOST_OF_PAPER,
            *_worst([(row.elastic_of_paper, row.point) for row in rows]),
        ),
    ]


def learned_gates(rows: Sequence[LearnedRow]) -> list[Gate]:
    """Return the promises about what is learned."""
    return [
        Gate(
            f"learned at most {MOST_OF_INFORMED:g} times informed, after {LEARNED_AFTER} calls of a kind",
            MOST_OF_INFORMED,
            *_worst([(row.learned_later, row.point) for row in rows]),
        ),
        Gate(
            f"priors wrong by {WRONG_BY:g}x at most {MOST_OF_INFORMED_AFTER_WRONG:g} times informed, over all calls",
            MOST_OF_INFORMED_AFTER_WRONG,
            *_worst([(row.wrong, row.point) for row in rows]),
        ),
    ]


def _by_point(outcomes: Iterable[Outcome], table: Table) -> dict[Point, list[Outcome]]:
    groups: dict[Point, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.task.table is table:
            groups.setdefault(outcome.task.point, []).append(outcome)
    return groups


def _worst(values: Sequence[tuple[float, Point]]) -> tuple[float, str]:
    value, point = max(values, key=lambda pair: pair[0])
    return value, point.name
