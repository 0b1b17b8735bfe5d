"""`bench overhead` beside a real Ray; the session that runs this installs the extra `bench`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from arl_tangram.bench.contenders import RAY
from arl_tangram.bench.ray.figures import CONTENDERS


def commands_with(text: str) -> list[str]:
    """Return the command lines of processes that name a text."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text in line:
            found.append(line)
    return found


def test_a_shared_runtime_is_measured_and_leaves_nothing_behind() -> None:
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        figures = Path(folder) / "figures.json"
        done = subprocess.run(
            [sys.executable, "-m", "arl_tangram", "bench", "ray", "--quick", "--json", str(figures)],
            env=os.environ | {"TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        record = json.loads(figures.read_text())
        assert {(row["name"], row["clients"]) for row in record["rows"]} == {
            (name, clients) for name in CONTENDERS for clients in (1, 2)
        }
        assert all(row["p50_ms"] > 0 and row["per_s"] > 0 for row in record["rows"])
        assert [path.name for path in Path(folder).iterdir()] == ["figures.json"]
        assert commands_with(folder) == []


def test_ray_is_measured_and_leaves_nothing_behind() -> None:
    # A short path: Ray puts Unix sockets below it, whose names may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        figures = Path(folder) / "figures.json"
        done = subprocess.run(
            [sys.executable, "-m", "arl_tangram", "bench", "overhead", "--quick", "--json", str(figures)],
            env=os.environ | {"TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        record = json.loads(figures.read_text())
        ray = [one for one in record["series"] if one["name"] == RAY]
        assert [one["in_flight"] for one in ray] == [100]
        assert min(ray[0]["samples_us"]) > 0
        assert "ray" in record["machine"]["packages"]
        assert "Ray: with 100 in flight only" in done.stdout
        assert [path.name for path in Path(folder).iterdir()] == ["figures.json"]
        assert commands_with(folder) == []
