"""The demo as users start it: it ends with the same rewards everywhere, or stops at once, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arl_tangram.demo.pools import IMAGE
from arl_tangram.trace.reader import read_trace
from docker_engine import EngineApi

COMMAND = [sys.executable, "-m", "arl_tangram", "demo", "--quick"]


def environment(folder: Path) -> dict[str, str]:
    (folder / "tmp").mkdir()
    return {**os.environ, "TMPDIR": str(folder / "tmp"), "COLUMNS": "100"}


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of processes that know the folder: by their environment or their arguments."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, variables = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if os.fsencode(folder) in command + variables:
            found.append(command.replace(b"\0", b" ").decode())
    return found


def sandboxes_in(folder: Path) -> list[Path]:
    return list((folder / "tmp").glob("arl_tangram-*/*/*"))


def test_cores_that_change_while_actions_run_change_no_reward(tmp_path: Path) -> None:
    argv = [*COMMAND, "--policies", "scheduler,resize", "--json", str(tmp_path / "figures.json")]
    done = subprocess.run(argv, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (share,) = json.loads((tmp_path / "figures.json").read_text())["shares"]
    scheduled, resized = share["runs"]
    assert resized["answers"] == scheduled["answers"]
    assert scheduled["figures"]["switches"] == 0
    assert resized["switch_s"] > 0
    assert "changes of cores" in done.stdout
    assert sandboxes_in(tmp_path) == []


def test_a_quick_run_ends_with_the_same_rewards_and_claims_no_ratios(tmp_path: Path) -> None:
    argv = [*COMMAND, "--json", str(tmp_path / "figures.json"), "--trace", str(tmp_path / "run.jsonl")]
    done = subprocess.run(argv, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    assert "All trajectories came to the same results and rewards in every run." in words
    assert "no ratios" in words
    assert "better reservation" not in words
    assert done.stderr == ""

    summary = json.loads((tmp_path / "figures.json").read_text())
    (share,) = summary["shares"]
    assert share["ratios"] is None
    assert [run["policy"] for run in share["runs"]] == ["reserved(1)", "reserved(2)", "scheduler"]
    first, *others = [run["answers"] for run in share["runs"]]
    assert len(first) == 4
    assert others == [first, first]
    assert {answer["passed"] for answer in first} == {0.5, 1.0}
    for run in share["runs"]:
        figures = run["figures"]
        trace = read_trace(tmp_path / f"run.{run['policy'].replace('(', '-').rstrip(')')}.jsonl")
        assert trace.ending.complete
        assert figures["calls"] == sum(len(answer["results"]) + 2 for answer in first) + run["refused"]
        assert 0 < figures["used_core_s"] <= 1.1 * figures["held_core_s"]
        assert figures["held_core_s"] <= 2 * figures["step_s"]
        assert figures["mean_act_s"] <= figures["mean_act_admission_s"]
    assert share["runs"][2]["figures"]["mean_admission_s"] < 0.1 < share["runs"][0]["figures"]["mean_admission_s"]
    assert processes_of(tmp_path) == []
    assert sandboxes_in(tmp_path) == []


def images_of_the_demo(url: str) -> list[str]:
    return [tag for image in EngineApi(url).get("/images/json") for tag in image["RepoTags"] or () if IMAGE in tag]


@pytest.mark.timeout(240)
def test_with_containers_it_comes_to_the_same_rewards_and_removes_its_image(tmp_path: Path, docker_url: str) -> None:
    there = images_of_the_demo(docker_url)
    argv = [*COMMAND, "--docker", "--url", docker_url, "--json", str(tmp_path / "figures.json")]
    done = subprocess.run(argv, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    assert "each in a Docker container" in words
    assert "MB sent to the daemon" in words or there
    assert "All trajectories came to the same results and rewards in every run." in words
    assert done.stderr == ""

    summary = json.loads((tmp_path / "figures.json").read_text())
    assert summary["docker"]
    (share,) = summary["shares"]
    first, *others = [run["answers"] for run in share["runs"]]
    assert others == [first, first]
    assert {answer["passed"] for answer in first} == {0.5, 1.0}
    assert all(answer["error"] is None for answer in first)
    for run in share["runs"]:
        assert 0 < run["figures"]["used_core_s"] <= 1.1 * run["figures"]["held_core_s"]
    assert images_of_the_demo(docker_url) == there
    mine = [each for each in EngineApi(docker_url).containers("arl_tangram.owner") if IMAGE in each["Image"]]
    assert mine == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once_and_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        COMMAND, env={**environment(tmp_path), "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        read: list[str] = []
        for line in demo.stdout:
            read.append(line)
            if line.startswith("reserved(1): 1 of"):
                break
        assert processes_of(tmp_path)
        demo.send_signal(number)
        read.append(demo.communicate(timeout=30)[0])
    assert demo.returncode == 130, "".join(read)
    assert "interrupted; everything that ran has been stopped" in read[-1]
    assert processes_of(tmp_path) == []
    assert sandboxes_in(tmp_path) == []


@pytest.mark.timeout(240)
def test_scored_trajectories_get_the_same_scores_wherever_the_services_are(tmp_path: Path) -> None:
    argv = [*COMMAND, "--judge", "--json", str(tmp_path / "figures.json"), "--trace", str(tmp_path / "run.jsonl")]
    done = subprocess.run(argv, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    assert "each score is, bit by bit, what its model gives by itself" in words
    assert "no ratios" in words
    assert done.stderr == ""

    summary = json.loads((tmp_path / "figures.json").read_text())
    assert [run["way"] for run in summary["runs"]] == ["static", "lru", "loss"]
    first, *others = [run["answers"] for run in summary["runs"]]
    assert others == [first, first]
    assert all(answer["error"] is None for answer in first)
    digests = [score["digest"] for answer in first for score in answer["scores"]]
    assert len(set(digests)) == len(digests)  # every text and every model gives something else
    for run in summary["runs"]:
        figures = run["figures"]
        assert figures["scores"] == len(digests)
        assert figures["swaps"] - 2 <= figures["evictions"] <= figures["swaps"]
        assert figures["hit_share"] == pytest.approx(1 - figures["swaps"] / figures["scores"])
        assert 0 < figures["restore_s"] < figures["step_s"] * 2
        names = ["static", "static-slot-0", "static-slot-1"] if run["way"] == "static" else [run["way"]]
        traces = [read_trace(tmp_path / f"run.{name}.jsonl") for name in names]
        assert all(trace.ending.complete for trace in traces)
    assert processes_of(tmp_path) == []
    assert sandboxes_in(tmp_path) == []
