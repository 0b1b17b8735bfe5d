"""The shell and the programs of this machine that an image gets."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from arl_tangram.errors import ConfigurationError
from arl_tangram.machine_image.entries import Entry, Folder, Link, Written, copied

NEEDED = (
    "sh", "basename", "cat", "diff", "find", "grep", "head", "ls", "mkdir", "nproc", "rm", "sed", "sleep", "sort",
    "tail", "tr", "uniq", "wc", "xargs",
)  # fmt: skip
"""Without these there is no image: the sandboxes and the demo's agents run them."""

USUAL = (
    "chmod", "cp", "cut", "date", "dd", "dirname", "env", "expr", "false", "id", "kill", "ln", "mv", "od", "printf",
    "pwd", "readlink", "realpath", "rmdir", "seq", "setsid", "stat", "stty", "tar", "taskset", "tee", "test", "timeout",
    "touch", "true", "uname", "[",
)  # fmt: skip
"""These come along where this machine has them."""

_ACCOUNTS = (
    Written("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    Written("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    Written("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    Folder("dev"),
    Folder("proc"),
    Folder("root", 0o700),
    Folder("sys"),
    Folder("tmp", 0o1777),
)


def base_entries() -> list[Entry]:
    """Return the programs, and what any container needs: accounts, and folders for what is mounted and for temp files.

    Raises:
        ConfigurationError: a program that is needed is not on the PATH.
    """
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        raise ConfigurationError(f"an image of this machine's files needs {', '.join(missing)}, not found on the PATH")
    return [*_ACCOUNTS, *_programs(name for name in (*NEEDED, *USUAL) if shutil.which(name) is not None)]


def _programs(names: Iterable[str]) -> list[Entry]:
    """Return programs in `/bin`, and links for names under which one of them is called."""
    found: list[Entry] = []
    for name in names:
        own = Path(os.path.realpath(shutil.which(name) or name))
        found.append(copied(own, f"/bin/{own.name}"))
        if own.name != name:
            found.append(Link(f"bin/{name}", own.name))
    return found
