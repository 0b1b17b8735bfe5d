"""Files of a Docker sandbox: single ones through the container's shell, folders as tar streams through the daemon.

A relative path starts at the working folder and must stay below it, all links followed. An absolute path may name any
file of the container, which holds nothing of the host.

Single files of all sizes go through the shell: a tar stream costs the daemon 70 ms at least, the shell 2 ms. Measured
beside an action with one core and between actions, reading is quicker by the shell at every size (64 MiB: 0.8 to 1.0 s
against 1.6 to 2.0 s). Writing is quicker by a stream from about 4 MiB on (64 MiB: 0.4 to 1.7 s against 0.3 s), but that
would be done as root, replace the file with its permissions and links, and not notice a pipe in its place.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol, cast

import anyio
import anyio.to_thread

from arl_tangram.errors import SandboxLostError, SandboxPathError
from arl_tangram.managers.arguments import check_folder, check_host_path, check_max_bytes, check_path
from arl_tangram.managers.docker import file_scripts as scripts
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.archive import FileOwner, pack, scan, unpack
from arl_tangram.managers.docker.feed import Feed
from arl_tangram.uninterrupted import in_thread, settled, unstoppable

_STOP_LIMIT_S = 10.0
_TOLD_BYTES = 1 << 16


class Shell(Protocol):
    """Runs a script of ours in the container."""

    async def __call__(self, script: str, /, stdin: bytes = b"", *, max_bytes: int = ...) -> tuple[int, bytes, bytes]:
        """Return exit code, standard output and standard error, of at most `max_bytes` each."""
        ...


class Archives(Protocol):
    """The daemon, as far as tar streams are concerned."""

    async def put_archive(self, container_id: str, path: str, chunks: AsyncIterator[bytes]) -> None:
        """Unpack a tar stream in a folder of the container; fails where a folder is in the way of something else."""
        ...

    def get_archive(self, container_id: str, path: str) -> AsyncGenerator[bytes, None]:
        """Return a file or a folder of the container as a tar stream."""
        ...


class Files:
    """Files of one container.

    Args:
        container_id: which.
        shell: runs a script in it, as its user.
        archives: its daemon.
        workdir: where relative paths start.
        daemon_folder: where the daemon keeps its containers, if that is a folder of this machine.
        limiter: of the threads that read and write files of this machine.
        check: raises `SandboxLostError` when the sandbox is no more.
    """

    def __init__(
        self,
        container_id: str,
        *,
        shell: Shell,
        archives: Archives,
        workdir: str,
        daemon_folder: str | None,
        limiter: anyio.CapacityLimiter,
        check: Callable[[], None],
    ) -> None:
        self._id = container_id
        self._shell = shell
        self._archives = archives
        self._workdir = workdir
        self._daemon_folder = daemon_folder
        self._limiter = limiter
        self._check = check

    async def folder(self, path: str) -> str:
        """Return the absolute path of a folder for a command to run in.

        Raises:
            SandboxPathError: it leaves the sandbox.
            FileNotFoundError: it does not exist.
            NotADirectoryError: it is no folder.
            PermissionError: it cannot be entered.
            TypeError: it is no string.
        """
        check_path(path, "cwd")
        return os.fsdecode(await self._run(path, scripts.ENTER))

    async def write(self, path: str, data: object) -> None:
        """Write a file, creating its folders; see `Sandbox.write_file`."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"write_file takes bytes, not {type(data).__name__}; encode text first: text.encode()")
        await self._run(path, scripts.WRITE, stdin=bytes(cast(bytes, data)))

    async def read(self, path: str, max_bytes: int) -> bytes:
        """Return the content of a regular file of at most `max_bytes`; see `Sandbox.read_file`."""
        check_max_bytes(max_bytes)
        most = max_bytes + 1
        too_large = OSError(errno.EFBIG, f"larger than max_bytes={max_bytes:,}", path)
        try:
            content = await self._run(path, scripts.READ, {"most": str(most)}, max_bytes=most)
        except OSError as error:
            raise too_large if error.errno == errno.EFBIG else error from None
        if len(content) > max_bytes:
            raise too_large
        return content

    async def put(self, source: str | os.PathLike[str], path: str) -> None:
        """Copy a folder in; see `Sandbox.put_dir`."""
        check_path(path)
        check_host_path(source, "source")
        stop = threading.Event()
        mode = await in_thread(lambda: self._check_source(source), self._limiter)
        told = os.fsdecode(await self._run(path, scripts.PUT, {"mode": f"{mode:o}"}))
        uid, gid, found, real = told.split(" ", 3)
        there = await in_thread(lambda: scan(os.fspath(source), stop), self._limiter, on_cancel=stop.set)
        # First the links that are where folders are to be, which the daemon would refuse to remove; then those that it
        # would refuse to make.
        for script in scripts.clearing(real, there.folders if found == "found" else ()):
            await self._checked(script, path)
        for script in scripts.linking(real, mode, there.links):
            await self._checked(script, path)
        packing = _Packing(os.fspath(source), FileOwner(int(uid), int(gid)), self._limiter, stop)
        try:
            await _end_early(self._archives.put_archive(self._id, real, packing.pieces()), stop)
        except DaemonError as error:
            if packing.error is None:
                raise self._failure(error, path) from error
        if packing.error is not None:
            raise packing.error

    async def get(self, path: str, target: str | os.PathLike[str]) -> None:
        """Copy a folder out; see `Sandbox.get_dir`."""
        check_path(path)
        check_host_path(target, "target")
        real = os.fsdecode(await self._run(path, scripts.GET))
        stop = threading.Event()
        feed = Feed()
        unpacking = unstoppable(
            anyio.to_thread.run_sync(lambda: unpack(feed, os.fspath(target), stop), limiter=self._limiter)
        )
        unpacking.add_done_callback(lambda _: feed.close())
        try:
            async with aclosing(self._archives.get_archive(self._id, f"{real.rstrip('/')}/.")) as chunks:
                async for chunk in chunks:
                    if chunk and not await feed.put(chunk):
                        break
            await feed.put(b"")
            await asyncio.wait([unpacking])
        except BaseException as error:
            stop.set()
            feed.close()
            await settled(unpacking)
            unpacking.exception()  # heard, though the other one goes first
            if isinstance(error, DaemonError):
                raise self._failure(error, path) from error
            raise
        unpacking.result()

    async def _run(
        self,
        path: str,
        script: str,
        variables: Mapping[str, str] | None = None,
        *,
        stdin: bytes = b"",
        max_bytes: int = _TOLD_BYTES,
    ) -> bytes:
        """Run a script after the path has been resolved; return its standard output.

        Raises:
            SandboxPathError: the path leaves the sandbox.
            OSError: the script ended with an error.
        """
        check_path(path)
        given = scripts.settings({"work": self._workdir, **scripts.place(path), **(variables or {})})
        return await self._checked(f"{given}{scripts.RESOLVE}{script}", path, stdin=stdin, max_bytes=max_bytes)

    async def _checked(self, script: str, path: str, *, stdin: bytes = b"", max_bytes: int = _TOLD_BYTES) -> bytes:
        code, out, told = await self._shell(script, stdin, max_bytes=max_bytes)
        if code:
            self._check()
            raise scripts.error(code, os.fsdecode(told), path, self._workdir)
        return out

    def _check_source(self, source: str | os.PathLike[str]) -> int:
        """Return the permissions of a folder of this machine that may be copied; blocks."""
        found = check_folder(source, source)
        if self._daemon_folder is not None and Path(self._daemon_folder).resolve().is_relative_to(
            Path(source).resolve()
        ):
            raise SandboxPathError(
                f"{os.fspath(source)} holds {self._daemon_folder}, where the daemon keeps its containers: "
                "a folder cannot be copied into itself"
            )
        return found.st_mode & 0o7777

    def _failure(self, error: DaemonError, path: str) -> Exception:
        """Return what an error of the daemon means to whoever copies."""
        self._check()
        if error.kind in ("gone", "late") or error.status in (404, 409):
            return SandboxLostError(f"container {self._id[:12]}: files could not be copied: {error}")
        if "no space left on device" in error.message:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if "cannot overwrite directory" in error.message:
            return IsADirectoryError(errno.EISDIR, error.message, path)
        return OSError(errno.EIO, error.message, path)


class _Packing:
    """A folder on its way into a container; what goes wrong on this machine is kept for whoever copies it."""

    def __init__(self, source: str, owner: FileOwner, limiter: anyio.CapacityLimiter, stop: threading.Event) -> None:
        self._pieces = pack(source, owner, stop)
        self._limiter = limiter
        self._stop = stop
        self.error: OSError | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the stream; each piece is packed on a thread when it is asked for."""
        try:
            while piece := await in_thread(lambda: next(self._pieces, b""), self._limiter, on_cancel=self._stop.set):
                yield piece
        except OSError as error:  # not to the client library, which would tell of a broken connection
            self.error = error


async def _end_early(putting: Coroutine[Any, Any, None], stop: threading.Event) -> None:
    """Wait for a copy; when cancelled, let its stream end and wait for the daemon's answer.

    Breaking the connection would be quicker, but the daemon would go on to unpack what it has got.
    """
    task = asyncio.get_running_loop().create_task(putting)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        stop.set()
        giving_up = asyncio.get_running_loop().call_later(_STOP_LIMIT_S, task.cancel)
        try:
            await settled(task)
        finally:
            giving_up.cancel()
        if not task.cancelled():
            task.exception()  # heard, though the cancellation goes first
        raise
    task.result()
