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
from arl_tangram.managers.local.channel import interpreter
from arl_tangram.managers.local.files import Folders

PROBE_LIMIT_S = 10.0

# What root keeps inside: enough for package managers and archives, nothing that could mount, trace or load.
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETFCAP", "NET_BIND_SERVICE", "SYS_CHROOT")


@dataclass(frozen=True, slots=True)
class Isolation:
    """Whether sandboxes are wrapped.

    Attributes:
        bwrap: the program, or None for processes that share everything with the trainer.
        reason: why it is not used, for `describe`.
    """

    bwrap: str | None
    reason: str = ""

    def keeper_argv(self, folders: Folders, root: str) -> list[str]:
        """Return the command that starts the keeper of a sandbox below `root`."""
        plain = [interpreter(), "-I", "-S", _keeper_file()]
        if self.bwrap is None:
            return plain
        return [self.bwrap, *_view(folders, root), *_own(), "--", *plain]


def find_isolation() -> Isolation:
    """Look for bubblewrap and run it once, as it will be used; blocks."""
    program = shutil.which("bwrap")
    if program is None:
        return Isolation(None, "bwrap is not installed")
    argv = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *_own(), "--", "/bin/sh", "-c", "test $$ = 1"]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Isolation(None, f"bwrap does not work here: {error}")
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        return Isolation(None, f"bwrap does not work here: {message}")
    return Isolation(program)


def _keeper_file() -> str:
    return str(Path(keeper.__file__).resolve())


def _view(folders: Folders, root: str) -> list[str]:
    """Return the mounts: the host read-only, other sandboxes hidden, own /dev, /proc and /tmp."""
    base = folders.base
    view = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", folders.tmp, "/tmp"]
    for path in _needed_below_tmp():
        view += ["--ro-bind", path, path]
    if not _is_below(root, "/tmp"):
        view += ["--tmpfs", root]
    return [*view, "--bind", base, base, "--chdir", "/"]


def _needed_below_tmp() -> Sequence[str]:
    """Return what the private /tmp must not hide: interpreters and virtual environments."""
    paths = [sys.prefix, sys.base_prefix, os.environ.get("VIRTUAL_ENV", ""), os.path.dirname(_keeper_file())]
    return [path for path in dict.fromkeys(paths) if path and _is_below(path, "/tmp") and os.path.exists(path)]


def _is_below(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(folder + "/")


def _own() -> list[str]:
    options = ["--unshare-pid", "--as-pid-1", "--unshare-ipc", "--die-with-parent"]
    if os.geteuid() == 0:
        options += ["--cap-drop", "ALL"]
        for name in _CAPABILITIES:
            options += ["--cap-add", f"CAP_{name}"]
    return options
