"""Files of a sandbox, from the trainer's side: paths that cannot leave it, and copying. Everything here blocks."""

from __future__ import annotations

import errno
import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from arl_tangram.errors import SandboxPathError
from arl_tangram.managers.arguments import check_folder, check_host_path, check_max_bytes, check_path
from arl_tangram.managers.host.trees import copy_tree, remove_tree


@dataclass(frozen=True, slots=True)
class Folders:
    """The folder of a sandbox: its working folder, HOME, TMPDIR and spilled output.

    They lie beside each other, so that neither caches nor temporary files turn up in the working folder,
    which is often a source tree under version control.
    """

    base: str

    @property
    def work(self) -> str:
        """The working folder; relative paths start here."""
        return f"{self.base}/work"

    @property
    def home(self) -> str:
        """HOME."""
        return f"{self.base}/home"

    @property
    def tmp(self) -> str:
        """TMPDIR; with bwrap also /tmp."""
        return f"{self.base}/tmp"

    @property
    def spill(self) -> str:
        """Full outputs of commands that asked for it."""
        return f"{self.base}/spill"

    def create(self) -> None:
        """Create the folders."""
        for folder in (self.base, self.work, self.home, self.tmp, self.spill):
            os.mkdir(folder, 0o700)

    def remove(self) -> None:
        """Remove everything, whatever its permissions."""
        remove_tree(self.base)

    def resolve(self, path: str, called: str = "path") -> str:
        """Return the real path, all links followed.

        Args:
            path: relative to the working folder, or absolute.
            called: what it is to the caller.

        Raises:
            SandboxPathError: it is in none of the four folders.
            TypeError: it is no string.
            ValueError: it holds a zero byte.
        """
        check_path(path, called)
        real = os.path.realpath(os.path.join(self.work, path))
        if not any(real == top or real.startswith(top + "/") for top in (self.work, self.home, self.tmp, self.spill)):
            raise SandboxPathError(f"{path!r} leaves the sandbox, whose working folder is {self.work}")
        return real

    def write(self, path: str, data: object) -> None:
        """Write a file, creating its folders."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"write_file takes bytes, not {type(data).__name__}; encode text first: text.encode()")
        real = self.resolve(path)
        os.makedirs(os.path.dirname(real), exist_ok=True)
        # Not blocking: what runs in the sandbox could have put a pipe there, which nobody reads from.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(real, flags, 0o666), "wb") as file:
            _check_regular(file.fileno(), path)
            file.write(cast(bytes, data))

    def read(self, path: str, max_bytes: int) -> bytes:
        """Return the content of a regular file of at most `max_bytes`."""
        check_max_bytes(max_bytes)
        # Not blocking: what runs in the sandbox could have put a pipe there, which nobody writes to.
        with open(
            os.open(self.resolve(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb"
        ) as file:
            _check_regular(file.fileno(), path)
            content = file.read(max_bytes + 1)
            if len(content) > max_bytes:
                raise OSError(errno.EFBIG, f"larger than max_bytes={max_bytes:,}", path)
            return content

    def put(self, source: str | os.PathLike[str], path: str, stop: threading.Event) -> None:
        """Copy a folder in, until `stop` is set; existing files are replaced, links stay links."""
        check_host_path(source, "source")
        check_folder(source, source)
        copy_tree(Path(source), Path(self.resolve(path)), stop)

    def get(self, path: str, target: str | os.PathLike[str], stop: threading.Event) -> None:
        """Copy a folder out, until `stop` is set; links stay links."""
        check_host_path(target, "target")
        real = self.resolve(path)
        check_folder(real, path)
        copy_tree(Path(real), Path(target), stop)


def _check_regular(fd: int, path: str) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(f"{path!r} is not a regular file")
