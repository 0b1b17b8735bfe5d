"""The bytes of a GPU's arena: how copies are cut and ordered. It blocks; a CUDA device calls it off the loop."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

import torch

from arl_tangram.managers.gpu.devices.arena import end
from arl_tangram.managers.gpu.devices.cuda.calls import CudaCalls, Event
from arl_tangram.managers.gpu.devices.cuda.pinning import pieces
from arl_tangram.managers.gpu.devices.device import Region

PIECE_BYTES = 64 << 20
"""Of a copy from the host: 1.2 ms at the speed of PCIe 5.0. What is in flight cannot be stopped."""

IN_FLIGHT = 2
"""While one piece is copied, the next one waits in the stream, so that the link is never idle."""

STAGE_BYTES = 64 << 20
"""A region that moves by less than this goes through a buffer of this size: pieces without overlap would be tiny."""


class CudaMemory:
    """One allocation on a GPU, and the copies to and within it.

    Args:
        cuda: what is asked of CUDA.
        size: of the arena in bytes.
        vacated: whether it takes its memory only when it is told to.
    """

    def __init__(self, cuda: CudaCalls, size: int, *, vacated: bool = False) -> None:
        self._cuda = cuda
        self._size = size
        self._bytes: torch.Tensor | None = None if vacated else self._take()

    def view(self, region: Region) -> torch.Tensor:
        """Return the bytes of a region, with a storage of its own."""
        return self._cuda.alone(self._part(region.offset, end(region)))

    def copy_in(self, region: Region, source: torch.Tensor, stop: threading.Event) -> None:
        """Copy from the host, and wait until it is done.

        Raises:
            OSError: `stop` was set; nothing is written any more.
        """
        in_flight: deque[Event] = deque()
        first = source.data_ptr()
        for address, size in pieces(first, region.size, PIECE_BYTES):
            if len(in_flight) == IN_FLIGHT:
                in_flight.popleft().synchronize()
            if stop.is_set():
                break
            start = address - first
            part = self._part(region.offset + start, region.offset + start + size)
            self._cuda.copy(part, source[start : start + size])
            in_flight.append(self._cuda.event())
        for event in in_flight:
            event.synchronize()
        if stop.is_set():
            raise OSError("a copy was ended early")

    def move(self, source: Region, target: Region) -> None:
        """Copy within the arena, and wait until it is done."""
        # Lives until all is copied: else its memory would be somebody else's while it is still in use.
        buffer = self._shift(source, target)
        self._cuda.event().synchronize()
        del buffer

    def fill(self, start: int, stop: int, byte: int) -> None:
        """Begin to set bytes; what is copied later comes later."""
        self._cuda.fill(self._part(start, stop), byte)

    def vacate(self) -> None:
        """Give the memory back to the driver, once nothing is in flight any more."""
        self._cuda.event().synchronize()
        self._cuda.last_use().synchronize()
        self._bytes = None
        self._cuda.give_back()

    def occupy(self) -> None:
        """Take memory again, if there is none."""
        if self._bytes is None:
            self._bytes = self._take()

    def _take(self) -> torch.Tensor:
        taken = self._cuda.take(self._size)
        # It may be memory that models have had, and on their stream what they did with it may not have ended.
        self._cuda.wait(self._cuda.last_use())
        return taken

    def _shift(self, source: Region, target: Region) -> torch.Tensor | None:
        """Begin to copy, piece by piece; return the buffer that they go through, if there is one."""
        apart = abs(target.offset - source.offset)
        overlaps = apart < source.size
        staged = overlaps and apart < STAGE_BYTES
        step = STAGE_BYTES if staged else apart if overlaps else source.size
        buffer = self._cuda.take_for_copies(min(STAGE_BYTES, source.size)) if staged else None
        # What is read is never what was written before: towards lower addresses from the start, else from the end.
        for start, stop in _steps(source.size, step, from_start=target.offset < source.offset):
            part = self._part(source.offset + start, source.offset + stop)
            if buffer is not None:
                self._cuda.copy(buffer[: stop - start], part)
                part = buffer[: stop - start]
            self._cuda.copy(self._part(target.offset + start, target.offset + stop), part)
        return buffer

    def _part(self, start: int, stop: int) -> torch.Tensor:
        if self._bytes is None:
            raise OSError("the memory of the device was given back")
        return self._bytes[start:stop]


def _steps(size: int, step: int, *, from_start: bool) -> Iterator[tuple[int, int]]:
    """Yield the parts of so many bytes in the order in which they are copied."""
    starts = range(0, size, step)
    for start in starts if from_start else reversed(starts):
        yield start, min(start + step, size)
