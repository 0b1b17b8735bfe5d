"""A whole runtime with a pool of GPUs under chance: cancels, failures, deaths, deadlines, calls in calls, devices lent.

Virtual time; the scheduler and the manager are the real ones. Whatever happens, each call has its answer or one of the
errors that are right, a service answers as itself, and in the end nothing is used.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import arl_tangram as tangram
from arl_tangram import Tangram
from arl_tangram.errors import (
    NestedActionError,
    QueueTimeout,
    RestoreError,
    RunTimeout,
    ServiceLostError,
    UsageError,
)
from arl_tangram.testing import FakeGpuPool, FakePool, FakeService
from cases.settled import assert_settled
from virtual_time import run_virtually

Call = Callable[[], Awaitable[Any]]
ALLOWED = (NestedActionError, QueueTimeout, RestoreError, RunTimeout, ServiceLostError, UsageError)


class Chance:
    """One run, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = draw = random.Random(seed)
        self.failing = draw.choice([0.0, 0.0, 0.1, 0.5])
        self.backends: list[Any] = []
        self.names = [f"s{number}" for number in range(draw.randint(1, 5))]
        run = self

        class Watched(FakeService):
            def backend(self) -> Any:
                run.backends.append(super().backend())
                return run.backends[-1]

        self.services = [
            Watched(
                name,
                gib=draw.choice([10, 20, 40, 80]),
                restore_s=draw.choice([0.01, 0.5, 3]),
                dops=draw.choice([(1,), (1,), (1, 2), (2,)]),
                max_concurrency=draw.randint(1, 4),
                exclusive=draw.random() < 0.3,
                on_call=lambda name=name: name,
                on_restore=self.maybe_fail,
            )
            for name in self.names
        ]
        self.gpus = draw.choice([2, 2, 4])
        self.policy = draw.choice(["loss", "loss", "lru", "gdsf"])
        self.outcomes: list[object] = []

    def maybe_fail(self, _dop: int) -> None:
        if self.random.random() < self.failing:
            raise RestoreError("by chance")

    def action(self, depth: int = 0) -> Call:
        """Return a call of a new action."""
        draw = self.random
        name = draw.choice(self.names)
        body_s = draw.choice([0.0, 0.1, 1, 5])
        calls = draw.randint(1, 2) if depth < 2 and draw.random() < 0.15 else 0
        inner = [self.action(depth + 1) for _ in range(calls)]
        timeout, queue_timeout = draw.choice([None, None, 2]), draw.choice([None, None, None, 20])

        @tangram.action(service=name, cpu=draw.choice([0, 0, 1]), timeout=timeout, queue_timeout=queue_timeout)
        async def use() -> str:
            await asyncio.sleep(body_s)
            for call in inner:
                await call()
            answer = await tangram.current_service().call()
            assert answer == name == tangram.current_service().name
            return name

        return use.with_options(priority=draw.choice([0, 0, 0, -1, 1]))

    async def rollout(self, number: int) -> None:
        draw = self.random
        await asyncio.sleep(draw.random() * 20)
        task = asyncio.ensure_future(self.action()())
        if draw.random() < 0.2:
            await asyncio.sleep(draw.choice([0.0, 0.005, 0.3, 2, 8]))
            task.cancel()
        self.outcomes += await asyncio.gather(task, return_exceptions=True)

    async def lend(self, tg: Tangram) -> None:
        for _ in range(self.random.randint(0, 2)):
            await asyncio.sleep(self.random.random() * 5)
            async with tg.lend(["lent:0", "lent:1"][: self.random.randint(1, 2)]):
                await asyncio.sleep(self.random.random() * 10)

    async def kill(self) -> None:
        """Let resident services die, as servers do that crash."""
        for _ in range(self.random.choice([0, 0, 3])):
            await asyncio.sleep(self.random.random() * 10)
            backend = self.random.choice(self.backends)
            for dop in backend.resident[:1]:
                backend.die(dop, ServiceLostError("by chance"))

    async def run(self) -> None:
        pool = FakeGpuPool(*self.services, gpus=self.gpus, gib=80, policy=self.policy)  # type: ignore[arg-type]
        async with Tangram(FakePool(cores=4), pool) as tg:
            rollouts = [self.rollout(number) for number in range(60)]
            await asyncio.wait_for(asyncio.gather(*rollouts, self.lend(tg), self.kill()), timeout=20_000)
            await asyncio.sleep(60)  # restores that nobody waits for any more
            assert_settled(tg)
        for outcome in self.outcomes:
            expected = isinstance(outcome, (str, asyncio.CancelledError, *ALLOWED))
            assert expected, f"{outcome!r} is no answer and no error that may happen here"
        assert len(self.outcomes) == 60


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 32))
def test_whatever_happens_each_call_ends_and_nothing_is_left(seed: int) -> None:
    run_virtually(Chance(seed).run())
