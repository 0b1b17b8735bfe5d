"""The agent of a node: the real managers of its pools, for sessions elsewhere; itself a session of the owner.

The owner tells it who is gone, and which seats were decided; it tells the owner what there is, and when nothing of a
session is left. Clients call it for their sandboxes and services.
"""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Any

from arl_tangram.errors import LeaseLostError, NodeLostError, OwnerLostError, TangramError, UsageError
from arl_tangram.integrations.ray.answers import raised
from arl_tangram.integrations.ray.lines import OwnerLine
from arl_tangram.integrations.ray.naming import named
from arl_tangram.integrations.ray.node.going import Going
from arl_tangram.integrations.ray.node.leases import Room
from arl_tangram.integrations.ray.node.offering import managers_of, named_by, offer_of
from arl_tangram.integrations.ray.node.seats import NodeSeats, Teller
from arl_tangram.integrations.ray.node.spool import Spool
from arl_tangram.integrations.ray.node.tenancy import CORE_CALLS, Tenancy
from arl_tangram.integrations.ray.sessions.greeting import NODE
from arl_tangram.integrations.ray.sessions.pump import Pump
from arl_tangram.integrations.ray.wire import (
    AgentCall,
    AgentReply,
    CallId,
    Drop,
    EndSession,
    Event,
    Evict,
    Kept,
    NodeCapacity,
    NodeOffer,
    NodeReady,
    Remember,
    Reshaped,
    Resize,
    Resume,
    Roster,
    SessionEnded,
    Shape,
    Take,
)
from arl_tangram.managers.manager import CpuManager, CpuPool, GpuPool
from arl_tangram.model.topology import resource_of
from arl_tangram.uninterrupted import settled, unstoppable

CALLS = (*CORE_CALLS, "seat", "serve")
"""What clients can ask."""
_MOST_ENDED = 10_000
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Tenant:
    going: Going
    tenancy: Tenancy | None
    look: asyncio.TimerHandle


