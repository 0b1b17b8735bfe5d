"""A GPU as the device that is measured."""

from __future__ import annotations

import importlib
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from arl_tangram.bench.gpu.card import Moved, Plain, Pool
from arl_tangram.bench.gpu.teacher import weights_of
from arl_tangram.managers.gpu.devices.cuda.calls import find_index
from arl_tangram.managers.gpu.devices.cuda.device import CudaDevice
from arl_tangram.managers.gpu.devices.cuda.pinning import CudaPinner
from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.discovery.found import Gpu
from arl_tangram.managers.gpu.discovery.nvml import Nvml
from arl_tangram.managers.gpu.host.host_memory import Pinner
from arl_tangram.managers.gpu.pool import MOST_RESERVE

_WARM = 1024


class CudaCard:
    """A GPU; CUDA is initialised when this is made.

    Args:
        gpu: which one.
        nvml: tells of its memory.
    """

    dtype = torch.bfloat16

    def __init__(self, gpu: Gpu, nvml: Nvml) -> None:
        self._gpu = gpu
        self._nvml = nvml
        self._cuda: Any = torch.cuda  # parts of it have no types
        self._device = torch.device("cuda", find_index(gpu.uuid, gpu.cuda_index))
        # What the libraries of CUDA keep for themselves is no part of what is measured.
        warm = torch.ones(_WARM, _WARM, dtype=self.dtype, device=self._device)
        _ = warm @ warm
        self._cuda.synchronize(self._device)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._gpu.name

    @property
    def pinner(self) -> Pinner:
        """What pins memory of the host for it."""
        return CudaPinner(str(self._device))

    async def open(self, capacity: int) -> Device:
        """Take an arena of it."""
        return await CudaDevice.open(self._gpu.uuid, capacity, cuda_index=self._gpu.cuda_index)

    def pool(self, arena: int) -> Pool:
        """Return the GPU, and what is to be left of it."""
        free, total = self.free_bytes(), self._gpu.total_bytes
        reserve = min(MOST_RESERVE, max(0.0, (free - arena) / total))
        return Pool((self._gpu.uuid,), reserve, free - int(total * reserve))

    def plain(self, size: int) -> Plain:
        """Take memory on both sides, as torch gives it."""
        return _CudaPlain(self._device, size)

    @contextmanager
    def moved(self, model: nn.Module) -> Generator[Moved]:
        """Move a module here, from memory that is not pinned, and let it lie on the host again in the end."""
        before = weights_of(model)
        self._cuda.synchronize(self._device)
        began_s = time.perf_counter()
        model.to(self._device)
        self._cuda.synchronize(self._device)
        try:
            yield Moved(time.perf_counter() - began_s)
        finally:
            for name, value in (*model.named_parameters(), *model.named_buffers()):
                value.data = before[name]

    def free_bytes(self) -> int:
        """Return how much of its memory nobody uses."""
        return self._nvml.memory(self._gpu.uuid).free_bytes

    def used_bytes(self) -> int:
        """Return how much of its memory is in use."""
        memory = self._nvml.memory(self._gpu.uuid)
        return memory.total_bytes - memory.free_bytes

    def tidy(self) -> None:
        """Let go of what torch keeps for later."""
        self._cuda.synchronize(self._device)
        self._cuda.empty_cache()
        # Pinned memory; before torch 2.12 there was no public way.
        accelerator, internals = getattr(torch, "accelerator", None), importlib.import_module("torch._C")
        empty = getattr(accelerator, "empty_host_cache", None) or getattr(internals, "_host_emptyCache", None)
        if empty is not None:
            empty()


class _CudaPlain:
    def __init__(self, device: torch.device, size: int) -> None:
        self.source = torch.ones(size, dtype=torch.uint8, pin_memory=True)
        self._target = torch.empty(size, dtype=torch.uint8, device=device)
        self._cuda: Any = torch.cuda  # as above
        self._device = device

    def copy(self, size: int) -> float:
        self._cuda.synchronize(self._device)
        began_s = time.perf_counter()
        self._target[:size].copy_(self.source[:size], non_blocking=True)
        event = self._cuda.Event(blocking=True)
        event.record(self._cuda.current_stream(self._device))
        event.synchronize()
        return time.perf_counter() - began_s
