"""Copy and remove folders that somebody else has filled: of any depth, with links, pipes and missing permissions.

Nothing here recurses, and removing never builds a path longer than two names below its top: commands can make
folders deeper than Python's stack and longer than the system's paths.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import threading
from pathlib import Path

from arl_tangram.errors import SandboxPathError


def copy_tree(source: Path, target: Path, stop: threading.Event) -> None:
    """Copy a folder into another, until `stop` is set; special files are left out.

    Links are copied as links. One that is in the way in the target is replaced and never followed: else two copies in a
    row, a link first and a folder of the same name then, would write elsewhere.

    Raises:
        SandboxPathError: the target lies in the source, so that the copy would be copied without end.
    """
    if target.resolve().is_relative_to(source.resolve()):
        raise SandboxPathError(f"{target} lies in {source}: a folder cannot be copied into itself")
    copied: list[tuple[Path, Path]] = []
    left = [(source, target)]
    while left and not stop.is_set():
        folder, copy = left.pop()
        copy.mkdir(parents=True, exist_ok=True)
        copied.append((folder, copy))
        with os.scandir(folder) as entries:
            for entry in entries:
                if stop.is_set():
                    return
                if _copy_entry(entry, copy / entry.name):
                    left.append((Path(entry.path), copy / entry.name))
    for folder, copy in reversed(copied):  # last, as a folder may forbid writing
        shutil.copystat(folder, copy)


def _copy_entry(entry: os.DirEntry[str], copy: Path) -> bool:
    """Copy a file or a link; return whether it is a folder, whose turn comes later."""
    if copy.is_symlink():
        copy.unlink()
    if entry.is_symlink():
        copy.unlink(missing_ok=True)
        copy.symlink_to(os.readlink(entry.path))
    elif entry.is_dir():
        return True
    elif entry.is_file():
        if copy.is_dir():
            raise IsADirectoryError(f"{copy} is a folder, {entry.path} is a file")
        shutil.copy2(entry.path, copy)
    return False


def remove_tree(path: str) -> None:
    """Remove a tree, folders without write permission included; what is gone already is no error.

    A folder below the top gives its own folders to the top before it is removed, so that no path gets long.

    Raises:
        OSError: something cannot be removed.
    """
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)  # a link to elsewhere, that a command has put in its place, is not followed
            return
    except FileNotFoundError:
        return
    names = itertools.count()
    _empty(path, path, names)
    while folders := _folders(path):
        for folder in folders:
            _empty(folder, path, names)
            os.rmdir(folder)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(path)


def _empty(folder: str, top: str, names: itertools.count[int]) -> None:
    """Remove the files of a folder, and move its folders to the top."""
    os.chmod(folder, 0o700)
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if not entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)
            elif folder != top:
                os.chmod(entry.path, 0o700)  # moving a folder changes its `..`
                os.rename(entry.path, _unused(top, names))


def _folders(top: str) -> list[str]:
    with os.scandir(top) as entries:
        return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


def _unused(top: str, names: itertools.count[int]) -> str:
    return next(path for path in (f"{top}/.removing-{number}" for number in names) if not os.path.lexists(path))
