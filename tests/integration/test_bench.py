"""Each bench as a user runs it, in small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from arl_tangram.bench.contenders import (
    CORES_LIMITER,
    CPU_ACTION,
    LIMITER,
    QUOTA_ACTION,
    SEMAPHORE,
    TRACED_ACTION,
)


def bench(*argv: str, timeout_s: float = 100) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "arl_tangram", "bench", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def test_a_quick_run_measures_everybody_and_judges_nothing(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = bench("overhead", "--quick", "--without-ray", "--trace", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    record = json.loads(figures.read_text())
    names = {SEMAPHORE, LIMITER, CORES_LIMITER, QUOTA_ACTION, CPU_ACTION, TRACED_ACTION}
    measured = {(one["name"], one["in_flight"]) for one in record["series"]}
    assert measured == {(name, size) for name in names for size in (100, 1_000)}
    assert all(len(one["samples_us"]) == record["rounds"] == 2 for one in record["series"])
    assert all(us > 0 for one in record["series"] for us in one["samples_us"])
    assert record["gates"] == []
    assert all(name in done.stdout for name in names)
    assert "Ray: left out" in done.stdout
    # 4 events for each of 100 and 1,000 actions, in three rounds
    assert "0 of 13,200 events were dropped" in done.stdout


def test_wrong_usage_ends_with_2() -> None:
    done = bench("overhead", "--rounds", "1")
    assert done.returncode == 2
    assert "unrecognized arguments" in done.stderr


def test_a_quick_run_of_the_schedule_takes_two_processes_and_judges_nothing(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = bench("schedule", "--quick", "--seeds", "6", "7", "--workers", "2", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    record = json.loads(figures.read_text())
    assert len(record["runs"]) == 2 * 2 * 2
    assert [run["task"]["seed"] for run in record["runs"]] == [6, 7] * 4  # in the order of the tables
    assert len(record["known"]) == len(record["learned"]) == 2
    assert record["gates"] == []
    assert "durations known" in done.stdout
    assert "everything learned" in done.stdout
    assert "8 of 8 tasks" in done.stderr


def test_a_quick_run_of_the_plan_measures_three_policies(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = bench("plan", "--quick", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    record = json.loads(figures.read_text())
    assert len(record["figures"]) == 3
    assert record["figures"][0]["policy"].startswith("elastic")
    assert record["gates"] == []


def test_a_quick_run_of_scale_has_one_scheduler_and_several(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = bench("scale", "--quick", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    record = json.loads(figures.read_text())
    assert [one["cluster"]["groups"] for one in record["figures"]] == [1, 1, 2, 2]
    assert all(one["decisions"] > one["calls"] > 0 for one in record["figures"])
    assert record["gates"] == []


def test_every_bench_is_named() -> None:
    done = bench("--help")
    assert done.returncode == 0
    names = ("overhead", "schedule", "orders", "plan", "scale", "inflight", "faults", "aoe", "evict", "swap", "gpu")
    assert all(f"    {name} " in done.stdout for name in names)


def test_a_quick_run_with_many_in_flight_judges_nothing(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = bench("inflight", "--quick", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    record = json.loads(figures.read_text())
    assert {one["in_flight"] for one in record["memory"] + record["lag"]} == {1_000}
    assert record["gates"] == []
    assert "no promises" in done.stdout


@pytest.mark.timeout(300)
def test_a_quick_run_in_containers_measures_every_mode_and_judges_nothing(tmp_path: Path, docker_url: str) -> None:
    figures = tmp_path / "figures.json"
    done = bench("aoe", "--quick", "--url", docker_url, "--json", str(figures), timeout_s=280)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(figures.read_text())
    cells = {
        (c["mode"]["grants"], c["mode"]["channel"], c["live"], c["command_s"]): one
        for one in record["overhead"]
        for c in [one["cell"]]
    }
    kinds = ["api"] if "direct" in record["not_measured"] else ["direct", "api"]
    assert set(cells) == {(k, c, n, s) for k in kinds for c in ("session", "exec") for n in (1, 4) for s in (0.1, 1.0)}
    assert all(0 < one["share"] < 1 for one in cells.values())
    # sleep never ends too early, and the clock in a container has ticks of 10 ms
    assert all(one["execution_s"] > one["asked_s"] - 0.01 * len(one["overheads_s"]) for one in record["samples"])
    assert [one["grants"] for one in record["grants"]] == kinds
    assert {one["live"] for one in record["crowd"]} == {2, 6}
    assert record["gates"] == []
    assert all(mode in done.stdout for mode in ("api + session", "api + gated exec"))
    assert "judge" in done.stdout


def test_a_quick_run_of_swaps_finds_the_module_intact_and_judges_nothing(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = bench("swap", "--quick", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    record = json.loads(figures.read_text())
    assert record["gates"] == []
    assert len(record["rounds"]) == 2
    assert all(seconds > 0 for one in record["rounds"] for seconds in one.values())
    assert "restore, warm pages, ms" in done.stdout


def test_a_dry_run_of_the_gpu_does_all_of_it_finds_every_bit_in_its_place_and_judges_nothing(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = bench("gpu", "--dry-run", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    record = json.loads(figures.read_text())
    found = record["found"]
    assert len(found["sized"]) == 3
    assert all(seconds > 0 for one in found["sized"] for each in one["rounds"] for seconds in each.values())
    assert [one["wrong"] for one in found["sized"]] == [0, 0, 0]
    assert found["bits"]["swaps"] == 20
    assert found["bits"]["addresses"] > 10
    assert found["bits"]["wrong_weights"] == found["bits"]["wrong_answers"] == 0
    mixed = found["mixed"]
    assert mixed["actions"] == 40
    assert mixed["wrong"] == 0
    assert 0 < mixed["restores"] < 40
    assert 0 < mixed["overhead_s"] < mixed["execution_s"] + mixed["overhead_s"]
    assert record["gates"] == record["aims"] == []
    assert "host memory, a dry run" in done.stdout
    assert "overhead / (execution + overhead)" in done.stdout


def test_a_quick_run_changes_the_cores_of_programs_and_judges_nothing(tmp_path: Path) -> None:
    check_resize(tmp_path)


def test_a_quick_run_changes_the_cores_of_programs_in_containers(tmp_path: Path, docker_url: str) -> None:
    check_resize(tmp_path, "--docker", "--url", docker_url)


def check_resize(folder: Path, *argv: str) -> None:
    figures = folder / "figures.json"
    done = bench("resize", "--quick", "--resizes", "40", "--json", str(figures), *argv)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(figures.read_text())
    assert record["changed"]["resizes"] == 40
    assert 0 < record["changed"]["suspensions"] < 40
    assert record["changed"]["broken"] == []
    assert all(one["timed_out"] and 0.9 < one["running_s"] < 2 for one in record["timeouts"])
    assert [(one["before"], one["left"]) for one in record["kills"]] == [(4, 0)]
    assert [(one["before"], one["left"], one["behind"]) for one in record["trainers"]] == [(4, 0, 0)]
    assert len(record["switches"]["seconds"]) == 10
    assert record["gates"] == []
    assert "0 went wrong" in done.stdout
