"""A torch service on several devices: copies that share a batch, and modules that are spread."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn

from arl_tangram.errors import (
    UsageError,
)
from arl_tangram.services.torch_service import TorchService
from service.hosted_modules import hosted
from service.odd_modules import Odd


async def test_a_batch_is_split_over_copies_that_share_the_bytes_on_the_host() -> None:
    module = Odd().requires_grad_(False).eval()
    tokens = torch.arange(28).view(7, 4)
    answer = module(tokens)
    async with hosted(TorchService("odd", load=lambda: module, dops=(1, 2, 4)), devices=4) as odd:
        assert odd.facts.dops == (1, 2, 4)
        assert len(odd.backend._buffers) == 1
        for dop in (4, 2, 1):
            await odd.restore(dop)
        for dop in (1, 2, 4):
            assert torch.equal(await odd.call(tokens, dop=dop), answer)
        await odd.evict(2)
        assert torch.equal(await odd.call(tokens, dop=4), answer)
        assert torch.equal(await odd.call(tokens[:1], dop=4), answer[:1])
        for dop in (1, 4):
            await odd.evict(dop)


async def test_parts_of_a_batch_compute_at_the_same_time() -> None:
    met = threading.Barrier(2)

    class Meeting(nn.Linear):
        def __deepcopy__(self, memo: dict[int, Any]) -> Meeting:
            twin = Meeting(1, 1)
            twin.weight.data, twin.bias.data = self.weight.data, self.bias.data
            return twin

        def forward(self, input: list[int]) -> list[int]:  # type: ignore[override]  # noqa: A002
            met.wait(10)
            return input

    async with hosted(TorchService("meeting", load=lambda: Meeting(1, 1), dops=[2]), devices=2) as service:
        await service.restore(2)
        assert await service.call([1, 2, 3], dop=2) == [1, 2, 3]
        await service.evict(2)


async def test_a_batch_that_cannot_be_split_or_joined_is_refused() -> None:
    class Sum(nn.Linear):
        def forward(self, input: torch.Tensor) -> float:  # type: ignore[override]  # noqa: A002
            return float(input.sum())

    async with hosted(TorchService("sum", load=lambda: Sum(1, 1), dops=(2,)), devices=2) as service:
        await service.restore(2)
        with pytest.raises(UsageError, match="a float for each part of a batch cannot be joined"):
            await service.call(torch.zeros(4), dop=2)
        with pytest.raises(UsageError, match="different sizes here: 2, 3"):
            await service.call(torch.zeros(2), other=torch.zeros(3), dop=2)
        await service.evict(2)


async def test_load_that_takes_a_dop_may_return_another_module_for_each() -> None:
    def load(dop: int) -> nn.Module:
        layer = nn.Linear(1, dop, bias=False)
        nn.init.ones_(layer.weight)
        return layer

    async with hosted(TorchService("each", load=load, dops=(1, 2)), devices=2) as service:
        for dop in (1, 2):
            await service.restore(dop)
        assert (await service.call(torch.ones(3, 1), dop=1)).shape == (3, 1)
        assert (await service.call(torch.ones(3, 1), dop=2)).shape == (3, 2)
        for dop in (1, 2):
            await service.evict(dop)


class Staged(nn.Module):
    """Two stages, each for a device of its own, and something that is in neither."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x + self.shift)).to(self.second.weight.device))


async def test_a_module_can_be_spread_over_its_devices() -> None:
    staged = Staged().requires_grad_(False)
    batch = torch.ones(3, 4)
    answer = staged(batch)

    def load(dop: int) -> Any:
        assert dop == 2
        return staged, [staged.first, staged.second]

    async with hosted(TorchService("staged", load=load, dops=(2,)), devices=2) as service:
        await service.restore(2)
        assert torch.equal(await service.call(batch, dop=2), answer)
        base = [place.device.view(place.region).data_ptr() for place in service.places[2] if place.region is not None]
        assert 0 <= staged.second.weight.data_ptr() - base[1] < 4096
        assert {0 <= each.data_ptr() - base[0] < 4096 for each in (staged.first.weight, staged.shift)} == {True}
        await service.evict(2)
