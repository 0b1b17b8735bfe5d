"""Have a daemon hold the image for a while: list what belongs in it, import it unless it is there, remove it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

import anyio
import anyio.to_thread

from arl_tangram.errors import ConfigurationError
from arl_tangram.machine_image.entries import Compiled, Copied, Entry, arranged, fingerprint_of
from arl_tangram.machine_image.libraries import libraries_of
from arl_tangram.machine_image.programs import base_entries
from arl_tangram.machine_image.python_files import python_entries
from arl_tangram.machine_image.tar_stream import pieces
from arl_tangram.managers.docker.engine import DaemonError, Engine
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.uninterrupted import finish_anyway, in_thread, settled

IMPORT_LIMIT_S = 300.0
PIECES_AHEAD = 4

_log = logging.getLogger(__name__)

Tell = Callable[[int, int], None]
"""Hears how many bytes were sent, and about how many there are; on the thread of the loop."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What an image is to hold.

    Attributes:
        reference: name and tag; the tag is made of what is in the image.
        entries: each path of it.
    """

    reference: str
    entries: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Bytes of its files, about."""
        copied = sum(entry.size for entry in self.entries if isinstance(entry, Copied))
        return copied + sum(entry.of.size for entry in self.entries if isinstance(entry, Compiled))


def contents(name: str, packages: Iterable[str] | None = None) -> Contents:
    """List what belongs in an image: a shell and the usual programs, and Python with packages; blocks for a second.

    Args:
        name: of the image, without a tag.
        packages: distributions that Python is to have there; None for no Python at all.

    Raises:
        ConfigurationError: this machine lacks something that the image needs.
    """
    own = base_entries()
    if packages is not None:
        own += python_entries(packages)
    entries = arranged([*own, *libraries_of(own)])
    return Contents(f"{name}:{fingerprint_of(entries)}", entries)


@asynccontextmanager
async def image_of_this_machine(
    name: str, packages: Iterable[str] | None = None, *, url: str | None = None, keep: bool = False, tell: Tell
) -> AsyncGenerator[str]:
    """Have a daemon hold such an image meanwhile; yields its reference.

    An image with the same content that is there already is used, and stays.

    Args:
        name: of the image, without a tag.
        packages: distributions that Python is to have there; None for no Python at all.
        url: where the daemon listens; None asks the environment.
        keep: leave the image with the daemon, for the next time.
        tell: hears how the import goes on; nothing if the image is there.

    Raises:
        ConfigurationError: no daemon can be reached, or this machine lacks something that the image needs.
    """
    engine = Engine(url, LatencyMeter())
    try:
        await engine.open()
        wanted = await anyio.to_thread.run_sync(contents, name, packages)
        is_new = await _have(engine, wanted, tell)
        try:
            yield wanted.reference
        finally:
            if is_new and not keep:
                await finish_anyway(_remove(engine, wanted.reference))
    finally:
        await finish_anyway(engine.aclose())


async def _have(engine: Engine, wanted: Contents, tell: Tell) -> bool:
    """Import an image unless it is there; returns whether that was needed."""
    try:
        if await engine.has_image(wanted.reference):
            return False
        async with _Reading(wanted, tell) as reading:
            await engine.import_image(reading.stream(), wanted.reference, timeout_s=IMPORT_LIMIT_S)
    except DaemonError as error:
        raise ConfigurationError(f"the Docker daemon did not take the image {wanted.reference}: {error}") from error
    return True


async def _remove(engine: Engine, reference: str) -> None:
    try:
        await engine.remove_image(reference)
    except DaemonError as error:
        _log.warning("the image %s stays: %s; remove it with: docker rmi %s", reference, error, reference)


class _Reading:
    """Reads the tar stream on a thread, a little ahead of who sends it; at the end of its block nothing reads on."""

    def __init__(self, wanted: Contents, tell: Tell) -> None:
        self._wanted = wanted
        self._tell = tell
        self._ahead: asyncio.Queue[bytes | OSError] = asyncio.Queue(PIECES_AHEAD)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await settled(self._task)

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield the stream; to be called once.

        Raises:
            OSError: a file cannot be read.
        """
        sent, size = 0, self._wanted.size
        while piece := await self._ahead.get():
            if isinstance(piece, OSError):
                raise piece
            yield piece
            sent += len(piece)  # with what the tar format adds
            self._tell(min(sent, size - 1), size)
        self._tell(size, size)

    async def _read(self) -> None:
        thread, parts = anyio.CapacityLimiter(1), pieces(self._wanted.entries)
        try:
            while piece := await in_thread(partial(next, parts, b""), thread):
                await self._ahead.put(piece)
            await self._ahead.put(b"")
        except OSError as error:
            await self._ahead.put(error)
        finally:
            await in_thread(parts.close, thread)
