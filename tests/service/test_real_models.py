"""Real models as services: an embedding model as reward, a language model as teacher, and their bits after swaps."""

from __future__ import annotations

import asyncio
import random

import pytest
import torch
from judge_models.minilm import load_minilm
from judge_models.smollm import load_smollm

import arl_tangram as tangram
from arl_tangram.managers.gpu.devices.cpu.device import CpuDevice
from arl_tangram.services.torch_service import TorchService
from service.hosted_modules import MIB, hosted
from service.odd_modules import looks

REFERENCE = "The capital of France is Paris."
ANSWERS = [
    "Paris is the capital of France.",
    "France is a country in Europe.",
    "Turtles can hold their breath for hours.",
]
QUESTION, RIGHT, WRONG = "What is the capital of France?", REFERENCE, "Turtle sandwich violin."


async def test_an_embedding_model_gives_the_same_bits_after_200_swaps() -> None:
    model = await asyncio.to_thread(load_minilm)
    model.requires_grad_(False).eval()
    before, vectors = looks(model), model([REFERENCE, *ANSWERS])
    scores = (vectors[1:] @ vectors[0]).tolist()
    assert scores[0] > 0.9
    assert 0.3 < scores[1] < 0.8
    assert scores[2] < 0.2
    device = CpuDevice("cpu:0", 160 * MIB, poison=True)
    async with hosted(TorchService("reward", load=lambda: model), on=[device], capacity=64 * MIB) as reward:
        (size,) = (footprint.resident_bytes for _, footprint in reward.facts.footprints)
        assert 86 * MIB < size < 88 * MIB
        draw = random.Random(0)
        for _ in range(200):
            await reward.restore(gap=draw.randrange(0, 70 * MIB))
            (place,) = reward.places[1]
            assert torch.equal(device.view(place.region), reward.backend._instances[1].sources[0])
            await reward.evict()
        await reward.restore()
        assert looks(model) == before
        assert torch.equal(await reward.call([REFERENCE, *ANSWERS]), vectors)
        await reward.evict()


@pytest.mark.timeout(300)
async def test_a_reward_and_a_teacher_take_turns_in_memory_for_one() -> None:
    @tangram.action(service="reward")
    async def likeness(answer: str) -> float:
        one, other = await tangram.current_service().call([answer, REFERENCE])
        return float(one @ other)

    @tangram.action(service="teacher")
    async def log_probability(answer: str) -> float:
        found: torch.Tensor = await tangram.current_service().call(QUESTION, answer)
        return float(found.mean())

    pool = tangram.GpuPool(
        tangram.TorchService("reward", load=load_minilm),
        tangram.TorchService("teacher", load=load_smollm),
        devices=["cpu:0:540MiB"],
    )
    async with tangram.Tangram(pool):
        rounds = [
            (await likeness(ANSWERS[0]), await log_probability(RIGHT), await log_probability(WRONG)) for _ in range(3)
        ]
    assert len(set(rounds)) == 1, "the same numbers to the last bit, whoever was there in between"
    near, right, wrong = rounds[0]
    assert near > 0.9
    assert right > -1.5
    assert wrong < -8
