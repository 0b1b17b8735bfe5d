"""What an image holds: files of this machine and made ones, links and folders, each with its path."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER_MODE = 0o755


@dataclass(frozen=True, slots=True)
class Copied:
    """A file of this machine.

    Attributes:
        path: where it lies in the image, without the first slash.
        source: where it lies here.
        size: bytes.
        modified_s: when it was last changed; compiled Python files name it.
        mode: who may read and execute it.
    """

    path: str
    source: Path
    size: int
    modified_s: int
    mode: int

    @property
    def fingerprint(self) -> str:
        """Tells it from another file."""
        return f"copied {self.path} {self.size} {self.modified_s} {self.mode:o}"


@dataclass(frozen=True, slots=True)
class Compiled:
    """The compiled form of a Python file, made for the image because this machine has none."""

    path: str
    of: Copied

    @property
    def fingerprint(self) -> str:
        """Tells it from another file."""
        return f"compiled {self.path}"


@dataclass(frozen=True, slots=True)
class Written:
    """A small file that no file of this machine stands for."""

    path: str
    text: str

    @property
    def fingerprint(self) -> str:
        """Tells it from another file."""
        return f"written {self.path} {self.text!r}"


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    path: str
    target: str

    @property
    def fingerprint(self) -> str:
        """Tells it from another link."""
        return f"link {self.path} {self.target}"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is not implied by what lies in it, or not with the usual mode."""

    path: str
    mode: int = FOLDER_MODE

    @property
    def fingerprint(self) -> str:
        """Tells it from another folder."""
        return f"folder {self.path} {self.mode:o}"


Entry = Copied | Compiled | Written | Link | Folder


def copied(source: Path, path: str | os.PathLike[str] | None = None) -> Copied:
    """Return the entry of a file of this machine, by default at the path that it has here.

    Links are followed. Whoever the user in a container is may read it, and execute it if anybody may here.

    Raises:
        OSError: there is no such file.
    """
    found = source.stat()
    mode = 0o755 if stat.S_IMODE(found.st_mode) & 0o111 else 0o644
    return Copied(inside(source if path is None else path), source, found.st_size, int(found.st_mtime), mode)


def inside(path: str | os.PathLike[str]) -> str:
    """Return an absolute path as an image has it: without its first slash."""
    return os.fspath(path).lstrip("/")


def arranged(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries with the folders that they lie in, each path once (the first wins), folders before content."""
    by_path: dict[str, Entry] = {}
    for entry in entries:
        by_path.setdefault(entry.path, entry)
    for path in list(by_path):
        for folder in _folders_of(path):
            by_path.setdefault(folder, Folder(folder))
    return tuple(by_path[path] for path in sorted(by_path))


def fingerprint_of(entries: Iterable[Entry]) -> str:
    """Return 16 hexadecimal digits that tell what is in an image from anything else."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(f"{entry.fingerprint}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]


def _folders_of(path: str) -> Iterator[str]:
    while path := os.path.dirname(path):
        yield path
