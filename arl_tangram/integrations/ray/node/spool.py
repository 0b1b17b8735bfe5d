"""Folders that are on their way to or from a sandbox of a node, kept in files of the agent meanwhile."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio

from arl_tangram.errors import UsageError
from arl_tangram.integrations.ray.pieces import pieces_of
from arl_tangram.managers.docker.archive import unpack
from arl_tangram.managers.host.owner import claim, default_root, sweep
from arl_tangram.managers.host.trees import remove_tree
from arl_tangram.managers.manager import ManagedSandbox
from arl_tangram.uninterrupted import finish_anyway, in_thread

THREADS = 4

T = TypeVar("T")


class Spool:
    """A folder of the agent for copies that are under way; made when it is first needed, removed with the agent.

    It is named like those of sandboxes, so that what a killed agent leaves is removed by the next one, and by
    `doctor`.
    """

    def __init__(self) -> None:
        self._threads = anyio.CapacityLimiter(THREADS)
        self._folder: str | None = None
        self._claiming = anyio.Lock()

    async def put_piece(self, name: str, at: int, data: bytes) -> None:
        """Keep the next piece of a stream that comes in; pieces come in order.

        Raises:
            UsageError: a piece is missing.
        """
        base = await self._base(name)

        def write() -> None:
            os.makedirs(base, mode=0o700, exist_ok=True)
            if at != len(os.listdir(base)):
                raise UsageError(f"a piece of the copy {name} is missing before number {at}")
            with open(os.path.join(base, f"{at:08}"), "xb") as file:
                file.write(data)

        await in_thread(write, self._threads)

    async def put_into(self, sandbox: ManagedSandbox, path: str, name: str) -> None:
        """Copy what came in into a sandbox, and forget it; cancelling stops that half done."""
        base = await self._base(name)
        stop = threading.Event()
        try:
            await self._blocking(lambda: unpack(_Pieces(base), f"{base}.out", stop), stop)
            await sandbox.put_dir(f"{base}.out", path)
        finally:
            await self.forget(name)

    async def get_from(self, sandbox: ManagedSandbox, path: str, name: str) -> int:
        """Copy a folder of a sandbox to a stream that goes out, and return its size in bytes."""
        base = await self._base(name)
        stop = threading.Event()

        def pack() -> int:
            with open(f"{base}.tar", "xb") as file:
                file.writelines(pieces_of(f"{base}.out", stop))
            remove_tree(f"{base}.out")
            return os.path.getsize(f"{base}.tar")

        try:
            await sandbox.get_dir(path, f"{base}.out")
            return await self._blocking(pack, stop)
        except BaseException:
            await self.forget(name)
            raise

    async def get_piece(self, name: str, at: int, size: int) -> bytes:
        """Return a piece of a stream that goes out, from a byte on."""
        base = await self._base(name)

        def read() -> bytes:
            with open(f"{base}.tar", "rb") as file:
                file.seek(at)
                return file.read(size)

        return await in_thread(read, self._threads)

    async def forget(self, name: str) -> None:
        """Remove what there is of a copy; idempotent."""
        if self._folder is not None:
            base = await self._base(name)
            await in_thread(lambda: _remove(base), self._threads)

    async def forget_all(self, owner: str) -> None:
        """Remove all copies whose names begin with that of their owner; see `name_of`."""
        if (folder := self._folder) is None:
            return

        def remove() -> None:
            for entry in os.listdir(folder):
                if entry.startswith(f"{owner}."):
                    _remove_one(os.path.join(folder, entry))

        await in_thread(remove, self._threads)

    async def aclose(self) -> None:
        """Remove the folder."""
        folder, self._folder = self._folder, None
        if folder is not None:

            def remove() -> None:
                remove_tree(folder)
                with contextlib.suppress(OSError):  # another owner is there
                    os.rmdir(os.path.dirname(folder))

            await in_thread(remove, self._threads)

    async def _base(self, name: str) -> str:
        async with self._claiming:
            if self._folder is None:

                def make() -> str:
                    sweep(default_root(), {})
                    return claim(default_root()).folder

                self._folder = await finish_anyway(anyio.to_thread.run_sync(make, limiter=self._threads))
        return os.path.join(self._folder, name)

    async def _blocking(self, work: Callable[[], T], stop: threading.Event) -> T:
        return await in_thread(work, self._threads, on_cancel=stop.set)


class _Pieces:
    """A stream that came in pieces, one file each."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._names = sorted(os.listdir(base), reverse=True)
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""
        if not self._rest and self._names:
            with open(os.path.join(self._base, self._names.pop()), "rb") as file:
                self._rest = file.read()
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


def name_of(owner: str, transfer: int) -> str:
    """Return the name of a copy."""
    return f"{owner}.{transfer}"


def _remove(base: str) -> None:
    for path in (base, f"{base}.out", f"{base}.tar"):
        _remove_one(path)


def _remove_one(path: str) -> None:
    if os.path.isdir(path):
        remove_tree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
