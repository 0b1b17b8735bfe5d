"""Run programs of `integration/ray_programs.py` and its kin on a cluster, and read what they tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray_cluster import RayCluster

TESTS = Path(__file__).parent
PROGRAMS = "ray_programs.py"


class Program:
    """A program, as it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for told in self.process.stdout:
            if told.startswith("{"):  # what Ray prints about dead actors is not for us
                return json.loads(told)
        raise AssertionError(f"it ended with {self.process.wait(10)}")

    def go_on(self, word: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def ended(self) -> int:
        return self.process.wait(60)


@contextmanager
def program(cluster: RayCluster, *words: str, programs: str = PROGRAMS) -> Iterator[Program]:
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    process = subprocess.Popen(
        [sys.executable, str(TESTS / "integration" / programs), *words],
        env=cluster.environment | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Program(process)
    finally:
        process.kill()
        process.communicate()


def told_by(cluster: RayCluster, *words: str) -> dict[str, Any]:
    with program(cluster, *words) as started:
        found = started.told()
        assert started.ended() == 0
        return found


def peak(spans: Sequence[tuple[float, float]]) -> int:
    """Return how many of some spans were open at once."""
    events = sorted([(begun, 1) for begun, _ in spans] + [(ended, -1) for _, ended in spans])
    now = most = 0
    for _, step in events:
        now += step
        most = max(most, now)
    return most
