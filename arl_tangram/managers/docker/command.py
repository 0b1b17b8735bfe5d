"""A command for a sandbox: what it is, how it ended, and why it could not be started."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arl_tangram.managers.capture import Capture
from arl_tangram.managers.docker import script


@dataclass(frozen=True, slots=True)
class Command:
    """A command, checked; `env` goes on top of the container's own, and `cwd` is absolute."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    stdin: bytes
    timeout_s: float | None
    max_output_bytes: int
    spill: bool


class NotStartedError(Exception):
    """A command could not be started: `subject` is `program` or `cwd`."""

    def __init__(self, number: int, subject: str) -> None:
        super().__init__(f"{subject}: {os.strerror(number)}")
        self.errno = number
        self.subject = subject


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended; `start_s` and `end_s` are on the monotonic clock, their difference measured beside it."""

    exit_code: int
    start_s: float
    end_s: float
    cpu_s: float
    timed_out: bool
    stdout: Capture
    stderr: Capture
    spilled: tuple[str, str] | None


def check_size(command: Command, env: Mapping[str, str]) -> None:
    """Raise `NotStartedError` if a word of a command, or a variable with its name, is longer than the kernel takes."""
    words = [*command.argv, *(f"{name}={value}" for name, value in env.items())]
    if any(len(word) > script.MAX_WORD_BYTES // 4 and len(os.fsencode(word)) > script.MAX_WORD_BYTES for word in words):
        raise NotStartedError(errno.E2BIG, "program")


def refused(number: int, subject: str, command: Command, env: Mapping[str, str]) -> Exception:
    """Return the error for what a shell reports."""
    if subject == "env":
        odd = [name for name in env if not script.is_plain(name)]
        return ValueError(f"variables named {', '.join(map(repr, odd))} need the program `env`, which there is not")
    if subject == "spill":
        return OSError(number, "no file for the output can be written", command.argv[0])
    size = sum(map(len, command.argv)) + sum(map(len, env.values()))
    return NotStartedError(errno.E2BIG if number == errno.EACCES and size > 1 << 20 else number, subject)
