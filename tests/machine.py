"""Prepare this machine for the tests: install the programs that real sandboxes need, or say how.

`python tests/machine.py` is run by nox before the tests. Tests ask for a program with `require`. Only the standard
library is used, because nothing is installed yet when this runs.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Program:
    """A program that tests run, and the Debian packages that bring it."""

    name: str
    packages: tuple[str, ...]
    purpose: str


PROGRAMS = (
    Program("bwrap", ("bubblewrap",), "local sandboxes run in it"),
    Program("busybox", ("busybox-static",), "the images of the Docker tests are made of it"),
    Program("dockerd", ("docker.io",), "the tests start Docker Engines of their own"),
    Program("unshare", ("util-linux",), "an engine of the tests gets a network of its own"),
    Program("/usr/bin/python3", ("python3",), "an image of the Docker tests holds it"),
)
# A package must not replace what its machine runs: where docker-ce is installed, nothing of ours is worth its removal.
APT_INSTALL = ("apt-get", "install", "-y", "--no-install-recommends", "--no-remove")
# Asked by Debian's packages before they start a service; 101 forbids it.
POLICY = Path("/usr/sbin/policy-rc.d")


class MissingProgramError(RuntimeError):
    """A test needs a program that this machine lacks."""


def require(name: str) -> str:
    """Return the path of a program of `PROGRAMS`.

    Raises:
        MissingProgramError: it is not installed; the message holds the command that installs it.
    """
    program = next(program for program in PROGRAMS if program.name == name)
    if path := _find(name):
        return path
    raise MissingProgramError(f"{name} is not installed ({program.purpose}); run: {_in_words([program])}")


def missing() -> list[Program]:
    """Return the programs that are not on the PATH."""
    return [program for program in PROGRAMS if _find(program.name) is None]


def install_commands(programs: list[Program]) -> list[list[str]]:
    """Return the commands that install these programs on Debian and Ubuntu."""
    packages = sorted({package for program in programs for package in program.packages})
    return [["apt-get", "update"], [*APT_INSTALL, *packages]]


def prepare() -> None:
    """Install what is missing if we are root on Debian or Ubuntu; else say what to run, in one line."""
    programs = missing()
    if not programs:
        return
    names = ", ".join(program.name for program in programs)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"{names}: not installed, and the tests that need it will fail; run: {_in_words(programs)}", flush=True)
        return
    print(f"{names}: not installed; running: {_in_words(programs)}", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    with no_services():
        for command in install_commands(programs):
            subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def no_services() -> Iterator[None]:
    """Let no package start a service meanwhile: the tests leave nothing running."""
    try:
        POLICY.touch(mode=0o755, exist_ok=False)
    except OSError:  # the machine has a policy of its own, or takes none
        yield
        return
    try:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def _find(name: str) -> str | None:
    """Return the path of a program, also where the PATH of a user lacks the folders of the administrator."""
    return shutil.which(name) or shutil.which(name, path="/usr/local/sbin:/usr/sbin:/sbin")


def _in_words(programs: list[Program]) -> str:
    line = " && ".join(shlex.join(command) for command in install_commands(programs))
    return line if os.geteuid() == 0 else f"sudo sh -c {shlex.quote(line)}"


if __name__ == "__main__":
    try:
        prepare()
    except subprocess.CalledProcessError as error:
        sys.exit(f"{shlex.join(error.cmd)} ended with {error.returncode}")
