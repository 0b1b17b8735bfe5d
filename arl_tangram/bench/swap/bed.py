"""What is measured: a hosted module on a CPU device, the same module by itself, and two arrays of as many bytes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from arl_tangram.bench.swap.hosted import HostedModule, hosted_module
from arl_tangram.bench.swap.model import Model, answered, as_to_does, load, some_tokens
from arl_tangram.managers.gpu.devices.cpu.device import CpuDevice
from arl_tangram.services.torch_service import TorchService

_KEEP_PAGES_S = 3600.0


@dataclass(frozen=True, slots=True)
class Bed:
    """Everything that takes part; for one event loop.

    Attributes:
        hosted: the module as a service.
        device: has room for it twice, so that its address can change.
        model: the same module, for what `.to()` does.
        source: an array of as many bytes.
        target: another one.
        answer: what the module returns.
    """

    hosted: HostedModule
    device: CpuDevice
    model: Model
    source: NDArray[np.uint8]
    target: NDArray[np.uint8]
    answer: torch.Tensor

    async def is_intact(self) -> bool:
        """Tell whether the hosted module, which is resident, answers as it did before it was ever moved."""
        answer = await self.hosted.call(some_tokens())
        return torch.equal(answer, self.answer)

    def copy(self) -> float:
        """Copy as many bytes with numpy, and return the seconds."""
        began_s = time.perf_counter()
        np.copyto(self.target, self.source)
        return time.perf_counter() - began_s

    def to(self) -> float:
        """Do what `.to()` does, and return the seconds."""
        began_s = time.perf_counter()
        as_to_does(self.model)
        return time.perf_counter() - began_s


@asynccontextmanager
async def made_bed(*, quick: bool) -> AsyncGenerator[Bed]:
    """Load and host the module, and fill all pages that are copied to."""
    model = await asyncio.to_thread(partial(load, quick=quick))
    answer = await asyncio.to_thread(answered, model)
    needed = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    declared = TorchService("model", load=partial(load, quick=quick))
    device = CpuDevice("cpu:0", 5 * needed // 2, drop_after_s=_KEEP_PAGES_S)
    try:
        async with hosted_module(declared, device, 2 * needed) as hosted:
            size = hosted.size
            source, target = await asyncio.to_thread(lambda: (np.ones(size, np.uint8), np.zeros(size, np.uint8)))
            yield Bed(hosted, device, model, source, target, answer)
    finally:
        await device.aclose()
