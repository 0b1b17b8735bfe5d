"""Servers that can only be started and stopped, at work: a start is the restore, the end is the eviction."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import anyio
import httpx

from arl_tangram.errors import ConfigurationError, RestoreError, ServiceLostError
from arl_tangram.managers.gpu.devices.arena import rounded
from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.discovery.visible import environment
from arl_tangram.managers.gpu.host.host_memory import HostMemory
from arl_tangram.managers.gpu.instances.backend import Place, StillHeldError
from arl_tangram.model.gpu import Footprint, HostedService
from arl_tangram.model.quantities import bytes_of_gib
from arl_tangram.model.service import Service
from arl_tangram.services.process import ProcessService
from arl_tangram.services.processes.calls import RunningServer, ended_words
from arl_tangram.services.processes.memory import ServerMemory
from arl_tangram.services.servers.gauge import Gauge
from arl_tangram.services.servers.launching import Server
from arl_tangram.services.servers.memory import MemoryOf
from arl_tangram.services.servers.waiting import filled, free_port, healthy, listens
from arl_tangram.uninterrupted import in_thread, unstoppable

_CONNECT_LIMIT_S = 10.0
_NOTICED_S = 0.5  # within which a death is noticed that has broken off a connection
_BACK_S = 1.0  # that a driver may take for the memory of one that has died, before its calls are told
_KEPT_IDLE_S = 2.0  # below the 5 s after which many servers close a connection that nobody uses


@dataclass(eq=False, slots=True)
class _Instance:
    """One server that runs.

    Attributes:
        url: where it answers.
        server: its processes.
        client: the connections to it.
        devices: its devices, as torch calls them.
        memory: what it takes of them.
        is_resident: whether its end would be news.
        is_ending: whether it is being ended, by whoever decides that.
        burial: at whose end the pool knows that it has died by itself.
    """

    url: str
    server: Server
    client: httpx.AsyncClient
    devices: tuple[str, ...]
    memory: ServerMemory
    is_resident: bool = False
    is_ending: bool = False
    burial: asyncio.Task[None] | None = None


class ProcessBackend:
    """One service at work.

    Args:
        declared: what was declared.
    """

    def __init__(self, declared: ProcessService) -> None:
        self._declared = declared
        self._instances: dict[int, _Instance] = {}
        self._tell: Callable[[int, Exception], None] = _ignore
        self._host: HostMemory | None = None
        self._gauge = Gauge(declared.memory_of)
        self._memory_of: MemoryOf | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def name(self) -> str:
        """The name that it was declared with."""
        return self._declared.name

    @property
    def keeps_memory(self) -> bool:
        """That its memory is outside of the arenas."""
        return True

    def on_lost(self, tell: Callable[[int, Exception], None]) -> None:
        """Take what is told when a server has died by itself; all of it is dead then, but for a `StillHeldError`."""
        self._tell = tell

    async def open(self, host: HostMemory, devices: Sequence[Device]) -> HostedService:
        """Check that there is such a program, and say what it needs; nothing is started.

        Raises:
            ConfigurationError: there is no such program, or the host has not enough memory.
        """
        declared = self._declared
        path = {**os.environ, **declared.env}.get("PATH")
        look = partial(shutil.which, declared.launch[0], path=path)
        if await in_thread(look, anyio.CapacityLimiter(1)) is None:
            raise ConfigurationError(
                f"ProcessService({self.name!r}): there is no program {declared.launch[0]!r} to launch"
            )
        host_bytes = bytes_of_gib(declared.host_gib, self.name, ConfigurationError)
        if host_bytes:
            host.reserve(self.name, host_bytes * len(declared.dops))
            self._host = host
        size = rounded(bytes_of_gib(declared.gpu_gib, self.name, ConfigurationError))
        needs = Footprint(size, size)
        if devices:
            self._memory_of = await self._gauge.open(devices)
        return HostedService(
            name=self.name,
            footprints=tuple((dop, needs) for dop in declared.dops),
            restore_s=tuple((dop, declared.restore_s) for dop in declared.dops),
            max_concurrency=declared.max_concurrency,
            exclusive=declared.exclusive,
        )

    async def restore(self, dop: int, places: Sequence[Place]) -> None:
        """Start a server that sees just these devices, and wait until it is healthy.

        Raises:
            RestoreError: it ended, or was not healthy in time; nothing of it is left.
            StillHeldError: the same, and something of it cannot be killed now, or its memory did not become free.
        """
        most = bytes_of_gib(self._declared.gpu_gib, self.name, ConfigurationError)
        memory = ServerMemory([place.device.name for place in places], self._memory_of, most=most)
        async with memory.turn():
            await self._start(dop, self._prepared(dop, places, memory))

    async def _start(self, dop: int, instance: _Instance) -> None:
        name = f"{self.name}/{dop}"
        if self._is_closed:
            raise RestoreError(f"{name}: its pool was closed")
        self._instances[dop] = instance
        try:
            if await listens(instance.url):
                raise RestoreError(f"{name}: something answers at {instance.url} already, which is not this server")
            await instance.server.start()
            if self._is_closed:
                raise RestoreError(f"{name}: its pool was closed")
            health = instance.url.rstrip("/") + self._declared.health
            await healthy(health, instance.server, name=name, limit_s=self._declared.start_s)
            await instance.memory.is_up()
        except BaseException:
            await self._end(dop, instance, grace_s=0)
            raise
        instance.is_resident = True
        instance.server.ended.add_done_callback(lambda _: self._hear_of_end(dop, instance))

    async def evict(self, dop: int) -> None:
        """End a server and all that it has started.

        Raises:
            StillHeldError: something of it cannot be killed now, or its memory did not become free.
        """
        if instance := self._instances.get(dop):
            instance.is_ending = True
            async with instance.memory.turn():
                await self._end(dop, instance, grace_s=self._declared.stop_s)

    async def move(self, dop: int, places: Sequence[Place]) -> None:
        """Do nothing: it has no region."""

    def service(self, dop: int) -> Service:
        """Return what an action gets that uses this server."""
        instance = self._instances[dop]
        return RunningServer(
            self.name,
            dop,
            instance.devices,
            instance.server,
            instance.client,
            call_s=self._declared.call_s,
            until_told=partial(_until_told, instance),
        )

    def end(self, service: Service) -> None:
        """Take back what an action got."""
        if isinstance(service, RunningServer):
            service.close()

    async def aclose(self) -> None:
        """End all servers; bounded, never raises."""
        self._is_closed = True
        ending = [unstoppable(self._end(*each, grace_s=self._declared.stop_s)) for each in self._instances.items()]
        if pending := [*ending, *self._ending]:
            await asyncio.wait(pending)
            for task in pending:
                task.exception()  # what cannot be killed now is marked, and the next start finds it
        if self._host is not None:
            await self._host.release(self.name)
            self._host = None
        await self._gauge.aclose()

    def _prepared(self, dop: int, places: Sequence[Place], memory: ServerMemory) -> _Instance:
        declared = self._declared
        port = free_port()
        (url,) = filled([declared.url], port=port, dop=dop)
        values = filled(list(declared.env.values()), port=port, dop=dop)
        env = {**environment(place.device.name for place in places), **dict(zip(declared.env, values, strict=True))}
        client = httpx.AsyncClient(
            base_url=url,
            timeout=httpx.Timeout(None, connect=_CONNECT_LIMIT_S),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=_KEPT_IDLE_S),
            verify=url.startswith("https:"),  # reading certificates takes long
            trust_env=False,  # a proxy of the environment is not for a server of this machine
        )
        server = Server(f"{self.name}/{dop}", filled(declared.launch, port=port, dop=dop), env)
        return _Instance(url, server, client, tuple(place.device.torch_name for place in places), memory)

    async def _end(self, dop: int, instance: _Instance, *, grace_s: float) -> None:
        instance.is_ending = True
        if not self._is_closed:
            await instance.memory.ends()
        if not await instance.server.stop(grace_s):
            raise StillHeldError(f"{self.name}/{dop}: something of its server cannot be killed now")
        if not self._is_closed and (left := await instance.memory.left(self._declared.settle_s)):
            raise StillHeldError(f"{self.name}/{dop}: {left}")
        self._forget(dop, instance)
        await instance.client.aclose()

    def _forget(self, dop: int, instance: _Instance) -> None:
        if self._instances.get(dop) is instance:
            del self._instances[dop]

    def _hear_of_end(self, dop: int, instance: _Instance) -> None:
        if instance.is_resident and not instance.is_ending:
            task = instance.burial = unstoppable(self._bury(dop, instance))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _bury(self, dop: int, instance: _Instance) -> None:
        """Kill what a server that died by itself has left, then tell, unless somebody wants it ended meanwhile."""
        left: str | None = "something of it cannot be killed now"
        if await instance.server.stop(0) and not instance.is_ending:
            left = await instance.memory.lost(min(_BACK_S, self._declared.settle_s))
        if not instance.is_ending:
            words = ended_words(f"{self.name}/{dop}", instance.server)
            if left is not None:  # the manager asks for it to be evicted from time to time
                self._tell(dop, StillHeldError(f"{words}; {left}"))
                return
            self._forget(dop, instance)
            self._tell(dop, ServiceLostError(words))
        await instance.client.aclose()


async def _until_told(instance: _Instance) -> None:
    """Wait until the pool knows that a server has died, if it has; bounded."""
    await asyncio.wait([instance.server.ended], timeout=_NOTICED_S)
    if instance.burial is not None:
        await asyncio.wait([instance.burial])


def _ignore(dop: int, error: Exception) -> None:
    """Stand in until the manager listens."""
