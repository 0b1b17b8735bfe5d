"""Commands on nodes, whoever is cut off or dies: cores are never had twice there, and nothing goes on unseen."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import arl_tangram as tangram
from arl_tangram import InfrastructureError, current_sandbox
from arl_tangram.context import runtime_var
from arl_tangram.integrations.ray.client.shared import Shared
from lossy_lines import random_ways, straight
from shared_world import SharedWorld
from unit.ray.slow_pool import SlowManager, SlowPool
from virtual_time import run_virtually

CORES, LEASE_S, GRACE_S = {"a": 3, "b": 2}, 12.0, 10.0


class KeepingPool(SlowPool):
    """Keeps all managers, those of agents that died, too."""

    def __init__(self, cores: int) -> None:
        super().__init__(cores=cores, memory_gib=16)
        self.all: list[SlowManager] = []

    def manager(self) -> SlowManager:
        self.all.append(super().manager())
        return self.all[-1]


@tangram.action(cpu=tangram.Elastic(1, 2))
async def work(for_s: float, leaves: bool) -> str:
    box = current_sandbox()
    if leaves:
        await box.exec(["leave"])
    await asyncio.gather(*(box.exec(["sleep", f"{for_s}"]) for _ in range(2)))
    return "done"


@tangram.action(cpu=1, timeout=2)
async def hasty(for_s: float, leaves: bool) -> str:
    return await work.body(for_s, leaves)


@tangram.action(cpu=2)
async def nested(for_s: float, leaves: bool) -> str:
    await current_sandbox().exec(["true"])
    return await work(for_s, leaves)


ACTIONS = (work, hasty, nested)


async def rollout(tg: Shared, kind: int, for_s: float, *, leaves: bool, memory_gib: float = 1) -> str:
    runtime_var.set(tg)  # as in a process of its own, where there is no other one
    async with tg.trajectory(memory_gib=memory_gib):
        await tg.run(ACTIONS[kind], for_s, leaves)
        return str(await tg.run(ACTIONS[kind], for_s, leaves))


KINDS = ("cut client", "cut client", "cut agent", "cut agent", "kill agent", "call", "cancel", "wait")
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.sampled_from([30.0, 13.0, 5.0, 0.5])),
    min_size=2,
    max_size=12,
)
BUSY = [("call", number, 20.0) for number in (0, 3, 5)]
"""What goes on from the beginning, so that there is something to be cut off."""


class Play:
    """One run of steps."""

    def __init__(self, world: SharedWorld, clients: list[Shared], chance: random.Random) -> None:
        self.world = world
        self.clients = clients
        self.chance = chance
        self.calls: list[asyncio.Task[str]] = []
        self.cancelled: set[asyncio.Task[str]] = set()
        self.mending: list[asyncio.Task[None]] = []
        self.dead: set[str] = set()

    async def step(self, what: str, which: int, how_s: float) -> None:
        name = "ab"[which % 2]
        match what:
            case "call":
                client = self.chance.choice(self.clients)
                called = rollout(client, which % 3, how_s, leaves=which > 2, memory_gib=which % 2)
                self.calls.append(asyncio.ensure_future(called))
            case "cancel" if self.calls:
                task = self.calls[which % len(self.calls)]
                task.cancel()
                self.cancelled.add(task)
            case "wait":
                await asyncio.sleep(how_s)
            case "cut client":
                self.cut(self.world.line_of(self.clients[which % 2]), how_s)
            case "cut agent":
                self.cut(self.world.lines[name], how_s)
            case "kill agent" if name not in self.dead:
                self.dead.add(name)
                self.mending.append(asyncio.ensure_future(self.killed(name, how_s)))
            case _:
                pass

    def cut(self, line: Any, how_s: float) -> None:
        if line.is_cut:
            return
        line.is_cut = True

        async def mend() -> None:
            await asyncio.sleep(how_s)
            line.is_cut = False

        self.mending.append(asyncio.ensure_future(mend()))

    async def killed(self, name: str, how_s: float) -> None:
        """Its agent dies, without a word to the owner, and what it had with it; another comes later."""
        host = self.world.agents[name]
        agent, host.agent = host.agent, None
        assert agent is not None
        self.world.lines[name].is_cut = True
        host.lose_calls()
        await agent.aclose()
        await asyncio.sleep(how_s)
        await self.world.start_agent(name)
        self.dead.discard(name)

    def check(self) -> None:
        for task in self.calls:
            if task.cancelled():
                assert task in self.cancelled
            elif (error := task.exception()) is None:
                assert task.result() == "done"
            else:
                assert isinstance(error, (InfrastructureError, tangram.RunTimeout)), repr(error)


async def play(steps: list[tuple[str, int, float]], seed: int) -> None:
    pools = {name: KeepingPool(cores) for name, cores in CORES.items()}
    chance = random.Random(seed)
    async with SharedWorld(nodes={name: [pool] for name, pool in pools.items()}, lease_s=LEASE_S) as world:
        clients = [await world.client(f"client {n}").start() for n in range(2)]
        for host in world.agents.values():
            host.delay_s = host.answer_delay_s = lambda _what: chance.choice((0.0, 0.0, chance.uniform(0, 0.3)))
        world.way = random_ways(chance, loss=0.1)
        run = Play(world, clients, chance)
        for step in [*BUSY, ("wait", 0, 2.0), *steps]:
            await run.step(*step)
        await asyncio.gather(*run.mending)
        world.way = straight
        for line in world.lines.values():
            line.way = straight
        _, left = await asyncio.wait(run.calls, timeout=2000) if run.calls else (set(), set())
        assert not left, f"some never end: {left}"
        run.check()
        await asyncio.sleep(2 * (LEASE_S + GRACE_S))
        await world.check_idle()
        for name, pool in pools.items():
            for manager in pool.all:
                assert manager.running == []
                assert not manager.sandboxes
                assert manager.milli_free == 1000 * CORES[name], name
        assert await rollout(clients[0], 0, 1.0, leaves=True) == "done"


@settings(max_examples=80)
@given(steps=STEPS, seed=st.integers(0, 1 << 32))
def test_commands_end_and_cores_return_whoever_is_cut_off_or_dies(
    steps: list[tuple[str, int, float]], seed: int
) -> None:
    run_virtually(play(steps, seed))
