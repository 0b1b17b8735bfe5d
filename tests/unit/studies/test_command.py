"""`simulate`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from arl_tangram.__main__ import main
from arl_tangram.studies import show
from arl_tangram.studies.rows import Row, Unit
from arl_tangram.studies.runs import Figures

SMALL = ["--batch", "8", "--workers", "1", "--set", "turns=3"]
NAN = float("nan")


def columns(text: str) -> dict[str, list[str]]:
    """Return the cells of each line of the table; those of a terminal are two blanks apart."""
    table = text.partition("\n\n")[2]
    cells = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]
    return {first: rest for first, *rest in cells}


@pytest.mark.parametrize(
    ("study", "heads"),
    [
        ("coding", ["fixed(4)", "reserved(1)", "reserved(2)", "reserved(4)"]),
        ("deepsearch", ["static(8)", "reserved"]),
    ],
)
def test_a_batch_has_a_column_for_each_contender(
    study: str, heads: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", study, *SMALL]) == 0
    out, err = capsys.readouterr()
    found = columns(out)
    assert found["elastic"] == heads
    assert len(set(found["calls"])) == 1
    assert float(found["mean ACT, s"][0]) == pytest.approx(
        sum(float(found[part][0]) for part in ("queueing", "execution", "overhead")), abs=0.002
    )
    assert "seed 1" in err
    assert "seeds 1." in out


def test_a_batch_of_rewards_alone_has_no_row_for_other_calls(capsys: pytest.CaptureFixture[str]) -> None:
    policies = ["--policy", "static", "--policy", "elastic"]
    assert main(["simulate", "mopd", "--batch", "20", "--workers", "1", *policies]) == 0
    found = columns(capsys.readouterr().out)
    assert found["static"] == ["elastic"]
    assert "of rewards" in found
    assert "of all but rewards" not in found


def test_several_seeds_are_told_with_their_spread(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    asked = ["simulate", "coding", *SMALL, "--policy", "reserved(1)", "--seeds", "1", "2", "--json", str(file)]
    assert main(asked) == 0
    (mean,) = columns(capsys.readouterr().out)["mean ACT, s"]
    runs = json.loads(file.read_text())["runs"]
    acts_s = [run["found"]["act_s"] for run in runs]
    assert [(run["kind"], run["seed"], run["workload"]["turns"]) for run in runs] == [("run", 1, 3), ("run", 2, 3)]
    assert mean == f"{sum(acts_s) / 2:,.3f} ({min(acts_s):,.3f} to {max(acts_s):,.3f})"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["coding", "--batch", "4", "--policy", "static"], "unknown policy 'static'"),
        (["coding", "--set", "colour=1"], "there is no parameter 'colour'; there are rollouts, .*, cores"),
        (["coding", "--set", "turns=many"], "'many' is no value"),
        (["coding", "--set", "tool_share=2"], "tool_share"),
        (["coding", "--set", "turns='x'"], "no value of this parameter"),
        (["coding", "--set", "cores=0"], "Testbed"),
        (["coding", "--batch", "0"], "a whole number from 1"),
        (["coding", "--batch", "4", "--policy", "reserved(300)"], "300"),
        (["deepsearch", "--batch", "4", "--policy", "static(1000)"], "less than one for each of 1000 workers"),
        (["mopd", "--set", "gpu_nodes=1", "--batch", "4", "--policy", "static"], "no room"),
        (["paper", "--quick", "--seeds", "-1"], "seeds"),
        (["paper", "--quick", "--plot", "/nowhere"], "there is no folder /nowhere"),
        (["paper", "--quick", "--json", "/nowhere/all.json"], "there is no folder /nowhere"),
        (["everything"], "invalid choice"),
        ([], "required"),
    ],
)
def test_what_it_refuses(argv: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *argv, *(["--workers", "1"] if argv else [])]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_the_table_beside_what_was_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "all.json"
    options = ["--quick", "--seeds", "1", "--workers", "1", "--json", str(file), "--plot", str(tmp_path)]
    assert main(["simulate", "paper", *options]) == 0
    found = columns(capsys.readouterr().out)
    record = json.loads(file.read_text())
    assert (record["seeds"], record["quick"]) == ([1], True)
    shown = found["mean ACT vs reserved(k), AI coding, batch 16"]
    (ours,) = record["rows"][0]["ours"]
    assert shown[:3] == ["4.3x", f"{ours:.2f}x", f"{ours:.2f}x to {ours:.2f}x"]
    assert {run["kind"] for run in record["runs"]} == {"run", "need", "training"}
    assert "</svg>" in (tmp_path / "paper.svg").read_text()


def test_where_it_holds_as_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--where", "--quick", "--seeds", "1", "--workers", "1", "--markdown", "--plot", str(tmp_path)]
    assert main(["simulate", "paper", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "|  | best k | ACT | step | cores saved | fixed(4) | fixed(16) |"
    assert lines[1] == "| --- | --- | --- | --- | --- | --- | --- |"
    assert sum(line.startswith("| time in commands ") for line in lines) == 1
    assert "</svg>" in (tmp_path / "where.svg").read_text()


def test_a_figure_that_was_not_kept_on_every_seed_has_no_mean() -> None:
    rows = [
        Row("kept", "71.2 %", Unit.PERCENT, (50.0, 70.0), "half", 12.3),
        Row("  once", "", Unit.PERCENT, (50.0, NAN), "", 1.0),
        Row("never", "18.1x", Unit.TIMES, (NAN, NAN), "", 0.0),
        Row("far", "", Unit.TIMES, (9.999, 123.4), "", 0.0),
    ]
    assert show.markdown(rows).splitlines() == [
        "|  | published | here | least to most | CPU | made of |",
        "| --- | --- | --- | --- | --- | --- |",
        "| kept | 71.2 % | 60.0 % | 50.0 % to 70.0 % | 12 s | half |",
        "| once |  | - | 50.0 % to 50.0 % | 1 s |  |",
        "| never | 18.1x | - | - | 0 s |  |",
        "| far |  | 66.7x | 10.00x to 123.4x | 0 s |  |",
    ]
    assert " ".join(show.table(rows).splitlines()[1].split()) == "kept 71.2 % 60.0 % 50.0 % to 70.0 % 12 s half"


def test_figures_of_one_seed_have_no_spread() -> None:
    text = show.contenders({"a": [Figures(1000, 1.5, 0.5, 1.0, 0.0, 12.0, NAN, 2.0, 1234.4)]})
    cells = columns(f"\n\n{text}")
    assert cells["calls"] == ["1,000"]
    assert cells["mean ACT, s"] == ["1.500"]
    assert cells["step, s"] == ["1,234"]
    assert "of all but rewards" not in cells
