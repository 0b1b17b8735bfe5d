"""Anonymous memory of this process: mapped lazily in huge pages, filled ahead of time, given back page by page."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import TYPE_CHECKING

from arl_tangram.managers.gpu.extra import need_torch

if TYPE_CHECKING:
    import torch

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE: since Linux 5.14, and not in Python's mmap
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Pages:
    """One mapping. It lives for as long as it, or a tensor of a part of it, is referenced.

    What works on many bytes lets other threads run meanwhile: `mmap.madvise` would not, so libc is called.

    Args:
        size: in bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._map = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._advise(0, size, mmap.MADV_HUGEPAGE)  # where the kernel has none, pages are small

    def tensor(self, start: int, stop: int) -> torch.Tensor:
        """Return a range of bytes as a tensor of `uint8` with a storage of its own.

        Raises:
            MissingExtraError: torch is not installed.
        """
        need_torch()
        import torch  # noqa: PLC0415 - an extra

        if start == stop:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(memoryview(self._map)[start:stop], dtype=torch.uint8)

    def fill(self, start: int, stop: int) -> None:
        """Back a range that holds nothing yet with pages, so that the first write to it takes no longer than any other.

        Raises:
            MemoryError: there are not enough.
        """
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        failed = self._advise(first, stop, _POPULATE_WRITE)
        if failed == errno.EINVAL:  # an older kernel
            ctypes.memset(self.address + start, 0, stop - start)
        elif failed:
            raise MemoryError(f"no memory for {stop - start:,} bytes: {os.strerror(failed)}")

    def write(self, start: int, stop: int, byte: int) -> None:
        """Set all bytes of a range."""
        ctypes.memset(self.address + start, byte, stop - start)

    def copy(self, start: int, stop: int, source: int) -> None:
        """Copy to a range from an address, which may be in this memory, too."""
        ctypes.memmove(self.address + start, source, stop - start)

    def drop(self, start: int, stop: int) -> None:
        """Give back the pages of which no byte lies outside of a range; they read as zeros."""
        first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, stop // mmap.PAGESIZE * mmap.PAGESIZE
        if stop == self.size:
            last = stop  # nobody else has the rest of the last page
        if first < last:
            self._advise(first, last, mmap.MADV_DONTNEED)

    def _advise(self, start: int, stop: int, advice: int) -> int:
        """Return 0, or the number of the error."""
        if start >= stop:
            return 0
        return ctypes.get_errno() if _libc.madvise(self.address + start, stop - start, advice) else 0
