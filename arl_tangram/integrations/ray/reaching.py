"""Reach a shared runtime from this process: make its actors, or find them."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

import arl_tangram
from arl_tangram.errors import (
    ConfigurationError,
    InfrastructureError,
    NoSharedRuntimeError,
    OwnerLostError,
    TangramError,
)
from arl_tangram.integrations.ray import configuration, installed, placing
from arl_tangram.integrations.ray.answers import result_of
from arl_tangram.integrations.ray.handles import AgentHandle, OwnerHandle
from arl_tangram.integrations.ray.installed import Handle, Library, RayNode, connected, off_loop
from arl_tangram.integrations.ray.lines import AgentLine, LineError, OwnerLine
from arl_tangram.integrations.ray.naming import SharedName, chosen, named, not_found
from arl_tangram.integrations.ray.placing import Node, Placed
from arl_tangram.integrations.ray.sessions.greeting import CLIENT
from arl_tangram.integrations.ray.wire import AgentReply, NodeOffer
from arl_tangram.runtime import Tangram
from arl_tangram.uninterrupted import finish_anyway, settled

CLOSE_S = 30.0
"""For the owner, and then for the agents: containers take seconds to be removed."""

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Plan:
    """What `share` was asked for.

    Attributes:
        name: of the runtime.
        factory: returns what is declared.
        nodes: those that are declared, if they are.
        lines: the configuration, as `configuration.describe` tells it.
        lease_s: what is held without a word for so long is lost.
        start_timeout_s: seconds until all agents must be up.
    """

    name: str
    factory: Callable[[], Tangram]
    nodes: tuple[Node, ...] | None
    lines: tuple[str, ...]
    lease_s: float
    start_timeout_s: float


@dataclass(slots=True, eq=False)
class Found:
    """A shared runtime that was found, or made; see `Reached`.

    Attributes:
        made: the actors that were made here, by name; the owner's is the first.
    """

    ray: Library
    name: SharedName
    owner: OwnerLine
    greeting: Mapping[str, Any]
    made: dict[str, Handle] = field(default_factory=dict[str, Handle])

    def agent(self, offer: NodeOffer) -> AgentLine:
        """Return the way to the agent of a node."""
        name = self.name.agent(offer.name)
        return AgentHandle(self.ray, name, self.made.get(name))

    async def aclose(self) -> None:
        """End the actors that were made here: the owner first, so that all callers are told."""
        actors, self.made = list(self.made.values()), {}
        for some in (actors[:1], actors[1:]):
            ending = [self.ray.answer(actor.aclose.remote) for actor in some]
            if ending:
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.gather(*ending, return_exceptions=True), CLOSE_S)
        for actor in actors:
            self.ray.end(actor)
        await off_loop(self.ray.give_up)


async def make(plan: Plan) -> Found:
    """Join the runtime of this name in this job, or make it."""
    library = await _connected(start=True, limit_s=plan.start_timeout_s)
    async with _given_up_on_error(library):
        return await _made(plan, library)


async def _made(plan: Plan, library: Library) -> Found:
    name = SharedName(plan.name, library.job)
    limit = _Limit(plan.start_timeout_s)
    actor = await limit.on(lambda: library.find(name.owner))
    if actor is not None:
        return _found(library, name, actor, plan.lines)
    places = _places(plan, await limit.on(library.nodes))
    from arl_tangram.integrations.ray.agent_actor import AgentActor  # noqa: PLC0415 - clients do without
    from arl_tangram.integrations.ray.owner_actor import OwnerActor  # noqa: PLC0415 - the same

    nodes = () if plan.nodes is None else placing.declared(plan.nodes)
    owner = await limit.on(lambda: library.start(OwnerActor, name.owner, (plan.factory, nodes, plan.lease_s)))
    if owner is None:  # somebody else was faster
        return await _looked_up(library, plan.name, library.job, plan.lines, plan.start_timeout_s)
    found = _found(library, name, owner, plan.lines, made=True)
    found.made[name.owner] = owner
    try:
        for place in places:
            agent = await limit.on(partial(_start_agent, library, AgentActor, name, place))
            if agent is None:
                raise ConfigurationError(f"there is an agent of {named(place.name)} of {plan.name!r} already")
            found.made[name.agent(place.name)] = agent
        await _all_started(plan, found, places)
    except BaseException:
        await found.aclose()
        raise
    return found


async def _all_started(plan: Plan, found: Found, places: Sequence[Placed]) -> None:
    """Wait for all agents, and let clients in."""
    owner, *agents = found.made.values()
    try:
        async with asyncio.timeout(plan.start_timeout_s):
            await found.ray.answer(owner.pid.remote)
            for place, agent in zip(places, agents, strict=True):
                told = cast(AgentReply, pickle.loads(await found.ray.answer(agent.started.remote)))
                result_of(told, f"{named(place.name)} of the shared runtime {plan.name!r}")
            await found.ray.answer(owner.ready.remote)
    except TimeoutError as error:
        raise InfrastructureError(
            f"the actors of the shared runtime {plan.name!r} were not up within {plan.start_timeout_s:g} s"
        ) from error
    except LineError as error:
        if error.unmade:
            text = "what was declared must be one that Ray can send to all machines, and that can be made there"
            raise ConfigurationError(
                f"an actor of the shared runtime {plan.name!r} cannot be made: {error}; {text}"
            ) from error
        raise OwnerLostError(f"an actor of the shared runtime {plan.name!r} did not start: {error}") from error


async def find(name: str, job: str | None, lines: Sequence[str] | None, timeout_s: float) -> Found:
    """Look a runtime up until it is there."""
    library = await _connected(start=False, limit_s=timeout_s)
    async with _given_up_on_error(library):
        return await _looked_up(library, name, job, lines, timeout_s, without_nodes=True)


async def _looked_up(
    library: Library,
    name: str,
    job: str | None,
    lines: Sequence[str] | None,
    timeout_s: float,
    *,
    without_nodes: bool = False,
) -> Found:
    """Look a runtime up. Ray tells nobody of a new name, so it is asked again."""
    deadline_s, limit = time.monotonic() + timeout_s, _Limit(timeout_s)
    pause_s = _FIRST_PAUSE_S
    while True:
        own = job if job is not None else library.job
        names = await limit.on(library.actor_names)
        which = chosen(name, own, names, any_job=job is None)
        actor = None if which is None else await limit.on(partial(library.find, which.owner))
        if which is not None and actor is not None:
            return _found(library, which, actor, lines, without_nodes=without_nodes)
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise NoSharedRuntimeError(not_found(name, job, names, timeout_s))
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class _Limit:
    """How long Ray may take for what is asked of it, all together: it has no limit of its own.

    Args:
        limit_s: seconds from now; `LEAST_CONNECT_S` at least.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = max(limit_s, installed.LEAST_CONNECT_S)
        self._deadline_s = asyncio.get_running_loop().time() + self._limit_s

    async def on(self, work: Callable[[], R]) -> R:
        """Do what blocks; beyond the limit, its thread is left.

        Raises:
            NoSharedRuntimeError: the cluster does not answer.
        """
        limit = asyncio.timeout_at(self._deadline_s)
        try:
            async with limit:
                return cast("R", await off_loop(work))
        except TangramError:
            raise
        except Exception as error:
            why = f"within {self._limit_s:g} s" if limit.expired() else f"({type(error).__name__}: {error})"
            raise NoSharedRuntimeError(f"the Ray cluster of this process does not answer {why}") from error


