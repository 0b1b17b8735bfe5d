"""Sizes in messages."""

from __future__ import annotations

from arl_tangram.model.quantities import GIB

_MIB = GIB >> 10


def in_words(size: int) -> str:
    """Say a number of bytes as people do."""
    if size >= GIB:
        return f"{size / GIB:.2f} GiB"
    return f"{size / _MIB:.1f} MiB" if size >= _MIB else f"{size:,} bytes"
