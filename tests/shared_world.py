"""A shared runtime without Ray: an owner, agents of nodes with pools, and clients, on one loop, over lines that copy.

`SharedWorld` may lose, delay, double and reorder what goes to the owner, kill and restart it, cut clients off, and kill
agents.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

from agent_lines import AgentHost, part_of
from arl_tangram import Quota, Tangram
from arl_tangram.integrations.ray.agent import NodeAgent
from arl_tangram.integrations.ray.client import Shared
from arl_tangram.integrations.ray.configuration import describe, fingerprint
from arl_tangram.integrations.ray.decider import Decider
from arl_tangram.integrations.ray.lines import AgentLine, LineError, OwnerLine
from arl_tangram.integrations.ray.owner import Owner, OwnerSettings
from arl_tangram.integrations.ray.wire import AgentReply, NodeOffer
from arl_tangram.managers.manager import CpuPool, GpuPool
from arl_tangram.model.statistics import Statistics
from lossy_lines import OWNER, LossyLine, OwnerHost, Way, straight
from stopped import StoppableLoop, is_stopped, part

HERE = "here"
"""The machine of the only node, which is that of the client."""


class Line(LossyLine):
    """A line on which an owner of the same loop can be looked at, too."""

    def __init__(self, world: SharedWorld, way: Callable[[], Way]) -> None:
        super().__init__(world.host, way)
        self._world = world

    def ask_now(self, session: str, what: str, arguments: Mapping[str, Any], limit_s: float) -> AgentReply:
        if is_stopped(OWNER):
            raise LineError(f"no answer within {limit_s:g} s")
        asked = self._world.owner.ask(session, what, arguments)
        try:
            asked.send(None)
        except StopIteration as answered:
            return answered.value  # type: ignore[no-any-return]
        raise AssertionError(f"{what} is not answered at once")


class Reaching:
    """What a client has reached; a `Reached`."""

    def __init__(self, world: SharedWorld, line: Line, greeting: Mapping[str, Any]) -> None:
        self._world = world
        self.line = line
        self.greeting = greeting
        self.is_closed = False

    @property
    def owner(self) -> OwnerLine:
        return self.line

    def agent(self, offer: NodeOffer) -> AgentLine:
        return self._world.agents[offer.name]

    async def aclose(self) -> None:
        self.is_closed = True


class SharedWorld:
    """An owner, nodes and clients.

    Attributes:
        owner: the one that lives, or has lived last.
        agents: the ways to the agents, by the name of their nodes.
        pools: of each node.
        clients: with the way of each to the owner.
    """

    def __init__(
        self,
        *declared: Any,
        nodes: Mapping[str, Sequence[CpuPool | GpuPool]],
        way: Callable[[], Way] = straight,
        lease_s: float = 30.0,
        **options: Any,
    ) -> None:
        self.setup = Tangram(*declared, **options).setup
        lines = describe(self.setup)
        self.settings = OwnerSettings(self.setup, fingerprint(lines), lines, lease_s)
        self.pools = dict(nodes)
        self.way = way
        self.host = OwnerHost()
        self.agents: dict[str, AgentHost] = {}
        self.lines: dict[str, Line] = {}
        self.clients: list[tuple[Shared, Reaching]] = []
        self._epochs = itertools.count(1)
        self._stack = AsyncExitStack()
        self.owner: Owner

    async def __aenter__(self) -> Self:
        self.start_owner()
        for name in self.pools:
            await self.start_agent(name)
        return self

    async def __aexit__(self, *_: object) -> None:
        for client, _reached in self.clients:
            await client.aclose()
        for host in self.agents.values():
            if host.agent is not None:
                await host.agent.aclose()
        await self.owner.aclose()
        for host in self.agents.values():
            await host.aclose()
        await self.host.aclose()

    def start_owner(self) -> None:
        """Start an owner: the first one, or one in place of one that was killed."""
        number = next(self._epochs)
        with part(OWNER):
            self.owner = Owner(self.settings, epoch=f"e{number}", restarted=number > 1)
        self.host.owner = self.owner

    def kill_owner(self) -> None:
        """Let the owner die, and with it its timers."""
        self.host.kill()
        self.owner._roster.close()
        self.owner._keeper.close()
        if self.owner._recovering is not None:
            self.owner._recovering.cancel()
        if self.owner._decider is not None:
            self.owner._decider.dispatcher.stop()
            self.owner._decider.memory.stop()

    async def start_agent(self, name: str) -> None:
        """Start the agent of a node: the first one, or one in place of one that was killed."""
        self.lines[name] = Line(self, self.way)
        host = self.agents.setdefault(name, AgentHost(None))
        with part(part_of(name)):
            agent = NodeAgent(name, self.pools[name], self.lines[name], node_id=name or HERE)
            starting = asyncio.ensure_future(agent.start())
        await starting
        host.agent = agent

    async def kill_agent(self, name: str) -> bool:
        """Let an agent die, without a word to the owner, and what it had with it; return whether there was one."""
        host = self.agents[name]
        agent, host.agent = host.agent, None
        if agent is None:
            return False
        self.lines[name].is_cut = True
        host.lose_calls()
        await agent.aclose()
        return True

    @asynccontextmanager
    async def stopped(self, name: str) -> AsyncIterator[None]:
        """Let the owner, or the agent of a node, be stopped meanwhile, as by SIGSTOP."""
        loop, which = asyncio.get_running_loop(), OWNER if name == OWNER else part_of(name)
        assert isinstance(loop, StoppableLoop)
        loop.stop_part(which)
        try:
            yield
        finally:
            loop.let_go_on(which)

    def client(self, name: str = "test", *, node_id: str = "", timeout_s: float = 60.0, **greeting: Any) -> Shared:
        """Return another client; it is closed with the world."""
        line = Line(self, self.way)
        about = {"kind": "client", "name": name, "host": "here", "node_id": node_id, **greeting}
        reached = Reaching(self, line, about)

        async def reach() -> Reaching:
            return reached

        shared = Shared(reach, name=name, timeout_s=timeout_s)
        self.clients.append((shared, reached))
        return shared

    def line_of(self, shared: Shared) -> Line:
        """Return the way of a client to the owner."""
        return next(reached.line for client, reached in self.clients if client is shared)

    @property
    def decider(self) -> Decider:
        """The scheduler of the owner."""
        assert self.owner._decider is not None
        return self.owner._decider

    def statistics(self) -> Statistics:
        """What there is now, as the owner sees it."""
        return self.decider.statistics()

    async def check_idle(self) -> None:
        """Fail unless nothing waits, runs or is held, once all that is on its way has arrived."""
        await settle(200)
        state = self.statistics()
        held = {
            name: d.used
            for name, d in state.dimensions.items()
            if d.used and not (name.startswith("quota:") and not name.endswith("/concurrency"))
        }
        assert (state.waiting, state.running, state.trajectories, held) == (0, 0, 0, {}), state


@asynccontextmanager
async def opened(*resources: Any, **options: Any) -> AsyncIterator[Shared]:
    """Open a client of a shared runtime with one node, on this machine, where a test would open a `Tangram`."""
    quotas = [one for one in resources if isinstance(one, Quota)]
    pools = [one for one in resources if not isinstance(one, Quota)]
    world = SharedWorld(*quotas, nodes={"": pools} if pools else {}, **options)
    async with world as shared, shared.client(node_id=HERE) as tg:
        yield tg
        await shared.check_idle()
        assert not tg._workshop.live
        assert not tg._workshop.dispatcher.waiters()
    for pool in resources:
        assert getattr(pool, "is_whole", True), f"not everything came back to {pool}"


async def settle(turns: int = 50) -> None:
    """Let everybody else run for a while, in no time."""
    for _ in range(turns):
        await asyncio.sleep(0)
