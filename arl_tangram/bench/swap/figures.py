"""What `bench swap` measures. Values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Round:
    """One of everything, one after the other, in seconds.

    Attributes:
        copy_s: `numpy.copyto` of as many bytes, to memory that was written before.
        restore_s: a restore to memory that was written before: from the request for memory to a usable module.
        evict_s: an eviction, until its memory can be taken by others.
        to_s: what `.to()` does.
        drop_s: giving the pages of evicted memory back to the machine, which nobody waits for.
        cold_s: a restore to memory without pages.
        copy_lag_s: how late the loop was at most, in 99 % of all moments, while `copyto` ran in a thread.
        restore_lag_s: the same while the module was restored and evicted.
    """

    copy_s: float
    restore_s: float
    evict_s: float
    to_s: float
    drop_s: float
    cold_s: float
    copy_lag_s: float
    restore_lag_s: float
