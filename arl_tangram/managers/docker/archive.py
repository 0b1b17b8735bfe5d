"""Folders as tar streams: packed in pieces, unpacked as they arrive. Blocking, in bounded memory, on a host's files.

What is unpacked was made by commands of a sandbox, so nothing in it is believed: every name is walked down from the
target, one folder after the other, through descriptors that follow no link. Then neither a link in the stream, nor one
that an earlier copy has left, nor one that another copy puts there meanwhile leads out of the target.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Protocol, Self, cast

PIECE_BYTES = 1 << 18

_ENCODING, _ERRORS = "utf-8", "surrogateescape"  # names are bytes, whatever they mean
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_UP = 1000  # `..` in one path, of which the system takes 4,096 bytes
_END = bytes(2 * tarfile.BLOCKSIZE)


class Readable(Protocol):
    """What a stream is read from."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end."""
        ...


@dataclass(frozen=True, slots=True)
class FileOwner:
    """Numbers of the user and the group that files belong to."""

    uid: int
    gid: int


def pack(source: str, owner: FileOwner, stop: threading.Event, *, whole: bool = False) -> Iterator[bytes]:
    """Yield what is in a folder as a tar stream in pieces; links stay links, special files are left out.

    So are links that lead out by a relative path, unless `whole`: daemons refuse the whole stream for one. `scan` finds
    those. With `whole`, the permissions and the time of the folder itself are in it, too.

    When `stop` is set the stream ends.

    Raises:
        OSError: a file cannot be read, or became shorter meanwhile.
    """
    pending = bytearray()
    for block in _blocks(source, owner, stop, whole):
        pending += block
        if len(pending) >= PIECE_BYTES:
            yield bytes(pending)
            pending.clear()
    yield bytes(pending + _END)


@dataclass(frozen=True, slots=True)
class Scan:
    """What of a folder does not go into a container with the stream alone; names are relative to it.

    Attributes:
        folders: all folders in it.
        links: the links that the stream leaves out, with where they lead.
    """

    folders: list[str]
    links: list[tuple[str, str]]


def scan(source: str, stop: threading.Event) -> Scan:
    """Look through a folder, following no links; when `stop` is set this ends half done."""
    found = Scan([], [])
    left = [""]
    while left and not stop.is_set():
        folder = left.pop()
        with os.scandir(os.path.join(source, folder)) as entries:
            for entry in entries:
                name = os.path.join(folder, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    found.folders.append(name)
                    left.append(name)
                elif entry.is_symlink() and _leads_out(name, to := os.readlink(entry)):
                    found.links.append((name, to))
    return found


def unpack(stream: Readable, target: str, stop: threading.Event) -> None:
    """Write what a tar stream holds into a folder, which is created; special files are left out.

    Files in the way are replaced, links in the way too. Hard links become files of their own. When `stop` is set this
    ends half done.

    Raises:
        OSError: the stream is broken, a name in it leads out, or something in the target cannot be written.
    """
    os.makedirs(target, exist_ok=True)
    whole = _Whole(stream)
    with _Target(target) as into:
        try:
            with tarfile.open(
                fileobj=cast(IO[bytes], whole), mode="r|", bufsize=PIECE_BYTES, encoding=_ENCODING, errors=_ERRORS
            ) as archive:
                while not stop.is_set() and (entry := archive.next()) is not None:
                    cast(Any, archive).members.clear()  # else every name is kept until the end
                    _unpack_entry(archive, entry, into, stop)
            whole.check(stop)
        except (tarfile.TarError, ValueError) as error:
            if stop.is_set():
                return
            raise OSError(errno.EIO, f"the copy broke off: {error}", target) from error
        into.finish(stop)


def _blocks(source: str, owner: FileOwner, stop: threading.Event, whole: bool) -> Iterator[bytes]:
    left = [""]
    while left and not stop.is_set():
        folder = left.pop()
        if folder or whole:
            told = os.stat(os.path.join(source, folder), follow_symlinks=not folder)
            yield _header(folder or ".", told, owner, tarfile.DIRTYPE)
        with os.scandir(os.path.join(source, folder)) as entries:
            for entry in entries:
                if stop.is_set():
                    return
                name = os.path.join(folder, entry.name)
                if entry.is_symlink():
                    to = os.readlink(entry)
                    if whole or not _leads_out(name, to):
                        yield _header(name, entry.stat(follow_symlinks=False), owner, tarfile.SYMTYPE, to)
                elif entry.is_dir():
                    left.append(name)
                elif entry.is_file():
                    yield from _file_blocks(entry.path, name, owner, stop)


def _leads_out(name: str, to: str) -> bool:
    """Tell whether a link leads out as daemons see it: by its text alone, and absolute ones do not."""
    if to.startswith("/"):
        return False
    end = os.path.normpath(os.path.join(os.path.dirname(name), to))
    return end == ".." or end.startswith("../")


def _file_blocks(path: str, name: str, owner: FileOwner, stop: threading.Event) -> Iterator[bytes]:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
        told = os.fstat(file.fileno())
        if not stat.S_ISREG(told.st_mode):
            return  # exchanged since it was listed
        yield _header(name, told, owner, tarfile.REGTYPE)
        left = told.st_size
        while left and not stop.is_set():
            data = file.read(min(left, PIECE_BYTES))
            if not data:
                raise OSError(errno.EIO, "became shorter while it was copied", path)
            left -= len(data)
            yield data
        yield bytes(-told.st_size % tarfile.BLOCKSIZE)


def _header(name: str, told: os.stat_result, owner: FileOwner, kind: bytes, link: str = "") -> bytes:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    entry.mode, entry.mtime = stat.S_IMODE(told.st_mode), told.st_mtime_ns // 10**9
    entry.size = told.st_size if kind == tarfile.REGTYPE else 0
    entry.uid, entry.gid = owner.uid, owner.gid
    return entry.tobuf(tarfile.GNU_FORMAT, _ENCODING, _ERRORS)


def _unpack_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, into: _Target, stop: threading.Event) -> None:
    parts = _parts(entry.name)
    if entry.isdir():
        into.folder(parts, entry.mode, entry.mtime)
    elif not parts:
        raise OSError(errno.EINVAL, "the copy is no folder", into.path)
    elif entry.issym():
        into.link(parts, entry.linkname)
    elif entry.islnk():
        into.again(parts, _parts(entry.linkname), stop)
    elif entry.isfile():
        content = archive.extractfile(entry)
        assert content is not None
        into.file(parts, entry.mode, entry.mtime, content.read, stop)
    else:
        into.leave_out(parts)


