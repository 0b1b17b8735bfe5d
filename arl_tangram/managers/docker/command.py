"""A command for a container: what it is, and which the kernel would not take."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arl_tangram.managers.docker import script
from arl_tangram.managers.ended import NotStartedError


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
