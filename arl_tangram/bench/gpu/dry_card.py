"""A part of this machine's memory in place of a GPU, for a dry run."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from arl_tangram.bench.gpu.card import Moved, Plain, Pool
from arl_tangram.bench.swap.model import as_to_does
from arl_tangram.managers.gpu.devices.cpu.device import CpuDevice
from arl_tangram.managers.gpu.devices.device import Device

_KEEP_PAGES_S = 3600.0


class DryCard:
    """Memory of this machine in place of a GPU: everything runs, and no figure says anything about one."""

    name = "host memory, a dry run"
    dtype = torch.float32
    pinner = None

    async def open(self, capacity: int) -> Device:
        """Take an arena of it."""
        return CpuDevice("cpu:0", capacity, drop_after_s=_KEEP_PAGES_S)

    def pool(self, arena: int) -> Pool:
        """Return the device."""
        return Pool((f"cpu:0:{arena / (1 << 20):.6f}MiB",), 0.0, arena)

    def plain(self, size: int) -> Plain:
        """Take memory twice."""
        return _HostPlain(size)

    @contextmanager
    def moved(self, model: nn.Module) -> Generator[Moved]:
        """Do what `.to()` does when the device is another one."""
        began_s = time.perf_counter()
        as_to_does(model)
        yield Moved(time.perf_counter() - began_s)

    def free_bytes(self) -> int:
        """Return how much can be used; a dry run needs little."""
        return 1 << 40

    def used_bytes(self) -> int:
        """Return what this process has."""
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def tidy(self) -> None:
        """Nothing is kept."""


class _HostPlain:
    def __init__(self, size: int) -> None:
        self.source = torch.ones(size, dtype=torch.uint8)
        self._target = torch.zeros(size, dtype=torch.uint8)

    def copy(self, size: int) -> float:
        began_s = time.perf_counter()
        self._target[:size].copy_(self.source[:size])
        return time.perf_counter() - began_s
