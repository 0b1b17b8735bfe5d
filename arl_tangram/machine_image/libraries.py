"""The shared libraries that programs and extension modules load, as the dynamic loader of this machine names them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from arl_tangram.errors import ConfigurationError
from arl_tangram.machine_image.entries import Copied, Entry, copied

_AT_ONCE = 64
# `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`, `/lib64/ld-linux-x86-64.so.2 (0x…)`
_LOADED = re.compile(r"^\t(?:\S+ => )?(/.+?) \(0x[0-9a-f]+\)$", re.MULTILINE)
_CACHE = Path("/etc/ld.so.cache")
_ELF = b"\x7fELF"


def libraries_of(entries: Iterable[Entry]) -> list[Entry]:
    """Return what the programs and extension modules among entries load, each at the path that it has here.

    Raises:
        ConfigurationError: there is no `ldd` to ask.
    """
    ldd = shutil.which("ldd")
    if ldd is None:
        raise ConfigurationError("an image of this machine's files needs ldd (of glibc or musl), which is not found")
    files = [entry for entry in entries if isinstance(entry, Copied)]
    there = {os.path.realpath(entry.source) for entry in files}  # a package's own, which it finds beside itself
    loading = [os.fspath(entry.source) for entry in files if _may_load(entry)]
    paths: set[str] = set()
    for start in range(0, len(loading), _AT_ONCE):
        paths.update(_loaded(ldd, loading[start : start + _AT_ONCE]))
    found: list[Entry] = [copied(Path(path)) for path in sorted(paths) if os.path.realpath(path) not in there]
    if _CACHE.is_file():  # where the loader finds those that lie in no standard folder
        found.append(copied(_CACHE))
    return found


def _loaded(ldd: str, files: Sequence[str]) -> list[str]:
    done = subprocess.run(
        [ldd, *files],
        env={**os.environ, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,  # it fails if one of the files is linked statically, and tells the rest
    )
    return [os.path.normpath(path) for path in _LOADED.findall(os.fsdecode(done.stdout))]


def _may_load(entry: Copied) -> bool:
    if entry.mode & 0o111 == 0 and ".so" not in os.path.basename(entry.path):
        return False
    with entry.source.open("rb") as file:
        return file.read(len(_ELF)) == _ELF
