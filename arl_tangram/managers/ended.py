"""How a command in a sandbox has ended, or why it could not be started."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from arl_tangram.managers.capture import Capture
from arl_tangram.model.sandbox import ExecResult


class NotStartedError(Exception):
    """A command could not be started: `subject` is `program` or `cwd`."""

    def __init__(self, number: int, subject: str) -> None:
        super().__init__(f"{subject}: {os.strerror(number)}")
        self.errno = number
        self.subject = subject

    def told(self, *, program: str, cwd: str) -> OSError:
        """Return the error for whoever asked, of the kind that belongs to its number.

        Args:
            program: the first word of the command.
            cwd: the working folder, as it was asked for. One of these is the `filename` of the error.
        """
        if self.subject != "cwd":
            return OSError(self.errno, f"{os.strerror(self.errno)} (as seen inside the sandbox)", program)
        if self.errno == errno.ENOENT:
            return OSError(self.errno, f"the working folder {cwd!r} does not exist", cwd)
        return OSError(self.errno, f"the working folder {cwd!r} cannot be used: {os.strerror(self.errno)}", cwd)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Attributes:
        exit_code: as a shell counts.
        start_s, end_s: on the monotonic clock, measured where the command ran.
        cpu_s: what it used.
        timed_out: whether it was killed for its timeout.
        stdout, stderr: what is kept of its output.
        spilled: the files with all of both, if that was asked for.
        stood_s: for how long it was suspended meanwhile.
    """

    exit_code: int
    start_s: float
    end_s: float
    cpu_s: float
    timed_out: bool
    stdout: Capture
    stderr: Capture
    spilled: tuple[str, str] | None
    stood_s: float

    def result(self) -> ExecResult:
        """Return it as `Sandbox.exec` does."""
        stdout_path, stderr_path = self.spilled or (None, None)
        return ExecResult(
            exit_code=self.exit_code,
            stdout=self.stdout.content(),
            stderr=self.stderr.content(),
            truncated=self.stdout.is_truncated or self.stderr.is_truncated,
            timed_out=self.timed_out,
            duration_s=max(0.0, self.end_s - self.start_s - self.stood_s),
            cpu_s=self.cpu_s,
            stdout_path=stdout_path,
            stderr_path=stderr_path,
        )
