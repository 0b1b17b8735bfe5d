"""An agent of a node without Ray: the way to it, an owner that says what a test says, and both with remote cores."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from arl_tangram.integrations.ray.client.cores import RemoteCores
from arl_tangram.integrations.ray.lines import LineError
from arl_tangram.integrations.ray.node.agent import NodeAgent
from arl_tangram.integrations.ray.sessions.greeting import check_versions, resume_of, welcome_answer
from arl_tangram.integrations.ray.sessions.numbering import Receiver, Sender
from arl_tangram.integrations.ray.wire import (
    AgentCall,
    AgentReply,
    CallId,
    ClientFrame,
    Command,
    Event,
    NodeOffer,
    OwnerFrame,
    Resume,
    Shape,
    Welcome,
)
from arl_tangram.managers.manager import CpuPool, GpuPool
from stopped import part


def part_of(node: str) -> str:
    """Return which part of a test an agent is, which can be stopped."""
    return f"agent of {node!r}"


class AgentHost:
    """An `AgentLine` to an agent on the same loop: all is copied by pickle, and goes on whatever becomes of who asks.

    Attributes:
        agent: who answers; None while there is none.
        is_cut: whether nothing arrives, and nothing is answered.
        breaks: returns whether a request is lost with its connection, while the agent lives on.
        delay_s: returns how long a request takes to arrive.
        answer_delay_s: returns how long an answer takes to come back.
        calls: what was asked, in the order of arrival.
        on_arrival: called with what is asked when it arrives.
        on_answer: called with what was asked when the agent has answered.
    """

    def __init__(self, agent: NodeAgent | None) -> None:
        self.agent = agent
        self.is_cut = False
        self.breaks: Callable[[str], bool] = lambda _what: False
        self.delay_s: Callable[[str], float] = lambda _what: 0.0
        self.answer_delay_s: Callable[[str], float] = lambda _what: 0.0
        self.calls: list[str] = []
        self.on_arrival: Callable[[str], object] = lambda _what: None
        self.on_answer: Callable[[str], object] = lambda _what: None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lost: set[asyncio.Future[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def call(self, request: AgentCall) -> AgentReply:
        lost: asyncio.Future[None] = self._loop.create_future()
        self._lost.add(lost)
        task = self._begin(self._serve(request))
        try:
            await asyncio.wait([task, lost], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._lost.discard(lost)
        if not task.done():
            raise LineError("the way is gone")
        return task.result()

    def lose_calls(self) -> None:
        """Lose the answers of all calls that go on."""
        for lost in self._lost:
            lost.set_result(None)

    def cancel(self, id: CallId) -> None:  # noqa: A002 - what it is
        self._begin(self._cancel(id))

    async def aclose(self) -> None:
        """End what is on its way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, request: AgentCall) -> AgentReply:
        if delay_s := self.delay_s(request.what):
            await asyncio.sleep(delay_s)
        if self.is_cut:
            await asyncio.get_running_loop().create_future()
        if self.agent is None:
            raise LineError("its agent has died", gone=True)
        if self.breaks(request.what):
            raise LineError("the connection was reset")
        self.calls.append(request.what)
        self.on_arrival(request.what)
        with part(part_of(self.agent.node)):
            served = self._loop.create_task(self.agent.call(pickle.loads(pickle.dumps(request))))
        try:
            reply = await served
        finally:
            served.cancel()
        self.on_answer(request.what)
        if delay_s := self.answer_delay_s(request.what):
            await asyncio.sleep(delay_s)
        if self.is_cut:
            await asyncio.get_running_loop().create_future()
        return pickle.loads(pickle.dumps(reply))

    async def _cancel(self, id: CallId) -> None:  # noqa: A002 - what it is
        if delay_s := self.delay_s("cancel"):
            await asyncio.sleep(delay_s)
        if self.agent is not None and not self.is_cut:
            with part(part_of(self.agent.node)):
                cancelling = self._loop.create_task(self.agent.cancel(id))
            await cancelling

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        with part("the way"):
            task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class ScriptedOwner:
    """The owner as an agent sees it: takes down what it is told, and tells what a test says; an `OwnerLine`.

    Attributes:
        told: the commands so far.
        resumed: what was held, of each greeting that resumes.
        is_cut: whether nothing is answered.
        ended: why the sessions so far are over, if they are.
    """

    def __init__(self, lease_s: float = 30.0) -> None:
        self.lease_s = lease_s
        self.told: list[Command] = []
        self.resumed: list[Resume] = []
        self.is_cut = False
        self.sessions = 0
        self.epoch = 1
        self.for_good = False
        self._changed = asyncio.Event()
        self._sender: Sender[Event] = Sender()
        self._receiver: Receiver[Command] = Receiver()

    async def hello(self, greeting: Mapping[str, Any]) -> Mapping[str, Any]:
        self._check()
        check_versions(greeting)
        if (resume := resume_of(greeting)) is not None:
            self.resumed.append(resume)
        self.sessions += 1
        self._sender, self._receiver = Sender(), Receiver()
        return welcome_answer(Welcome(str(self.epoch), f"node-{self.sessions}", self.lease_s, 5.0, None))

    async def exchange(self, frame: ClientFrame) -> OwnerFrame:
        self._check()
        frame = pickle.loads(pickle.dumps(frame))
        if frame.epoch != str(self.epoch):
            return OwnerFrame(str(self.epoch), 1, (), 0)
        self._sender.acked(frame.ack)
        self.told += self._receiver.take(frame.first, frame.commands)
        self._changed.set()
        if frame.wait_s and not self._sender.unacked()[1]:
            await self._wait(frame.wait_s)
        self._check()
        first, events = self._sender.unacked()
        return pickle.loads(pickle.dumps(OwnerFrame(str(self.epoch), first, events, self._receiver.upto)))

    async def ask(self, session: str, what: str, arguments: Mapping[str, Any]) -> AgentReply:
        raise LineError("an agent asks nothing")

    def ask_now(self, session: str, what: str, arguments: Mapping[str, Any], limit_s: float) -> AgentReply:
        raise LineError("an agent asks nothing")

    def tell(self, *events: Event) -> None:
        """Tell the agent something."""
        for event in events:
            self._sender.put(event)
        self._changed.set()

    def restart(self) -> None:
        """Be another owner from now on."""
        self.epoch += 1
        self._changed.set()

    async def until(self, kind: type[Any], times: int = 1) -> Any:
        """Return the last command of a kind, once there were so many."""
        async with asyncio.timeout(30):
            while len(found := [command for command in self.told if isinstance(command, kind)]) < times:
                self._changed.clear()
                await self._changed.wait()
        return found[-1]

    async def _wait(self, limit_s: float) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(limit_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _check(self) -> None:
        if self.for_good:
            raise LineError("there is no owner any more", gone=True, for_good=True)
        if self.is_cut:
            raise LineError("nothing gets through")


def shape_of(*offers: NodeOffer) -> Shape:
    """Return what a client is told of some nodes."""
    dimensions = tuple(dimension for offer in offers for dimension in offer.dimensions)
    return Shape(1, dimensions, offers)


@asynccontextmanager
async def node(
    *pools: CpuPool | GpuPool, owner: ScriptedOwner | None = None, name: str = ""
) -> AsyncIterator[tuple[NodeAgent, AgentHost, Shape]]:
    """Run an agent, with the way to it, and what clients are told of it."""
    agent = NodeAgent(name, pools, owner or ScriptedOwner(), node_id="here")
    host = AgentHost(agent)
    try:
        offer = pickle.loads(pickle.dumps(await agent.start()))
        yield agent, host, shape_of(offer)
    finally:
        await agent.aclose()
        await host.aclose()


@asynccontextmanager
async def remote_cores(
    pool: CpuPool, *, delay_s: Callable[[str], float] | None = None, owner: ScriptedOwner | None = None
) -> AsyncIterator[RemoteCores]:
    """Run an agent with a pool, and return its cores as a client has them."""
    async with node(pool, owner=owner) as (_, host, shape):
        if delay_s is not None:
            host.delay_s = delay_s
        cores = RemoteCores("client-1", shape, 0, lambda _node: host)
        try:
            yield cores
        finally:
            host.delay_s = lambda _what: 0.0
            await cores.aclose()
