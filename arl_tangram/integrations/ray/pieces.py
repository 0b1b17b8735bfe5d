"""A folder as a stream in pieces that are small enough for one call."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from arl_tangram.managers.docker.archive import FileOwner, pack

PIECE_BYTES = 4 << 20
"""Of a stream, in one call."""


def pieces_of(folder: str, stop: threading.Event) -> Iterator[bytes]:
    """Yield all that is in a folder as a tar stream in pieces; blocks."""
    pending = bytearray()
    for block in pack(folder, FileOwner(0, 0), stop, whole=True):
        pending += block
        if len(pending) >= PIECE_BYTES:
            yield bytes(pending)
            pending.clear()
    if pending:
        yield bytes(pending)
