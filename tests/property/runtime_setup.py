"""How a runtime under test is made, and the pool and trajectories that it is given."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arl_tangram import Tangram, policies
from arl_tangram.scheduling.order import Order
from arl_tangram.scheduling.policies import Policy
from counting_pools import CountingManager, CountingPool, FakeSandbox
from property.runtime_calls import Call
from property.runtime_kinds import quotas

if TYPE_CHECKING:
    from property.runtime_world import World

POLICIES: dict[str, Policy] = {
    "elastic": policies.elastic(),
    "paper": policies.paper(best_prefix=True),
    "strict": policies.paper(),
    "fixed1": policies.fixed(1),
    "fixed2": policies.fixed(2),
    "reserved1": policies.reserved(1),
}
PAUSES_S = (0.0, 0.125, 0.5, 1.0, 0.25, 2.0)

calling_var: ContextVar[Call] = ContextVar("calling")
"""The call that is being made."""


@dataclass(frozen=True)
class Setup:
    """How a runtime is made."""

    cores: int = 4
    memory_gib: float = 8
    threads: int = 2
    policy: str = "elastic"
    order: Order = "fcfs"
    grace_s: float = 1.0
    clean_s: float = 0.0
    create_s: float = 0.0
    close_s: float = 0.0

    def runtime(self, pool: WatchedPool) -> Tangram:
        """Return a runtime."""
        return Tangram(
            pool,
            *quotas(),
            policy=POLICIES[self.policy],
            order=self.order,
            kill_grace_s=self.grace_s,
            max_threads=self.threads,
        )

    def pool(self) -> WatchedPool:
        """Return the pool for it."""
        return WatchedPool(
            self.cores, self.memory_gib, create_s=self.create_s, close_s=self.close_s, clean_s=self.clean_s
        )


class WatchedPool(CountingPool):
    """A counting pool that says what the sandboxes hold that it creates right now.

    Attributes:
        on_create: called when one is to be created.
    """

    creating: list[int]
    on_create: Callable[[], None]

    def manager(self) -> WatchedManager:
        self.creating = []
        self.made = WatchedManager(self)
        return self.made


class WatchedManager(CountingManager):
    """Its manager."""

    pool: WatchedPool

    async def create_sandbox(self, *, image: str | None, memory_bytes: int, node: int = 0) -> FakeSandbox:
        self.pool.on_create()
        self.pool.creating.append(memory_bytes)
        try:
            return await super().create_sandbox(image=image, memory_bytes=memory_bytes, node=node)
        finally:
            self.pool.creating.remove(memory_bytes)


class Chance(random.Random):
    """The chance of which the length of pauses between two attempts is made; the account is told of each."""

    def __init__(self, tell: Callable[[Call, float], None]) -> None:
        super().__init__(0)
        self._tell = tell
        self._drawn = 0

    def uniform(self, a: float, b: float) -> float:
        self._drawn += 1
        pause_s = min(PAUSES_S[self._drawn % len(PAUSES_S)], b)
        assert pause_s >= a
        self._tell(calling_var.get(), pause_s)
        return pause_s


@dataclass(eq=False)
class Rollout:
    """A trajectory, from the test's side.

    Attributes:
        state: "entering", "open", "leaving" or "gone".
        turns: those of its calls that want the turn in its sandbox and have not ended, in order; without those that
            may be tried again, and those that bodies have called.
        calls: those that were made in it and may still hold something.
        was_infeasible: whether it was ever too large while it waited.
    """

    world: World
    number: int
    memory_gib: float
    group: str | None
    joined_at_s: float
    task: asyncio.Task[None] = field(init=False)
    state: str = "entering"
    context: Context | None = None
    leave: asyncio.Future[None] | None = None
    cancelled: bool = False
    group_cancelled: bool = False
    was_infeasible: bool = False
    turns: deque[Call] = field(default_factory=deque)
    calls: dict[int, Call] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether actions can be called in it."""
        return self.state == "open" and not self.group_cancelled

    @property
    def is_given_up(self) -> bool:
        """Whether it was told to end."""
        return self.cancelled or self.group_cancelled

    async def run(self) -> None:
        """Open it, and close it when that is wanted."""
        async with self.world.tg.trajectory(memory_gib=self.memory_gib, group=self.group):
            self.state, self.context = "open", copy_context()
            self.leave = asyncio.get_running_loop().create_future()
            await self.leave
