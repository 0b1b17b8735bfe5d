"""A module on the device that is measured, and the same one that was never hosted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import torch

from arl_tangram.bench.gpu.card import Card
from arl_tangram.bench.gpu.plan import MIB
from arl_tangram.bench.gpu.teacher import Teacher, load, weights_of
from arl_tangram.bench.swap.hosted import HostedModule, hosted_module
from arl_tangram.managers.gpu.devices.arena import ALIGNMENT
from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.services.torch_service import TorchService

SEED = 6


@dataclass(frozen=True, slots=True)
class Bed:
    """What takes part.

    Attributes:
        hosted: the module as a service, with room for two of it, so that its address can change.
        model: the module itself.
        twin: one with the same weights, on the host.
    """

    hosted: HostedModule
    model: Teacher
    twin: Teacher

    @property
    def room(self) -> int:
        """How many bytes further than the first one its address can be."""
        return self.hosted.device.capacity_bytes - self.hosted.size


@asynccontextmanager
async def made_bed(card: Card, size: int) -> AsyncGenerator[Bed]:
    """Load a module of about so many bytes twice, and host it."""
    model, twin = [await asyncio.to_thread(load, size, SEED, card.dtype) for _ in range(2)]
    device = await card.open(2 * bytes_of(twin))
    try:
        async with on_device(card, device, "model", model) as hosted:
            yield Bed(hosted, model, twin)
    finally:
        await device.aclose()
        await asyncio.to_thread(card.tidy)


@asynccontextmanager
async def on_device(card: Card, device: Device, name: str, model: Teacher) -> AsyncGenerator[HostedModule]:
    """Host a module that was loaded."""
    service = TorchService(name, load=lambda: model)
    async with hosted_module(service, device, 2 * bytes_of(model), pinner=card.pinner) as hosted:
        yield hosted


def bytes_of(model: Teacher) -> int:
    """Return what a module needs at most, packed: each of its tensors begins at a multiple of `ALIGNMENT`."""
    sizes = [value.numel() * value.element_size() for value in weights_of(model).values()]
    return sum(sizes) + ALIGNMENT * len(sizes) + MIB


async def wrong_weights(card: Card, bed: Bed) -> int:
    """Return how many weights of the hosted module, which is resident, are not those of its twin, bit by bit."""
    return await asyncio.to_thread(partial(_wrong_weights, card, bed))


def _wrong_weights(card: Card, bed: Bed) -> int:
    with card.moved(bed.twin):
        return count_wrong(bed.model, bed.twin)


def count_wrong(model: Teacher, twin: Teacher) -> int:
    """Return how many weights of two modules on the same device differ in some bit."""
    own, others = weights_of(model), weights_of(twin)
    same = [torch.equal(own[name].view(torch.uint8), other.view(torch.uint8)) for name, other in others.items()]
    return len(same) - sum(same) + len(own.keys() ^ others.keys())