async def _connected(*, start: bool, limit_s: float) -> Library:
    """Connect to Ray; cancelling takes effect when that has ended."""
    connecting: asyncio.Future[Library] = asyncio.ensure_future(
        off_loop(lambda: connected(start=start, limit_s=limit_s))
    )
    try:
        await settled(connecting)
    except asyncio.CancelledError:
        if not connecting.cancelled() and connecting.exception() is None:
            await finish_anyway(off_loop(connecting.result().give_up))
        raise
    return connecting.result()


@asynccontextmanager
async def _given_up_on_error(library: Library) -> AsyncGenerator[None]:
    """Let the connection go if what follows fails, or is cancelled."""
    try:
        yield
    except BaseException:
        await finish_anyway(off_loop(library.give_up))
        raise


def _found(
    library: Library,
    name: SharedName,
    actor: Handle,
    lines: Sequence[str] | None,
    *,
    without_nodes: bool = False,
    made: bool = False,
) -> Found:
    greeting: dict[str, Any] = {
        "kind": CLIENT,
        "library": arl_tangram.__version__,
        "name": name.name,
        "job": name.job,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "node_id": library.node_id,
    }
    if lines is not None:
        greeting |= {"fingerprint": configuration.fingerprint(lines), "configuration": list(lines)}
        greeting |= {"without_nodes": without_nodes, "made": made}
    return Found(library, name, OwnerHandle(library, actor), greeting)


def _places(plan: Plan, machines: Sequence[RayNode]) -> tuple[Placed, ...]:
    setup = plan.factory().setup
    if plan.nodes is not None:
        return placing.placed(plan.nodes, machines)
    if setup.pool is None and setup.gpus is None:
        return ()
    if setup.gpus is not None and len(machines) > 1:
        raise ConfigurationError(
            f"one node of a shared runtime can have a GpuPool, and the cluster has {len(machines)} machines: say "
            "where, with share(nodes=)"
        )
    return placing.everywhere(plan.factory, machines)


def _start_agent(library: Library, kind: type, name: SharedName, place: Placed) -> Handle | None:
    return library.start(
        kind,
        name.agent(place.name),
        (place.name, place.pools, name.owner),
        node_id=place.node_id,
        resources=place.resources,
    )
