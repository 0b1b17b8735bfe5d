"""The text of a report, compared with what it should be."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from arl_tangram.model.estimates import Estimate, Learned, SpeedupSource
from arl_tangram.model.events import ActionEnded, Event
from arl_tangram.model.lifecycle import FinishedAction, Outcome
from arl_tangram.model.topology import Topology
from arl_tangram.trace import report
from arl_tangram.trace.report import render
from arl_tangram.trace.summary import Summary

EXPECTED = Path(__file__).with_name("report.txt")


@pytest.fixture
def summary(topology: Topology, events: Sequence[Event]) -> Summary:
    summary = Summary(topology)
    summary.opened(100.0)
    for event in events:
        summary.add(event)
    return summary


def test_the_report_is_as_expected(summary: Summary) -> None:
    assert render(summary, policy="paper", notes=["made by hand"]) == EXPECTED.read_text()


def test_changes_of_cores_are_told_where_there_were_some(topology: Topology, resized_events: Sequence[Event]) -> None:
    summary = Summary(topology)
    summary.add_all(resized_events)
    lines = [line for line in render(summary).splitlines() if line.startswith("resizing")]
    changes = "3 changes of cores in 1 of 1 calls, suspended for 4.00 s in all"
    assert lines == [f"resizing: agent:run_tests: {changes}", f"resizing: all: {changes}, which counts to ACT"]


def test_a_refused_policy_of_shared_cores_is_told(topology: Topology, resized_events: Sequence[Event]) -> None:
    summary = Summary(topology)
    summary.add_all(resized_events)
    assert render(summary).splitlines()[-2:] == [
        "policy of shared cores mine was refused after 8.000 s: ValueError: 9 cores",
        "since then, running actions share cores equally",
    ]


def test_an_empty_run_has_a_report(topology: Topology) -> None:
    text = render(Summary(topology))
    assert text.startswith("0 actions in 0 s\n")
    assert re.search(r"^all +0 +0 +- +-", text, re.MULTILINE)


def test_more_names_than_rows_are_counted(topology: Topology, finished: Callable[..., FinishedAction]) -> None:
    summary = Summary(topology)
    for i in range(30):
        summary.add(ActionEnded(1.0, finished(i, f"m:f{i:02}", execution_s=30.0 - i, outcome=Outcome.ERROR)))
    lines = render(summary, rows=5).splitlines()
    # One line in the table of completion times, one in that of their parts.
    assert [line.split()[0] for line in lines if line.startswith("m:")] == 2 * [f"m:f{i:02}" for i in range(5)]
    assert "(and 25 more names)" in lines
    assert sum(line.startswith("failed: ") for line in lines) == 5


def test_control_characters_of_a_name_are_not_printed(
    topology: Topology, finished: Callable[..., FinishedAction]
) -> None:
    summary = Summary(topology)
    summary.add(ActionEnded(1.0, finished(1, "m:\x1b[31mred\nline")))
    assert "m:?[31mred?line" in render(summary)


def test_what_was_learned_is_a_table_of_its_own(topology: Topology) -> None:
    estimates = (
        Estimate("m:suite", "slow\n", 1200, 12.34, SpeedupSource.LEARNED, 0.834, 1250),
        Estimate("m:suite", "", 3, 0.5, SpeedupSource.ASSUMED, 0.8, 3),
        Estimate("m:build", "", 2, 7.0, SpeedupSource.DECLARED),
        Estimate("m:search", "", 1, 0.25),
    )
    text = render(Summary(topology), learned=Learned(estimates, more=17))
    assert text.split("\n\n")[-1].splitlines() == [
        "learned from runs   runs  at one unit                        speed-up",
        "m:suite [slow?]    1,200       12.3 s  learned n^0.83 from 1,250 runs",
        "m:suite                3       500 ms                  assumed n^0.80",
        "m:build                2       7.00 s                        declared",
        "m:search               1       250 ms                               -",
        "(and 17 more)",
    ]


def test_where_nothing_was_learned_there_is_no_such_table(topology: Topology) -> None:
    assert render(Summary(topology), learned=Learned()) == render(Summary(topology))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"), (0.0, "0 s"), (1e-7, "0.10 us"), (0.0009994, "999 us"), (0.0009996, "1.00 ms"),
        (0.0123, "12.3 ms"), (0.9996, "1.00 s"), (9.996, "10.0 s"), (99.96, "100 s"), (12345.6, "12,346 s"),
    ],
)  # fmt: skip
def test_durations_have_three_digits(seconds: float | None, text: str) -> None:
    assert report._seconds(seconds) == text


def test_a_long_note_is_broken_into_lines(summary: Summary) -> None:
    clauses = [f"operation-{number} 10 × 1.0 ms (99 %: 2.0 ms)" for number in range(6)]
    note = "daemon a: " + "; ".join(clauses)
    lines = render(summary, notes=[note, "word " * 40]).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("note: daemon a"))
    assert max(map(len, lines[start:])) <= 110
    assert " ".join(line.strip() for line in lines[start:-2]) == f"note: {note}"
    assert all(line.endswith(");") for line in lines[start : start + 2]), "not within a clause"
    assert [line.split()[0] for line in lines[-2:]] == ["note:", "word"]
