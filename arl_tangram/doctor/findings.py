"""What the doctor found: values, and the exit code that follows from them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "limited", "absent", "wrong"]
Kind = Literal["container", "cgroup", "process", "folder"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: what.
        state: `ok`: usable; `limited`: usable, but not in full; `absent`: not there; `wrong`: there, and not usable.
        text: what it is, or why it cannot be used.
        advice: what to do about it, if anything.
    """

    subject: str
    state: State
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that a dead owner has left.

    Attributes:
        kind: what it is.
        name: which.
        text: whose it was.
        place: url of the daemon, of containers.
        removed: whether it has been removed.
        error: why it could not be removed.
    """

    kind: Kind
    name: str
    text: str
    place: str = ""
    removed: bool = False
    error: str = ""


def exit_code(findings: Iterable[Finding], leftovers: Iterable[Leftover]) -> int:
    """Return 1 if something is wrong or left, else 0."""
    is_wrong = any(finding.state == "wrong" for finding in findings)
    return 1 if is_wrong or any(not leftover.removed for leftover in leftovers) else 0
