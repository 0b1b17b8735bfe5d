"""Torch services under a runtime: more of them than fit, used by actions that know nothing of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import arl_tangram as tangram
from service.odd_modules import Odd, looks

torch.set_num_threads(1)
BATCH = torch.linspace(-1, 1, 256).expand(3, -1).clone()


class Scaled(nn.Module):
    """Half a MiB, and a small part with all that is hard to move."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.matrix = nn.Parameter(torch.randn(256, 512, generator=draw))
        self.odd = Odd(seed)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.matrix) * self.odd(torch.arange(3)).mean()


def user_of(service: str) -> Callable[[], Any]:
    @tangram.action(service=service)
    async def use() -> torch.Tensor:
        result: torch.Tensor = await tangram.current_service().call(BATCH)
        return result

    return use


async def test_six_services_in_memory_for_two_answer_as_if_each_were_alone() -> None:
    modules = [Scaled(seed).requires_grad_(False).eval() for seed in range(6)]
    before = [looks(module) for module in modules]
    answers = [module(BATCH) for module in modules]
    services = [
        tangram.TorchService(f"s{number}", load=lambda module=module: module, max_concurrency=3)
        for number, module in enumerate(modules)
    ]
    actions = [user_of(service.name) for service in services]
    draw = random.Random(0)
    async with tangram.Tangram(tangram.GpuPool(*services, devices=["cpu:0:1.4MiB"])) as tg:

        async def one() -> None:
            number = draw.randrange(6)
            assert torch.equal(await actions[number](), answers[number])

        await asyncio.gather(*(one() for _ in range(200)))
        for number, action in enumerate(actions):
            await action()
            assert looks(modules[number]) == before[number]
        swaps = tg.statistics()
        assert all(dimension.used == 0 for dimension in swaps.dimensions.values())


async def test_a_view_that_an_action_leaks_costs_no_other_service_its_bits() -> None:
    module = Scaled(0)
    leaked: list[torch.Tensor] = []

    @tangram.action(service="leaky")
    async def leak() -> None:
        leaked.append(module.matrix.t())

    other = user_of("other")
    services = (
        tangram.TorchService("leaky", load=lambda: module),
        tangram.TorchService("other", load=lambda: Scaled(1)),
    )
    async with tangram.Tangram(tangram.GpuPool(*services, devices=["cpu:0:0.9MiB"])):
        await leak()
        content = leaked[0].clone()
        waits = asyncio.create_task(other())
        done, _ = await asyncio.wait([waits], timeout=0.2)
        assert not done or isinstance(waits.exception(), tangram.RestoreError)
        assert torch.equal(leaked[0], content)
        leaked.clear()
        async with asyncio.timeout(60):
            await (other() if done else waits)
            await leak()
    leaked.clear()


async def test_a_service_that_is_larger_than_any_device_is_refused_when_the_runtime_opens() -> None:
    big = tangram.TorchService("big", load=lambda: Scaled(0))
    with pytest.raises(
        tangram.ConfigurationError, match=r"service 'big' with dop 1 needs .*; the most .* on cpu:0, is"
    ):
        async with tangram.Tangram(tangram.GpuPool(big, devices=["cpu:0:0.25MiB"])):
            pass
