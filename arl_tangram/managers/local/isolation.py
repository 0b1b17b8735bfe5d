"""How a keeper is started: under bubblewrap where it works, else as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arl_tangram.managers.local import keeper
from arl_tangram.managers.local.files import Folders

PROBE_LIMIT_S = 10.0
ATTEMPTS = 3

# What root keeps inside: enough for package managers and archives, nothing that could mount, trace or load.
CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETUID",
    "SYS_CHROOT",
)


@dataclass(frozen=True, slots=True)
class Isolation:
    """How keepers are started; found once, because finding it looks at the disk.

    Attributes:
        keeper: the command of a keeper.
        bwrap: what stands before it; empty without bwrap, when processes share everything with the trainer.
        shown: what the private /tmp of a sandbox must not hide: interpreters and virtual environments.
        reason: why bwrap is not used, for `describe`.
    """

    keeper: tuple[str, ...]
    bwrap: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    reason: str = ""

    def argv(self, folders: Folders) -> tuple[str, ...]:
        """Return the command that starts the keeper of a sandbox."""
        if not self.bwrap:
            return self.keeper
        mounts = ["--bind", folders.tmp, "/tmp"]
        for path in self.shown:
            mounts += ["--ro-bind", path, path]
        mounts += ["--bind", folders.base, folders.base]  # last: it can be below /tmp
        return (*self.bwrap, *mounts, "--chdir", "/", "--", *self.keeper)


def without_bwrap(reason: str) -> Isolation:
    """Return what there always is."""
    return Isolation(_keeper(), reason=reason)


def find_isolation(root: str) -> Isolation:
    """Look for bubblewrap and run it once, as it will be used for sandboxes below `root`; blocks."""
    program = shutil.which("bwrap")
    if program is None:
        return without_bwrap("bwrap is not installed")
    bwrap = (program, *_options(), *_view(root))
    message = ""
    for _ in range(ATTEMPTS):
        message = _complaint((*bwrap, "--", "/bin/sh", "-c", "test $$ = 1"))
        if not message:
            return Isolation(_keeper(), bwrap, _below_tmp())
        if not may_pass(message):
            break
    return without_bwrap(f"bwrap does not work here: {message}")


def may_pass(complaint: str) -> bool:
    """Return whether bwrap may work the next time.

    It takes over all mounts of the machine one by one, and fails if one goes away meanwhile, as those of containers do.
    """
    return complaint.startswith("bwrap: Can't bind mount")


def _complaint(argv: Sequence[str]) -> str:
    """Run a program to its end; return what is wrong with that, or nothing."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"


def _keeper() -> tuple[str, ...]:
    # Not a virtual environment's interpreter, which would only be slower to start.
    interpreter: str = getattr(sys, "_base_executable", "") or sys.executable
    if not interpreter:
        raise FileNotFoundError("this process does not know its Python interpreter: sys.executable is empty")
    return (interpreter, "-I", "-S", _keeper_file())


def _keeper_file() -> str:
    return str(Path(keeper.__file__).resolve())


def _options() -> tuple[str, ...]:
    options = ["--unshare-pid", "--as-pid-1", "--unshare-ipc", "--die-with-parent"]
    if os.geteuid() == 0:
        options += ["--cap-drop", "ALL"]
        for name in CAPABILITIES:
            options += ["--cap-add", f"CAP_{name}"]
    return tuple(options)


def _view(root: str) -> tuple[str, ...]:
    """Return the mounts that all sandboxes have: the host read-only, own /dev and /proc, no other sandboxes."""
    hidden = () if _is_below_tmp(root) else ("--tmpfs", root)
    return ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *hidden)


def _below_tmp() -> tuple[str, ...]:
    paths = (sys.prefix, sys.base_prefix, os.environ.get("VIRTUAL_ENV", ""), os.path.dirname(_keeper_file()))
    return tuple(path for path in dict.fromkeys(paths) if path and os.path.exists(path) and _is_below_tmp(path))


def _is_below_tmp(path: str) -> bool:
    return os.path.realpath(path).startswith("/tmp/")
