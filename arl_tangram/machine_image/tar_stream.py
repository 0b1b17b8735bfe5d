"""Write an image's entries as a tar stream, piece by piece; blocks on files."""

from __future__ import annotations

import os
import py_compile
import tarfile
import tempfile
from collections.abc import Generator, Iterable, Iterator

from arl_tangram.machine_image.entries import Compiled, Copied, Entry, Folder, Link, Written

_PIECE_BYTES = 1 << 20


def pieces(entries: Iterable[Entry]) -> Generator[bytes, None, None]:
    """Yield the stream in pieces of about 1 MiB.

    Raises:
        OSError: a file cannot be read, or has changed its size since it was listed.
    """
    gathered = bytearray()
    for part in _parts(entries):
        gathered += part
        if len(gathered) >= _PIECE_BYTES:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered) + bytes(2 * tarfile.BLOCKSIZE)


def _parts(entries: Iterable[Entry]) -> Iterator[bytes]:
    with tempfile.TemporaryDirectory(prefix="arl_tangram-") as folder:
        scratch = os.path.join(folder, "compiled")
        for entry in entries:
            match entry:
                case Copied():
                    yield _head(entry.path, size=entry.size, mode=entry.mode, modified_s=entry.modified_s)
                    yield from _content(entry)
                case Compiled():
                    data = _compile(entry, scratch)
                    if data is not None:
                        yield _head(entry.path, size=len(data)) + data + _padding(len(data))
                case Written():
                    data = entry.text.encode()
                    yield _head(entry.path, size=len(data)) + data + _padding(len(data))
                case Link():
                    yield _head(entry.path, mode=0o777, type_=tarfile.SYMTYPE, target=entry.target)
                case Folder():
                    yield _head(entry.path, mode=entry.mode, type_=tarfile.DIRTYPE)


def _head(
    path: str,
    *,
    size: int = 0,
    mode: int = 0o644,
    modified_s: int = 0,
    type_: bytes = tarfile.REGTYPE,
    target: str = "",
) -> bytes:
    head = tarfile.TarInfo(path)
    head.size, head.mode, head.mtime, head.type, head.linkname = size, mode, modified_s, type_, target
    return head.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _content(entry: Copied) -> Iterator[bytes]:
    left = entry.size
    with entry.source.open("rb") as file:
        while left and (data := file.read(min(left, _PIECE_BYTES))):
            left -= len(data)
            yield data
    if left:
        raise OSError(f"{entry.source} became shorter while it was copied")
    yield _padding(entry.size)


def _compile(entry: Compiled, scratch: str) -> bytes | None:
    """Return the compiled form; None for text that is no Python of this version, as templates of packages are."""
    try:
        py_compile.compile(os.fspath(entry.of.source), scratch, f"/{entry.of.path}", doraise=True)
    except (py_compile.PyCompileError, SyntaxError, ValueError):
        return None
    with open(scratch, "rb") as file:
        return file.read()


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)
