"""The charts beside the tables: what is drawn is what the rows say."""

from __future__ import annotations

from dataclasses import replace

from arl_tangram.plots import Bars, Chart
from arl_tangram.simulate.workloads import CODING_BATCH
from arl_tangram.studies import charts
from arl_tangram.studies.paper import QUICK, compute, sections
from arl_tangram.studies.rows import Row, Unit
from arl_tangram.studies.where import Place, Point


def test_the_curve_the_steps_and_what_is_saved() -> None:
    seeds = (1, 2)
    rows, outcomes = compute(sections(QUICK, seeds), 1, lambda *_: None)
    best, each, steps, saved = charts.of_paper(QUICK, seeds, rows, outcomes)
    assert isinstance(best, Chart)
    assert isinstance(each, Chart)
    assert isinstance(steps, Chart)
    assert isinstance(saved, Bars)
    by_name = {row.what: row for row in rows}
    (curve,) = best.lines
    ours = [by_name[f"mean ACT vs reserved(k), batch {batch}"].ours for batch in QUICK.batches]
    assert list(curve.ys) == [sum(ratios) / 2 for ratios in ours]
    assert list(curve.spread) == [(min(ratios), max(ratios)) for ratios in ours]
    assert [line.name for line in each.lines] == ["reserved(1)", "reserved(2)", "reserved(4)"]
    for line, dop in zip(steps.lines, QUICK.dops, strict=True):
        row = by_name[f"ACT vs fixed({dop}), each of 2 steps"]
        assert line.spread == [(min(row.ours[0::2]), max(row.ours[0::2])), (min(row.ours[1::2]), max(row.ours[1::2]))]
    assert list(saved.groups) == ["cores", "quotas", "GPUs"]


def test_what_is_not_kept_has_no_bar() -> None:
    rows = [
        Row("cores saved, ACT", "71.2 %", Unit.PERCENT, (40.0, 60.0)),
        Row("GPUs saved, ACT", "71.2 %", Unit.PERCENT, (40.0, float("nan"))),
    ]
    _, outcomes = compute(sections(QUICK, (1,)), 1, lambda *_: None)
    *_, saved = charts.of_paper(QUICK, (1,), rows, outcomes)
    assert isinstance(saved, Bars)
    assert list(saved.heights) == [("here", [50.0, 0.0]), ("published", [71.2, 71.2])]


def test_each_parameter_that_was_varied_has_a_chart() -> None:
    def place(axis: str, value: float, act: float) -> Place:
        return Place(Point(axis, value, replace(CODING_BATCH)), 1, (act, act + 1), (1.0, 1.0), ((1.0,),), (0.0, 0.0))

    first, second = charts.of_where([place("a", 1, 1.0), place("a", 2, 2.0), place("batch", 8, 3.0)])
    assert isinstance(first, Chart)
    assert isinstance(second, Chart)
    assert (first.title, list(first.lines[0].xs), list(first.lines[0].ys)) == ("a", [1, 2], [1.5, 2.5])
    assert (second.title, second.log_x, first.log_x) == ("batch", True, False)
