"""Teachers that take turns on one device, through the runtime: each rollout is scored by the teacher of its domain.

Rollouts end at random times (a Poisson process), and their domains are drawn: the k-th teacher is wanted 1/k times as
often as the first. Teachers are exclusive, so that nothing is restored behind another one's computing: what a restore
takes is all overhead, and no execution is longer because of others.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

import arl_tangram as tangram
from arl_tangram.bench.gpu.bed import SEED
from arl_tangram.bench.gpu.card import Card
from arl_tangram.bench.gpu.figures import Mixed
from arl_tangram.bench.gpu.plan import Mix, Plan
from arl_tangram.bench.gpu.teacher import AT_ONCE, load, some_tokens
from arl_tangram.model.events import ActionEnded, Event, ServiceRestored
from arl_tangram.trace.sink import MemorySink

Score = Callable[[torch.Tensor], Coroutine[Any, Any, torch.Tensor]]

_LAST_S = 20.0  # for what has been submitted to end, and for closing


@dataclass(frozen=True, slots=True)
class Arrival:
    """One rollout that is to be scored.

    Attributes:
        after_s: seconds after the one before, in units of the mean time between two.
        teacher: the number of the teacher.
    """

    after_s: float
    teacher: int


def drawn(mix: Mix) -> list[Arrival]:
    """Draw when rollouts end, and whose they are; the same for the same mix. Pure."""
    draw = random.Random(mix.seed)
    numbers = range(len(mix.sizes))
    weights = [1 / (number + 1) for number in numbers]
    chosen = draw.choices(numbers, weights, k=mix.actions)
    return [Arrival(draw.expovariate(1.0), teacher) for teacher in chosen]


async def measure(card: Card, plan: Plan, left_s: float) -> Mixed:
    """Host all teachers, find out how many sequences take as long as they should, and score all rollouts.

    Args:
        card: the device.
        plan: what is to be done.
        left_s: after so many seconds no more rollouts arrive.
    """
    began_s = time.perf_counter()
    mix = plan.mix
    pool = await asyncio.to_thread(card.pool, mix.arena)
    services = [
        tangram.TorchService(f"teacher-{number}", load=partial(load, size, SEED + number, card.dtype), exclusive=True)
        for number, size in enumerate(mix.sizes)
    ]
    scores = [_score(service.name) for service in services]
    sink = MemorySink()
    gpus = tangram.GpuPool(*services, devices=pool.devices, reserve=pool.reserve)
    async with tangram.Tangram(gpus, trace=sink):
        call_s = await _calls_s(scores, some_tokens(AT_ONCE, plan.length))
        mean_s = float(np.average(call_s, weights=[1 / (number + 1) for number in range(len(call_s))]))
        rows = max(1, round(AT_ONCE * mix.call_s / mean_s))
        tokens = some_tokens(rows, plan.length)
        call_s = await _calls_s(scores, tokens)
        arrivals = drawn(mix)
        mean_s = sum(call_s[one.teacher] for one in arrivals) / len(arrivals)
        began_at_s = asyncio.get_running_loop().time()
        until_s = began_s + left_s - _LAST_S
        results = await _play(arrivals, scores, tokens, mean_s / mix.load, until_s)
        elapsed_s = asyncio.get_running_loop().time() - began_at_s
    events = [event for event in sink.events if event.at_s >= began_at_s]
    return _mixed(mix, events, results, arena=pool.arena, shape=(rows, plan.length), elapsed_s=elapsed_s)


def _score(service: str) -> Score:
    @tangram.action(service=service)
    async def score(tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = await tangram.current_service().call(tokens)
        return result

    return score


async def _calls_s(scores: Sequence[Score], tokens: torch.Tensor) -> list[float]:
    """Return how long each teacher takes once it is resident."""
    took_s: list[float] = []
    for score in scores:
        _ = await score(tokens)
        began_s = time.perf_counter()
        _ = await score(tokens)
        took_s.append(time.perf_counter() - began_s)
    return took_s


async def _play(
    arrivals: Sequence[Arrival], scores: Sequence[Score], tokens: torch.Tensor, every_s: float, until_s: float
) -> list[tuple[int, torch.Tensor]]:
    """Submit each rollout when it arrives; return the teacher and the result of each."""
    clock = time.perf_counter
    tasks: list[tuple[int, asyncio.Task[torch.Tensor]]] = []
    async with asyncio.TaskGroup() as group:
        due_s = clock()
        for one in arrivals:
            due_s += one.after_s * every_s
            await asyncio.sleep(max(0.0, due_s - clock()))
            if clock() > until_s:
                break
            tasks.append((one.teacher, group.create_task(scores[one.teacher](tokens))))
    return [(teacher, task.result()) for teacher, task in tasks]


def _mixed(
    mix: Mix,
    events: Sequence[Event],
    results: Sequence[tuple[int, torch.Tensor]],
    *,
    arena: int,
    shape: tuple[int, int],
    elapsed_s: float,
) -> Mixed:
    ended = [event.action for event in events if isinstance(event, ActionEnded)]
    restored = [event.took_s for event in events if isinstance(event, ServiceRestored)]
    firsts: dict[int, torch.Tensor] = {}
    wrong = sum(not torch.equal(result, firsts.setdefault(teacher, result)) for teacher, result in results)
    return Mixed(
        teachers=len(mix.sizes),
        teachers_bytes=sum(mix.sizes),
        arena=arena,
        rows=shape[0],
        length=shape[1],
        actions=len(ended),
        wrong=wrong,
        execution_s=sum(action.execution_s for action in ended),
        overhead_s=sum(action.overhead_s for action in ended),
        queueing_s=sum(action.queueing_s for action in ended),
        act_p99_s=float(np.quantile([action.act_s for action in ended], 0.99)) if ended else None,
        restores=len(restored),
        restore_s=sum(restored),
        elapsed_s=elapsed_s,
    )
