"""Folders between a client and a sandbox on a node: as tar streams in pieces, over calls to the node's agent."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from typing import IO, TypeVar, cast

import anyio

from arl_tangram.integrations.ray.client.calls import AgentCalls
from arl_tangram.integrations.ray.pieces import PIECE_BYTES, pieces_of
from arl_tangram.managers.arguments import check_folder, check_host_path, check_path
from arl_tangram.managers.docker.archive import unpack
from arl_tangram.model.quantities import plain
from arl_tangram.uninterrupted import in_thread

T = TypeVar("T")


async def send_folder(calls: AgentCalls, sandbox: int, source: str | os.PathLike[str], path: str) -> None:
    """Copy a folder of this host into a sandbox; see `Sandbox.put_dir`."""
    check_path(path)
    check_host_path(source, "source")
    stop, threads = threading.Event(), anyio.CapacityLimiter(1)

    async def blocking(work: Callable[[], T]) -> T:
        return await in_thread(work, threads, on_cancel=stop.set)

    await blocking(lambda: check_folder(source, source))
    transfer = calls.new_number()
    pieces = pieces_of(os.fspath(source), stop)
    try:
        at = 0
        while piece := await blocking(lambda: next(pieces, b"")):
            await calls.do("put_piece", {"transfer": transfer, "at": at, "data": piece})
            at += 1
        await calls.do("put_dir", {"transfer": transfer, "sandbox": sandbox, "path": plain(path)})
    except BaseException:
        calls.settle("forget", {"transfer": transfer})
        raise


async def fetch_folder(calls: AgentCalls, sandbox: int, path: str, target: str | os.PathLike[str]) -> None:
    """Copy a folder of a sandbox to this host; see `Sandbox.get_dir`."""
    check_path(path)
    check_host_path(target, "target")
    stop, threads = threading.Event(), anyio.CapacityLimiter(1)

    async def blocking(work: Callable[[], T]) -> T:
        return await in_thread(work, threads, on_cancel=stop.set)

    transfer = calls.new_number()
    stream = await blocking(tempfile.TemporaryFile)
    try:
        try:
            size = await calls.do("get_dir", {"transfer": transfer, "sandbox": sandbox, "path": plain(path)})
            for at in range(0, cast(int, size), PIECE_BYTES):
                piece = await calls.do("get_piece", {"transfer": transfer, "at": at, "size": PIECE_BYTES})
                await blocking(partial(stream.write, piece))
        finally:
            calls.settle("forget", {"transfer": transfer})
        await blocking(lambda: unpack(_rewound(stream), os.fspath(target), stop))
    finally:
        stream.close()


def _rewound(stream: IO[bytes]) -> IO[bytes]:
    stream.seek(0)
    return stream
