"""The `Sandbox` protocol: where the commands of a trajectory run, whatever stands behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a command did.

    Attributes:
        exit_code: 0 to 255; 128 + n for a command that signal n ended, 137 after a timeout.
        stdout: what it wrote to standard output, at most `max_output_bytes`.
        stderr: the same for standard error.
        truncated: whether output was left out: then `stdout` and `stderr` hold its head and tail.
        timed_out: whether it was killed after `timeout` seconds.
        duration_s: seconds that it ran, measured beside it; mostly good to 1 ms, and to 10 ms at worst. Those for which
            it was suspended, in a pool with `share=`, are left out.
        cpu_s: CPU seconds that it and the children it waited for used.
        stdout_path: with `spill=True`, the path in the sandbox of the full standard output.
        stderr_path: the same for standard error.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: bool
    timed_out: bool
    duration_s: float
    cpu_s: float
    stdout_path: str | None = None
    stderr_path: str | None = None


@runtime_checkable
class Sandbox(Protocol):
    """Files and commands of one trajectory. Paths are relative to the sandbox's working folder."""

    @property
    def id(self) -> str:
        """A name that is unique on this machine."""
        ...

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        max_output_bytes: int = 1 << 20,
        spill: bool = False,
    ) -> ExecResult:
        """Run a command to its end on the cores of the running action.

        Cancelling kills the command and everything that it started.

        Args:
            argv: program and arguments; no shell is involved.
            stdin: what it reads from standard input.
            cwd: its working folder.
            env: variables on top of the sandbox's own.
            timeout: seconds until it is killed with everything it started; the result then says
                `timed_out` and holds the output so far.
            max_output_bytes: bytes kept of each stream (head and tail); the rest is read and dropped.
            spill: keep the full output in files in the sandbox, named by the result.

        Raises:
            SandboxLostError: the sandbox died.
            SandboxPathError: `cwd` leaves the sandbox.
            ValueError: an empty `argv`, a zero byte, or a limit that is not positive.
            TypeError: an argument of another type.
            FileNotFoundError: the program or `cwd` does not exist.
            PermissionError: the program cannot be executed.
        """
        ...

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file, creating its folders.

        Raises:
            SandboxPathError: the path leaves the sandbox.
        """
        ...

    async def read_file(self, path: str, *, max_bytes: int = 1 << 28) -> bytes:
        """Return the content of a file of at most `max_bytes`: what runs in the sandbox decides how long it is.

        Raises:
            OSError: it is larger, or not a regular file.
            SandboxPathError: the path leaves the sandbox.
            FileNotFoundError: there is no such file.
        """
        ...

    async def put_dir(self, source: str | PathLike[str], path: str) -> None:
        """Copy a folder of the host into the sandbox; existing files are replaced, links stay links.

        Cancelling stops the copy half done.

        Raises:
            SandboxPathError: the path leaves the sandbox, or the sandbox lies in the source.
            FileNotFoundError: there is no such source.
            NotADirectoryError: the source is not a folder.
        """
        ...

    async def get_dir(self, path: str, target: str | PathLike[str]) -> None:
        """Copy a folder of the sandbox to the host; symbolic links stay links.

        Cancelling stops the copy half done.

        Raises:
            SandboxPathError: the path leaves the sandbox.
            FileNotFoundError: there is nothing of that path.
            NotADirectoryError: it is not a folder.
        """
        ...
