"""A shared runtime in one process: calls run here, and who starts when is decided by the owner, elsewhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import Context
from dataclasses import replace

from arl_tangram.closing import Opened
from arl_tangram.deciding import Waiter
from arl_tangram.doorway import Doorway
from arl_tangram.errors import InfeasibleError, NodeLostError, OwnerLostError, TangramError
from arl_tangram.execution import Invocation
from arl_tangram.integrations.ray.client.breakers import RemoteBreakers
from arl_tangram.integrations.ray.client.cores import RemoteCores
from arl_tangram.integrations.ray.client.dispatcher import RemoteDispatcher
from arl_tangram.integrations.ray.client.gpus import RemoteGpus
from arl_tangram.integrations.ray.client.questions import Questions
from arl_tangram.integrations.ray.client.steering import Steered
from arl_tangram.integrations.ray.lines import AgentLine, Reach, Reached
from arl_tangram.integrations.ray.sessions.greeting import NotYetError
from arl_tangram.integrations.ray.sessions.pump import Pump
from arl_tangram.integrations.ray.wire import Command, Event, Shape, Welcome
from arl_tangram.managers.processes import BodyProcesses
from arl_tangram.managers.threads import BodyThreads
from arl_tangram.model.lifecycle import Demand
from arl_tangram.model.topology import is_breaker
from arl_tangram.trajectories import Trajectory
from arl_tangram.workshop import Workshop


class Shared(Steered):
    """A shared runtime, as this process sees it; made by `share` and `connect`.

    It is opened and used as a `Tangram`. The bodies of its actions run in this process; their cores, sandboxes and
    services are those of all nodes. To look at it and to steer it asks the owner, and blocks for up to 5 s.

    Args:
        reach: finds or makes the owner.
        name: what it is called.
        timeout_s: seconds for the owner to answer, when it is opened.
    """

    def __init__(self, reach: Reach, *, name: str, timeout_s: float) -> None:
        super().__init__()
        self.name = name
        self._reach = reach
        self._timeout_s = timeout_s
        self._remote: RemoteDispatcher | None = None
        self._gpus: RemoteGpus | None = None
        self._cores: RemoteCores | None = None
        self._session = ""
        self._is_lost = False
        self._suspected: dict[int, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<Shared {self.name!r}, {self._state}>"

    @property
    def is_over(self) -> bool:
        """Whether it is open and of no use any more: its owner, or what it shared, is lost for good."""
        return self._state == "open" and self._pump.is_over

    # Opening.

    async def _open(self, doorway: Doorway) -> Opened:
        """Reach the owner, and begin a session."""
        async with AsyncExitStack() as stack:
            stack.callback(self._set_closed)
            stack.push_async_callback(doorway.aclose)
            reached = await self._reach()
            stack.push_async_callback(reached.aclose)
            stack.push_async_callback(self._end_suspecting)
            self._pump = pump = Pump(
                reached.owner,
                reached.greeting,
                self._on_events,
                self._on_lost,
                lambda: self._dispatcher().held(),
                now=self._loop.time,
                on_begun=self._on_begun,
            )
            stack.push_async_callback(pump.aclose)
            welcome = await self._welcomed(pump)
            self._questions = Questions(reached.owner, self.name, lambda: self._session)
            workshop = self._made(reached, welcome, pump)
            stack.callback(workshop.watch.close)
            parts = Opened(workshop, self._dispatcher().shape.reserved_cores)
            parts.closes(stack.pop_all())
        return parts

    async def _welcomed(self, pump: Pump) -> Welcome:
        """Begin a session; an owner that was started again is waited for beyond the time for an answer, but once."""
        begun_s, limit_s = self._loop.time(), self._timeout_s
        try:
            async with asyncio.timeout(limit_s) as limit:

                def wait(why: NotYetError) -> None:
                    nonlocal limit_s
                    if limit_s == self._timeout_s and why.limit_s:
                        limit_s += self._loop.time() - begun_s + why.limit_s
                        limit.reschedule(begun_s + limit_s)

                return await pump.open(wait)
        except TimeoutError as error:
            text = f"has not let this client in within {limit_s:.3g} s: {pump.greeter.trouble}"
            raise OwnerLostError(f"the owner of the shared runtime {self.name!r} {text}") from error

    def _made(self, reached: Reached, welcome: Welcome, pump: Pump) -> Workshop:
        def line(node: int) -> AgentLine:
            return reached.agent(self._dispatcher().shape.nodes[node])

        def post(command: Command) -> None:
            pump.post(command)

        shape = welcome.shape
        assert shape is not None
        here = str(reached.greeting.get("node_id") or "")
        self._remote = RemoteDispatcher(post, shape, call_off=_call_off, on_shape=self._on_shape, here=here)
        self._session, pump.greeter.known = (session := welcome.session), shape
        pump.greeter.kept = self._remote.kept
        host = next((n for n, offer in enumerate(shape.nodes) if here and offer.node_id == here), None)
        if any(offer.dimensions for offer in shape.nodes):
            self._cores = RemoteCores(session, shape, host, line, lease_s=welcome.lease_s)
            self._cores.on_node_lost = self._on_node_lost
        if any(offer.devices for offer in shape.nodes):
            self._gpus = RemoteGpus(session, shape, line)
            self._gpus.on_node_lost = self._on_node_lost
        workshop = Workshop(
            self._remote,
            self._cores,
            BodyThreads(),
            BodyProcesses(most_idle=len(os.sched_getaffinity(0))),
            shape.kill_grace_s,
            self._loop,
            {quota.name: quota for quota in shape.quotas},
        )
        workshop.gpu = self._gpus
        if any(is_breaker(dimension.name) for dimension in shape.dimensions):
            workshop.breakers = RemoteBreakers(post, self._remote)
        return workshop

    def _dispatcher(self) -> RemoteDispatcher:
        assert self._remote is not None
        return self._remote

    # Told by the pump.

    def _on_events(self, events: Sequence[Event]) -> None:
        self._dispatcher().tell(events)

    def _on_lost(self, error: TangramError) -> None:
        """All that this process held is lost."""
        if self._remote is None:
            return
        self._is_lost = True
        self._remote.lost(error, for_good=self._pump.is_over)
        for part in (self._cores, self._gpus):
            if part is not None:
                part.lost(error)
        self._questions.lost(error)

    def _on_begun(self, welcome: Welcome) -> None:
        """A session begins after another one, or is resumed."""
        self._session = welcome.session
        if self._remote is None or welcome.shape is None or not self._is_lost:
            return
        if not self._remote.renew(welcome.shape):
            text = "was lost, and its pools are others by now; open the runtime again"
            self._pump.end(OwnerLostError(f"the owner of the shared runtime {self.name!r} {text}"))
            return
        self._is_lost = False
        for part in (self._cores, self._gpus):
            if part is not None:
                part.reopen(welcome.session, welcome.shape)
        self._submitting.forget()

    def _on_node_lost(self, node: int, _: NodeLostError) -> None:
        """A node does not answer: let the owner see, so that nobody else is sent there."""
        if node not in self._suspected:
            self._suspected[node] = task = self._loop.create_task(self._suspect(node), context=Context())
            task.add_done_callback(lambda _: self._suspected.pop(node))

    async def _suspect(self, node: int) -> None:
        with suppress(TangramError):
            await self._ask("node_lost", {"name": self._dispatcher().shape.nodes[node].name})

    async def _end_suspecting(self) -> None:
        tasks = list(self._suspected.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_shape(self, shape: Shape) -> None:
        self._pump.greeter.known = shape
        for part in (self._cores, self._gpus):
            if part is not None:
                part.reshape(shape)
        if self._state == "open":
            self._submitting.forget()

    # Trajectories.

    def _held_demand(self, image: str | None, memory_bytes: int) -> Demand:
        """Return what a trajectory is to hold, on one of the nodes that can have it.

        Raises:
            InfeasibleError: no node can.
        """
        demand = super()._held_demand(image, memory_bytes)
        if self._cores is None:
            return demand
        fit = set(self._cores.nodes_for(image, memory_bytes))
        places = tuple(place for place in demand.places or (demand,) if (place.node or 0) in fit)
        if not places:
            raise InfeasibleError(
                f"trajectory(image={image!r}): no node that has such sandboxes has as much memory, or as many cores"
            )
        if len(places) == 1:
            return places[0]
        dimensions = 0
        for place in places:
            dimensions |= place.dimensions
        return replace(demand, places=places, dimensions=dimensions)

    # Looking in.

    def describe(self) -> str:
        """Say what enforces grants of cores on each node, in one line."""
        self._check_opened()
        return "no nodes" if self._cores is None else self._cores.describe()


def _call_off(waiter: Waiter, error: TangramError) -> None:
    if isinstance(waiter, Invocation | Trajectory):
        waiter.call_off(error)
