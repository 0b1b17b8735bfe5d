"""Every fault in a body of every kind, in real trainers: what its caller gets, and what becomes of the runtime.

The table of `bench faults`, each line a test. The trainers run once, before the first of the tests that are selected.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from arl_tangram.bench.faults.cases import CASES, Case
from arl_tangram.bench.faults.command import verdicts
from arl_tangram.bench.faults.runs import Results, run_cases

pytestmark = pytest.mark.timeout(400)  # the first test waits for all trainers: about a minute


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest) -> Results:
    """Try the cases of the tests that are selected."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    names = {case.name for item in items if isinstance(case := item.callspec.params.get("case"), Case)}
    return run_cases([case for case in CASES if case.name in names], lambda name: None)


@pytest.fixture
def result(results: Results, case: Case) -> Results:
    """What came of one case, and how its trainer ended."""
    rows = tuple(row for row in results.rows if row.name == case.name)
    endings = tuple(ending for ending in results.endings if case.name in ending.names)
    assert len(rows) == len(endings) == 1
    return replace(results, rows=rows, endings=endings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault(case: Case, result: Results) -> None:
    assert {one.promise: result for one in verdicts(result) if one.broken} == {}


def test_the_command_tells_what_it_has_found(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    only = ["process/spin", "process/exit", "command/exit"]
    command = [sys.executable, "-m", "arl_tangram", "bench", "faults", "--only", *only, "--json", str(figures)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.split() == only
    record = json.loads(figures.read_text())
    assert [(row["name"], row["outcome"], row["left"]) for row in record["rows"]] == [
        ("process/spin", "RunTimeout", []),
        ("process/exit", "BodyExitedError", []),
        ("command/exit", "exit code 3", []),
    ]
    assert {gate["passed"] for gate in record["gates"]} == {True, None}
    assert "FAIL" not in done.stdout


def test_the_next_start_ends_what_a_worker_of_a_killed_trainer_had_started(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
            import asyncio, subprocess, sys, time
            import arl_tangram as tangram

            @tangram.action(cpu=1, isolate="process")
            def family():
                command = "setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $!"
                orphan = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True, check=True)
                print(orphan.stdout, end="", flush=True)
                time.sleep(600)

            async def main(only_open):
                async with tangram.Tangram(tangram.LocalPool(root=sys.argv[1])):
                    if not only_open:
                        await family()

            if __name__ == "__main__":
                asyncio.run(main(sys.argv[2:] == ["open"]))
        """)
    )
    command = [sys.executable, str(program), str(tmp_path / "sandboxes")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        orphan = os.pidfd_open(int(trainer.stdout.readline()))
        trainer.kill()
    try:
        assert not _has_ended(orphan, 0)
        subprocess.run([*command, "open"], timeout=60, check=True)
        assert _has_ended(orphan, 10)
    finally:
        os.close(orphan)


def _has_ended(process: int, within_s: float) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


@pytest.mark.timeout(200)
def test_with_containers_bodies_that_have_one_keep_the_same_promises(tmp_path: Path, docker_url: str) -> None:
    figures = tmp_path / "figures.json"
    only = ["command/exit", "command/survivor", "command/sleep", "trajectory/exit"]
    command = [sys.executable, "-m", "arl_tangram", "bench", "faults", "--docker", "--url", docker_url]
    done = subprocess.run(
        [*command, "--only", *only, "--json", str(figures)], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(figures.read_text())
    assert record["docker"]
    assert [(row["name"], row["outcome"], row["left"]) for row in record["rows"]] == [
        ("command/sleep", "RunTimeout", []),
        ("command/exit", "exit code 3", []),
        ("command/survivor", "exit code 0", []),
        ("trajectory/exit", "the trainer ended: exit code 3", []),
    ]
    (ending,) = [one for one in record["trainers"] if one["names"] == ["trajectory/exit"]]
    assert (ending["left"], ending["closed"]) == (0, False)  # no process; its container is there until the next start
    assert record["unswept"] == 0