def _parts(name: str) -> tuple[str, ...]:
    """Return the names on the way to an entry; none for the folder itself."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise OSError(errno.EINVAL, "a name in the copy leads out of it", name)
    return parts


class _Whole:
    """A stream that knows whether all of it came: a daemon that fails half way just ends it."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._tail = b""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""
        data = self._stream.read(size)
        self._tail = (self._tail + data)[-len(_END) :] if len(data) < len(_END) else data[-len(_END) :]
        return data

    def check(self, stop: threading.Event) -> None:
        """Read the rest; it must end as every archive does."""
        while not stop.is_set() and self.read(PIECE_BYTES):
            pass
        if self._tail != _END:
            raise tarfile.ReadError("it has no end")


class _Target:
    """The folder that is written to. Only descriptors are used, from its own on; no link in it is followed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._top = os.open(path, _FOLDER)
        self._parts: tuple[str, ...] = ()
        self._fd = os.dup(self._top)  # of the folder `_parts`: entries that follow each other are mostly siblings
        self._way = [_identity(self._top)]  # of each folder from the top to that one
        self._folders: dict[tuple[str, ...], tuple[int, float]] = {}
        self._left_out: set[tuple[str, ...]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        os.close(self._top)

    def folder(self, parts: tuple[str, ...], mode: int, mtime: float) -> None:
        """Create a folder; it gets its permissions at the end, as they may forbid writing."""
        if parts:
            parent = self._enter(parts[:-1])
            self._clear_link(parts[-1], parent)
            try:
                os.mkdir(parts[-1], 0o700, dir_fd=parent)
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(parts[-1], dir_fd=parent).st_mode):
                    raise self._error(errno.EEXIST, parts) from None
        self._folders[parts] = (mode, mtime)

    def link(self, parts: tuple[str, ...], to: str) -> None:
        """Create a symbolic link in place of what is there."""
        parent = self._enter(parts[:-1])
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(parts[-1], dir_fd=parent)
            os.symlink(to, parts[-1], dir_fd=parent)
        except OSError as error:
            raise self._error(error.errno or errno.EIO, parts) from None

    def file(
        self,
        parts: tuple[str, ...],
        mode: int,
        mtime: float,
        read: Callable[[int], bytes],
        stop: threading.Event,
    ) -> None:
        """Write a file in place of what is there; without the set-id bits, which whoever made it must not grant."""
        parent = self._enter(parts[:-1])
        self._clear_link(parts[-1], parent)
        # Not blocking: a pipe could be there, which nobody reads from.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(parts[-1], flags, 0o600, dir_fd=parent)
        except OSError as error:
            raise self._error(error.errno or errno.EIO, parts) from None
        with open(fd, "wb", buffering=0) as out:
            while not stop.is_set() and (data := read(PIECE_BYTES)):
                _write_all(out, data)
            os.fchmod(fd, mode & 0o777)
            _set_time(fd, mtime)

    def again(self, parts: tuple[str, ...], first: tuple[str, ...], stop: threading.Event) -> None:
        """Write what came before under another name; it is a hard link in the sandbox."""
        if not first or first in self._left_out:
            return self.leave_out(parts)
        parent = self._enter(first[:-1])
        try:
            told = os.lstat(first[-1], dir_fd=parent)
            if stat.S_ISLNK(told.st_mode):
                return self.link(parts, os.readlink(first[-1], dir_fd=parent))
            fd = os.open(first[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        except OSError as error:
            raise self._error(error.errno or errno.EIO, first) from None
        with open(fd, "rb", buffering=0) as content:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                self.file(parts, told.st_mode, told.st_mtime, content.read, stop)
        return None

    def leave_out(self, parts: tuple[str, ...]) -> None:
        """Note that there is no such file, so that neither are its other names."""
        self._left_out.add(parts)

    def finish(self, stop: threading.Event) -> None:
        """Give the folders their permissions and times, the innermost first."""
        for parts, (mode, mtime) in reversed(self._folders.items()):
            if stop.is_set():
                return
            # By way of its parent, from which the next one can be reached: this one may forbid that from now on.
            fd = self._open_folder(parts[-1], self._enter(parts[:-1]), parts) if parts else os.dup(self._top)
            try:
                _set_time(fd, mtime)
                os.fchmod(fd, mode & 0o777)
            finally:
                os.close(fd)

    def _enter(self, parts: tuple[str, ...]) -> int:
        """Return a descriptor of a folder, which is created if need be."""
        if parts == self._parts:
            return self._fd
        fd, known = self._above(parts)
        way = self._way[: known + 1]
        try:
            for part in parts[known:]:
                inner = self._open_folder(part, fd, parts)
                os.close(fd)
                fd = inner
                way.append(_identity(fd))
        except BaseException:
            os.close(fd)
            raise
        os.close(self._fd)
        self._fd, self._parts, self._way = fd, parts, way
        return fd

    def _above(self, parts: tuple[str, ...]) -> tuple[int, int]:
        """Return a descriptor of a folder on the way to another, near to it, and how deep it lies."""
        common = _common(parts, self._parts)
        up = len(self._parts) - common
        if up == 0:
            return os.dup(self._fd), common
        if up <= min(common, _MOST_UP):
            with contextlib.suppress(OSError):  # a folder that it has found here may forbid this
                fd = os.open("/".join([".."] * up), _FOLDER, dir_fd=self._fd)
                if _identity(fd) == self._way[common]:  # else one of them was moved
                    return fd, common
                os.close(fd)
        return os.dup(self._top), 0

    def _open_folder(self, name: str, parent: int, parts: tuple[str, ...]) -> int:
        try:
            with contextlib.suppress(FileNotFoundError):
                return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
            return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
        except OSError as error:
            raise self._error(error.errno or errno.EIO, parts) from None

    def _clear_link(self, name: str, parent: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISLNK(os.lstat(name, dir_fd=parent).st_mode):
                os.unlink(name, dir_fd=parent)

    def _error(self, number: int, parts: tuple[str, ...]) -> OSError:
        return OSError(number, os.strerror(number), os.path.join(self.path, *parts))


def _identity(fd: int) -> tuple[int, int]:
    told = os.fstat(fd)
    return told.st_dev, told.st_ino


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return how many names two ways begin with in common."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    return next(number for number in range(shorter) if one[number] != other[number])


def _set_time(fd: int, mtime: float) -> None:
    with contextlib.suppress(OverflowError, ValueError, OSError):  # commands can set any time, also unheard-of ones
        os.utime(fd, (mtime, mtime))


def _write_all(out: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[out.write(view) :]