class NodeAgent:
    """The agent of a node, on one event loop.

    Args:
        node: its name; empty for the only one.
        pools: at most one of cores and one of GPUs, made on this machine.
        line: to the owner.
        node_id: of the machine.
    """

    def __init__(self, node: str, pools: Sequence[CpuPool | GpuPool], line: OwnerLine, *, node_id: str = "") -> None:
        self.node = node
        self._node_id = node_id
        self._cpu, self._gpu = managers_of(node, pools)
        about = {"kind": NODE, "name": node, "host": platform.node(), "node_id": node_id}
        self._now_s = asyncio.get_running_loop().time
        self._pump = Pump(line, about, self._on_events, self._on_lost, self._resume, now=self._now_s)
        self._spool = Spool()
        self._room: Room | None = None
        self._seats: NodeSeats | None = None
        self._offer: NodeOffer | None = None
        self._shape: Shape | None = None
        self._roster: tuple[str, ...] | None = None
        self._kept: tuple[Kept, float] | None = None
        self._pump.greeter.kept = self._kept_now
        self._tenants: dict[str, _Tenant] = {}
        self._tenancies = 0
        self._ended: dict[str, None] = {}
        self._lease_s = 0.0
        self._is_ready = False
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._clearing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None

    async def start(self) -> NodeOffer:
        """Start the managers, which remove what earlier agents left, and offer the node to the owner.

        Raises:
            ConfigurationError: the pools cannot be used here.
            TangramError: the owner refuses.
        """
        try:
            if self._cpu is not None:
                await self._cpu.prepare()
                await self._cpu.start()
                self._cpu.on_capacity(self._capacity)
            if self._gpu is not None:
                await self._gpu.start()
            offer = self._offer = offer_of(self.node, self._node_id, self._cpu, self._gpu)
            welcome = await self._pump.open()
        except BaseException:
            await self.aclose()
            raise
        self._shape = self._pump.greeter.known = welcome.shape
        self._lease_s = welcome.lease_s
        if self._cpu is not None:
            self._room = Room(self._cpu, welcome.lease_s)
        if self._gpu is not None:
            self._seats = NodeSeats(self._gpu, self.node, welcome.lease_s)
            self._gpu.listen(Teller(self._pump.post))
        self._is_ready = True
        self._pump.post(NodeReady(offer, self._shape))
        return offer

    async def call(self, request: AgentCall) -> AgentReply:
        """Do something for a client; nothing is raised, the reply tells of errors.

        A call goes on whatever becomes of the task that waits here; `cancel` ends it.
        """
        session = request.id.session
        if session in self._ended:
            return raised(self._over(session))
        if not self._is_ready:
            return raised(NodeLostError(f"{named(self.node)} is not open"))
        tenant = self._tenant(session)
        return await tenant.going.run(request, lambda: self._do(tenant, request))

    async def cancel(self, id: CallId) -> None:  # noqa: A002 - what it is
        """Cancel a call, or do not begin it when it comes."""
        if self._is_ready and id.session not in self._ended:
            self._tenant(id.session).going.cancel(id.number)

    async def aclose(self) -> None:
        """End all sessions, close the pools, and leave the owner; bounded, idempotent."""
        if self._closing is None:
            self._closing = unstoppable(self._close())
        await settled(self._closing)
        self._closing.result()

    # Calls.

    def _tenant(self, session: str) -> _Tenant:
        if (tenant := self._tenants.get(session)) is None:
            tenancy: Tenancy | None = None
            if self._cpu is not None and self._room is not None:
                self._tenancies += 1
                tenancy = Tenancy(session, self._tenancies, self._cpu, self._room, self._spool)
            look = asyncio.get_running_loop().call_later(2 * self._lease_s, self._look_for, session, context=Context())
            tenant = self._tenants[session] = _Tenant(Going(), tenancy, look)
        return tenant

    def _look_for(self, session: str) -> None:
        """End what a session has here of which the owner has not told in all the time: it was over already.

        That is a call that was on its way for long, and has found another agent.
        """
        if self._roster is not None and session not in self._roster and session not in self._ending:
            self._end_session(session)

    def _do(self, tenant: _Tenant, request: AgentCall) -> Awaitable[AgentReply]:
        given, what = request.arguments, request.what
        if what in CORE_CALLS and tenant.tenancy is not None:
            return tenant.tenancy.calls[what](given)
        if what == "seat" and self._seats is not None:
            return self._seats.ready(given["lease"])
        if what == "serve" and self._seats is not None:
            return self._seats.serve(given["lease"], request.load)
        raise UsageError(f"{what!r} was asked of {named(self.node)}, which has {self._offer and self._offer.text}")

    def _resize_if_possible(self, cpu: CpuManager, name: str, capacity: int) -> None:
        try:
            self._set_capacity(cpu, name, capacity)
        except TangramError as error:
            _logger.warning("%s keeps what it has of %s: %s", named(self.node), name, error)

    def _set_capacity(self, cpu: CpuManager, name: str, capacity: int) -> None:
        """Let the pool have more or less of a dimension, by its name at the owner, who is told."""
        own = next(d.name for d in cpu.dimensions() if resource_of(d.name) == resource_of(name))
        cpu.check_capacity(own, capacity)
        cpu.resize(own, capacity)
        self._capacity(own, capacity)

    def _over(self, session: str) -> LeaseLostError:
        return LeaseLostError(f"the session {session} is over, and what it had on {named(self.node)} was ended")

    # What the owner tells.

    def _on_events(self, events: Sequence[Event]) -> None:
        """Do what the owner says; what goes wrong with one of them is not the end of those behind it."""
        for event in events:
            try:
                self._on_event(event)
            except Exception:
                _logger.exception("%s failed on %s", type(event).__name__, named(self.node))

    def _on_event(self, event: Event) -> None:
        match event:
            case EndSession(session):
                self._end_session(session)
            case Roster(sessions):
                self._roster = sessions
            case Reshaped(shape):
                self._shape = self._pump.greeter.known = shape
            case Remember(kept):
                self._kept = (kept, self._now_s())
            case Take() if self._seats is not None:
                self._seats.take(event)
            case Drop(lease) if self._seats is not None:
                self._seats.drop(lease)
            case Evict(instances) if self._seats is not None:
                self._seats.evict(instances)
            case Resize(name, capacity) if self._cpu is not None:
                self._resize_if_possible(self._cpu, name, capacity)
            case _:
                pass

    def _on_lost(self, error: TangramError) -> None:
        """The owner has given this node up, or will: end all, then offer the node anew."""
        self._is_ready = False
        self._roster = None
        if self._clearing is None and self._closing is None:
            self._clearing = self._spawn(self._clear(error))

    async def _clear(self, error: TangramError) -> None:
        try:
            await self._end_all(error)
        except Exception:
            _logger.exception("node %r could not end all that was on it", self.node)
        self._clearing = None
        if self._offer is not None and not self._pump.is_over and self._closing is None:
            self._is_ready = True
            self._pump.post(NodeReady(self._offer, self._shape))

    def _resume(self) -> Resume:
        """Say what the node has to an owner that was started again, and end what that does not take over."""
        if self._seats is not None:
            self._seats.end_all(
                OwnerLostError("the owner of the shared runtime was started again, without seats on GPUs")
            )
        known = None if self._roster is None else tuple(dict.fromkeys((*self._roster, *self._ending)))
        offer = self._offer if self._is_ready else None
        return Resume(self._shape, offer=offer, sessions=known, kept=self._kept_now())

    def _kept_now(self) -> Kept | None:
        """Return what the owner wants to be remembered; a next one may want it beyond this session."""
        return None if self._kept is None else self._kept[0].aged(self._now_s() - self._kept[1])

    def _capacity(self, name: str, capacity: int) -> None:
        """There is more or less of a dimension of the manager."""
        if self._room is not None:
            self._room.look()
        if self._offer is not None:
            named = named_by(self.node, name)
            changed = [replace(d, capacity=capacity) if d.name == named else d for d in self._offer.dimensions]
            self._offer = replace(self._offer, dimensions=tuple(changed))
            if self._is_ready:
                self._pump.post(NodeCapacity(named, capacity))

    # Ending.

    def _end_session(self, session: str) -> None:
        self._ended[session] = None
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        ending = self._end(session, self._over(session))
        ending.add_done_callback(lambda _: self._pump.post(SessionEnded(session)))

    def _end(self, session: str, error: TangramError) -> asyncio.Task[None]:
        """Begin to end a session, unless that goes on; return what ends when nothing of it is left."""
        if (ending := self._ending.get(session)) is None:
            ending = self._ending[session] = self._spawn(self._end_it(session, error))
            ending.add_done_callback(lambda _: self._ending.pop(session, None))
        return ending

    async def _end_it(self, session: str, error: TangramError) -> None:
        tenant = self._tenants.pop(session, None)
        if self._seats is not None:
            self._seats.end_session(session)
        if tenant is not None:
            tenant.look.cancel()
            if tenant.tenancy is not None:
                await asyncio.gather(tenant.tenancy.end(), tenant.going.end(error))
            else:
                await tenant.going.end(error)

    async def _end_all(self, why: TangramError) -> None:
        """End what all sessions have here, which may have something here again afterwards."""
        error = NodeLostError(f"{named(self.node)} was cut off from the owner of the shared runtime: {why}")
        ending = [self._end(session, error) for session in [*self._tenants, *self._ending]]
        if ending:
            await asyncio.wait(ending)
        if self._seats is not None:
            self._seats.end_all(error)

    async def _close(self) -> None:
        self._is_ready = False
        await self._end_all(NodeLostError("its agent was closed"))
        if self._tasks:
            await asyncio.wait(self._tasks)
        closing: list[Callable[[], Awaitable[None]]] = [self._pump.aclose, self._spool.aclose]
        closing += [manager.aclose for manager in (self._gpu, self._cpu) if manager is not None]
        for close in closing:
            try:
                await close()
            except Exception:
                _logger.exception("the agent of %s could not close all that it had", named(self.node))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
