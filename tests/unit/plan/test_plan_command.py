"""`plan`: what it prints of a trace and of another program's recording, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arl_tangram.__main__ import main
from unit.replay.traces import Trace

CALLS = "traj,start_s,dur_s,tool\n" + "".join(f"{name},1,1,bash\n" for name in "abcd")


def recorded(folder: Path) -> str:
    """Four trajectories of 1 GiB each think for 2 s and call for 2 s, on a core each, of four, with a search quota."""
    search = {"name": "quota:search/concurrency", "capacity": 9000, "scale": 1000, "window_s": None}
    trace = Trace(dimensions=(search,))
    for id_ in range(1, 5):
        trace.opened(id_, 0.0, memory=1 << 30)
    for id_ in range(1, 5):
        trace.submitted(id_, 2.0, id_, fixed={"quota:search/concurrency": 1000})
        trace.started(id_, 2.0)
    for id_ in range(1, 5):
        trace.ended(id_, 4.0, 2.0, trajectory=id_)
        trace.closed(id_, 4.0)
    return str(trace.write(folder))


def test_what_is_needed_and_what_it_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For 1.5 times the ACT two cores, two searches or 3 GiB are enough; the last is too little beside the others.

    The fourth trajectory then waits for 4 s; so it does where three cores are reserved, for which 3 GiB are enough.
    """
    assert main(["plan", recorded(tmp_path), "--keep-act", "1.5"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].startswith("4 trajectories and 4 calls, in virtual time")
    assert "mean ACT with admission within 3.000 s, 1.5 times the recorded." in lines[1]
    rows = {line[:28].strip(): line[28:].replace(" s", "").split() for line in lines[3:12] if line}
    assert rows[""] == ["recorded", "each", "alone", "elastic", "reserved(1)", "fixed(1)"]
    assert rows["cores"] == ["4", "2", "2", "3", "2"]
    assert rows["memory, GiB"] == ["8", "3", "4", "3", "4"]
    assert rows["search: concurrency"] == ["9", "2", "2", "3", "2"]
    assert rows["ACT with admission, mean"] == ["2.000", "3.000", "3.000", "3.000"]
    assert rows["step"] == ["4.000", "6.000", "8.000", "6.000"]
    saved = [line.split()[3:] for line in lines if line.startswith("  saved against it")]
    assert saved == [["50%", "33%", "0%"], ["50%", "-33%", "0%"], ["78%", "33%", "0%"]]
    assert "is not enough for all of them together: they are enlarged as far as needed.\n" in printed.out
    assert "  LocalPool(cores=2, memory_gib=4)  # or DockerPool\n" in printed.out
    assert '  Quota("search", concurrency=2)\n' in printed.out
    assert printed.err.startswith("1 of 13, after 0 s: elastic: cores\n")
    assert printed.err.splitlines()[-1].startswith("13 of 13")


def test_all_figures_for_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", recorded(tmp_path), "--keep-step", "1.5", "--share", "resize", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    record = json.loads(printed.out)
    assert record["goal"] == {"act_s": None, "step_s": 6.0}
    assert record["recorded"]["resources"] == {"cores": 4, "memory, GiB": 8, "search: concurrency": 9}
    assert record["plan"]["variant"] == "elastic, resize"
    assert record["plan"]["saved"]["cores"] == 0.5
    assert record["plan"]["step_s"] <= 6.0
    cores = record["plan"]["alone"][0]
    assert cores["tried"][0]["amount"] < cores["amount"] == 2
    assert [baseline["name"] for baseline in record["baselines"]] == ["reserved", "fixed"]
    assert record["settings"][0].startswith("LocalPool(cores=2, ")
    assert record["in_flight"]["calls_of_rollout"] == 1


def test_the_recording_of_another_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "calls.csv"
    file.write_text(CALLS)
    assert main(["plan", str(file), "--cores", "16", "--keep-act", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["resources"] == {"cores": 4}
    assert main(["plan", str(file)]) == 2
    assert "does not say how many cores there were: give --cores" in capsys.readouterr().err


def test_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.svg"
    for keep in ("--keep-act", "--keep-step"):
        assert main(["plan", recorded(tmp_path), keep, "1.5", "--plot", str(file)]) == 0
        text = file.read_text()
        words = "mean ACT with admission, s" if keep == "--keep-act" else "step, s"
        for said in ("cores, the others as recorded", "reserved(1)", "Needed together", "Rollouts at once", words):
            assert f"<!-- {said}" in text
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--keep-act", "0.9"], "takes a factor from 1, not '0.9'"),
        (["--keep-step", "nan"], "takes a factor from 1, not 'nan'"),
        (["--cores", "0"], "takes a whole number from 1, not '0'"),
        (["--policy", "best"], "unknown policy 'best'"),
        (["--plot", "plan.txt"], "plots are written as .png, .svg, .pdf"),
        (["--cores", "4", "--policy", "reserved(8)"], None),
    ],
)
def test_wrong_arguments(
    arguments: list[str], said: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More cores than there were are no mistake: the plan says how many it takes."""
    code = main(["plan", recorded(tmp_path), *arguments])
    printed = capsys.readouterr()
    if said is None:
        assert code == 0
        assert "reserved(8)" in printed.out
    else:
        assert (code, printed.out) == (2, "")
        assert said in printed.err


def test_what_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text('{"traj": "a", "start_s": 0, "dur_s": -1}\n')
    assert main(["plan", str(file), "--cores", "1"]) == 2
    assert f"{file}" in capsys.readouterr().err


def test_ctrl_c_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("arl_tangram.plan.command.capacity_plan", interrupted)
    assert main(["plan", recorded(tmp_path)]) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")
