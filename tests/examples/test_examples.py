"""Every script in examples/ runs, and prints what the file beside it says where its output is deterministic.

`examples/name.py` is compared with `examples/name.out`. A script without one must still end well and print something.
"""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path

import pytest

from docker_images import Images
from documents import ROOT

FOLDER = ROOT / "examples"
IN_DOCKER = "docker_sandboxes.py"
SCRIPTS = [path.name for path in sorted(FOLDER.glob("*.py"))]


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name != IN_DOCKER])
def test_an_example_runs_and_prints_what_it_should(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


def test_the_example_in_docker_runs_and_prints_what_it_should(docker_url: str, images: Images, tmp_path: Path) -> None:
    check(IN_DOCKER, tmp_path, "--image", images.busybox, "--url", docker_url)


@pytest.mark.parametrize("arguments", [("--image", "no/such/image:1"), ("--url", "unix:///nowhere/docker.sock")])
def test_the_example_in_docker_says_in_one_line_what_cannot_be_had(arguments: tuple[str, str], docker_url: str) -> None:
    words = [sys.executable, str(FOLDER / IN_DOCKER), "--url", docker_url, *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert arguments[1].removeprefix("unix://") in done.stderr


def check(name: str, folder: Path, *arguments: str) -> None:
    """Run a script, which must end well, and compare what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / name), *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    stored = (FOLDER / name).with_suffix(".out")
    if stored.exists():
        difference = difflib.unified_diff(
            stored.read_text().splitlines(), done.stdout.splitlines(), "stored", "printed"
        )
        assert not list(difference)
    assert done.stdout
    assert not done.stderr


def test_every_stored_output_has_its_script() -> None:
    outputs = {path.with_suffix(".py").name for path in FOLDER.glob("*.out")}
    assert outputs <= set(SCRIPTS)
