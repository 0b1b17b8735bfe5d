"""Host memory in which evicted services are kept: within a budget, pinned where a GPU is to read it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.host.pages import Pages
from arl_tangram.managers.threads import BodyThreads
from arl_tangram.uninterrupted import finish_anyway, unstoppable

if TYPE_CHECKING:
    import torch

FILL_THREADS = 4
"""The kernel clears pages; beyond a few threads it does so no faster."""

PIECE_BYTES = 256 << 20
"""What a thread fills at once."""


class Pinner(Protocol):
    """What makes host memory readable for GPUs at the full speed of their link. It blocks."""

    def pin(self, address: int, size: int) -> None:
        """Pin memory.

        Raises:
            OSError: it cannot be pinned; none of it is.
        """
        ...

    def unpin(self, address: int, size: int) -> None:
        """Undo it; never raises."""
        ...


class HostBuffer:
    """Memory for one service: filled with pages, and pinned, before it is handed out.

    Attributes:
        name: for whom it is.
        size: in bytes.
        pinned: whether a GPU can read it at the full speed of its link.
    """

    def __init__(self, name: str, pages: Pages, *, pinned: bool) -> None:
        self.name = name
        self.size = pages.size
        self.pinned = pinned
        self._pages = pages

    def tensor(self) -> torch.Tensor:
        """Return all of it as a tensor of `uint8`, which shares its memory and keeps it alive."""
        return self._pages.tensor(0, self.size)

    @property
    def address(self) -> int:
        """Of its first byte."""
        return self._pages.address

    def drop(self) -> None:
        """Give its pages back to the machine, whoever still refers to it; it blocks."""
        self._pages.drop(0, self.size)


class HostMemory:
    """Host memory for all services of a pool; for one event loop.

    Pinning takes long and holds up other calls of CUDA, so it is done here, once, and never when an action waits.

    Args:
        budget_bytes: the most that all services together may have.
        pinner: pins what is allocated; None if there is no GPU.
    """

    def __init__(self, budget_bytes: int, *, pinner: Pinner | None = None) -> None:
        self._budget = budget_bytes
        self._pinner = pinner
        self._reserved: dict[str, int] = {}
        self._buffers: dict[str, HostBuffer] = {}
        self._notes: list[str] = []
        self._threads = BodyThreads()

    @property
    def notes(self) -> tuple[str, ...]:
        """What did not go as it should, for the user."""
        return tuple(self._notes)

    @property
    def budget_bytes(self) -> int:
        """The most that all services together may have."""
        return self._budget

    @property
    def used_bytes(self) -> int:
        """What they have."""
        return sum(self._reserved.values())

    @property
    def free_bytes(self) -> int:
        """What is left of the budget."""
        return self._budget - self.used_bytes

    def reserve(self, name: str, size: int) -> None:
        """Count memory that a service has elsewhere, as an engine does that keeps its weights itself.

        Raises:
            ConfigurationError: the budget does not allow it, or the name has memory already.
        """
        if name in self._reserved:
            raise ConfigurationError(f"{name!r} has host memory already")
        if size > self.free_bytes:
            others = ", ".join(f"{other} {_gib(has)}" for other, has in self._reserved.items())
            raise ConfigurationError(
                f"{name!r} needs {_gib(size)} GiB of host memory; of {_gib(self._budget)} GiB that its pool may use,"
                f" {_gib(self.free_bytes)} are left{f' beside {others}' if others else ''}"
            )
        self._reserved[name] = size

    async def allocate(self, name: str, size: int) -> HostBuffer:
        """Allocate, fill and pin memory, off the loop.

        Args:
            name: for whom.
            size: in bytes.

        Cancelling takes effect when the memory is there, and gives it back.

        Raises:
            ConfigurationError: the budget does not allow it, or the name has memory already.
            MemoryError: the machine has no more.
        """
        self.reserve(name, size)
        try:
            return await finish_anyway(self._prepare(name, size))
        except BaseException:
            await self.release(name)
            raise

    async def release(self, name: str) -> None:
        """Give back what a name has, if it has something; nothing may copy from it any more. Cancelling waits for it.

        What still refers to the memory of a buffer sees zeros.
        """
        buffer = self._buffers.pop(name, None)
        try:
            if buffer is not None:
                await finish_anyway(self._give_back(buffer))
        finally:
            self._reserved.pop(name, None)

    async def aclose(self) -> None:
        """Give everything back; never raises."""
        for name in list(self._reserved):
            await self.release(name)
        self._threads.close()

    async def _prepare(self, name: str, size: int) -> HostBuffer:
        pages = Pages(size)
        pieces = _pieces(size)
        fillers = [unstoppable(self._fill(pages, pieces)) for _ in range(FILL_THREADS)]
        await asyncio.wait(fillers)
        for filler in fillers:
            filler.result()
        buffer = HostBuffer(name, pages, pinned=await self._pin(name, pages))
        self._buffers[name] = buffer
        return buffer

    async def _pin(self, name: str, pages: Pages) -> bool:
        pinner = self._pinner
        if pinner is None or not pages.size:
            return False
        try:
            (await self._threads.run(lambda: pinner.pin(pages.address, pages.size), ())).result()
        except OSError as error:
            what = f"{_gib(pages.size)} GiB of host memory"
            self._notes.append(f"{name}: {what} could not be pinned, which makes its restores slower: {error}")
            return False
        return True

    async def _fill(self, pages: Pages, pieces: Iterator[tuple[int, int]]) -> None:
        """Fill one piece after the other; several tasks share the pieces."""
        for start, stop in pieces:
            (await self._threads.run(partial(pages.fill, start, stop), ())).result()

    async def _give_back(self, buffer: HostBuffer) -> None:
        def unpin_and_drop() -> None:
            if buffer.pinned and self._pinner is not None:
                self._pinner.unpin(buffer.address, buffer.size)
            buffer.drop()

        (await self._threads.run(unpin_and_drop, ())).result()


def _pieces(size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, size, PIECE_BYTES):
        yield start, min(start + PIECE_BYTES, size)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.3g}"
