"""An engine at work: the `Backend` protocol over a server that sleeps and wakes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

import anyio

from arl_tangram.errors import ConfigurationError, RestoreError
from arl_tangram.managers.gpu.devices.arena import rounded
from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.discovery.visible import environment
from arl_tangram.managers.gpu.host.host_memory import HostMemory
from arl_tangram.managers.gpu.instances.backend import Place
from arl_tangram.model.gpu import Chunk, Footprint, HostedService
from arl_tangram.model.quantities import GIB, bytes_of_gib
from arl_tangram.model.service import Service
from arl_tangram.services.engine.calls import EngineService, Requests
from arl_tangram.services.engine.declared import EngineDeclaration
from arl_tangram.services.engine.driver import Engine
from arl_tangram.services.engine.placing import chunk
from arl_tangram.services.engine.question import Question
from arl_tangram.services.engine.remote import Door, Remote, RemoteFault, Seen
from arl_tangram.services.engine.server import LaunchedServer
from arl_tangram.services.engine.states import State
from arl_tangram.services.servers.gauge import Gauge
from arl_tangram.services.servers.memory import Meter, enough, turn
from arl_tangram.uninterrupted import in_thread

_logger = logging.getLogger(__name__)
_UNMEASURED_ASLEEP = 2 * GIB


class EngineKind(Protocol):
    """What differs between the servers of one project and those of another."""

    @property
    def env(self) -> Mapping[str, str]:
        """Variables without which a launched server does not let itself be put to sleep."""
        ...

    @property
    def needs(self) -> str:
        """In words, what it must be started with to be put to sleep."""
        ...

    @property
    def health_path(self) -> str:
        """What a server that was just started answers with success once it is ready."""
        ...

    def remote(self, door: Door) -> tuple[Remote, Requests]:
        """Return how a server is spoken to."""
        ...


class EngineBackend:
    """One engine, for one event loop.

    Args:
        declared: what the user says of it.
        kind: which server it is.
    """

    def __init__(self, declared: EngineDeclaration, kind: EngineKind) -> None:
        self._declared = declared
        self._kind = kind
        self._tell: Callable[[int, Exception], None] | None = None
        self._door: Door | None = None
        self._gauge = Gauge(declared.memory_of)
        self._host: HostMemory | None = None
        self._engine: Engine | None = None
        self._requests: Requests | None = None
        self._question: Question | None = None
        self._torch_names: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name that it was declared with."""
        return self._declared.name

    @property
    def keeps_memory(self) -> bool:
        """Its memory is that of its server."""
        return True

    def on_lost(self, tell: Callable[[int, Exception], None]) -> None:
        """Take what is told when the server dies while it is awake."""
        self._tell = tell

    async def open(self, host: HostMemory, devices: Sequence[Device]) -> HostedService:
        """Start the server or find it, ask it the question whose answer is then known, and put it to sleep.

        Raises:
            ConfigurationError: it cannot be hosted here, does not start, or does not sleep; the message says why.
        """
        declared = self._declared
        where = chunk(self.name, declared.dop, declared.devices, devices)
        mine = [devices[number] for number in where.devices]
        if declared.host_gib:
            host.reserve(self.name, bytes_of_gib(declared.host_gib, "host_gib", ConfigurationError))
            self._host = host
        self._torch_names = tuple(device.torch_name for device in mine)
        names = tuple(device.name for device in mine)
        memory_of = await self._gauge.open(mine)
        if memory_of is None:
            _logger.info("%s: the memory of %s cannot be measured; what sleep frees is not checked", self.name, names)
        meter = Meter(names, memory_of)
        # An encrypted connection needs certificates, which are read from the disk.
        self._door = await in_thread(
            lambda: Door(declared.url or "http://127.0.0.1", api_key=declared.api_key), anyio.CapacityLimiter(1)
        )
        self._question = question = Question(self._door, declared.probe, declared.model)
        engine = self._assemble(self._door, question, names, meter)
        try:
            # One server after the other: each needs all of its memory until it sleeps.
            async with turn([f"opening {name}" for name in names]):
                return self._hosted(where, await self._first_sleep(engine, question, meter))
        except (RestoreError, RemoteFault) as error:
            said = str(error).removeprefix(f"{self.name}: ")
            raise ConfigurationError(f"{self.name}: {said}; it must be started with {self._kind.needs}") from error

    def _assemble(self, door: Door, question: Question, names: tuple[str, ...], meter: Meter) -> Engine:
        declared, limits = self._declared, self._declared.limits
        remote, self._requests = self._kind.remote(door)
        server = None
        if declared.launch is not None:
            server = LaunchedServer(
                self.name,
                declared.launch,
                {**self._kind.env, **environment(names), **declared.env},
                dop=declared.dop,
                url=declared.url,
                health_path=self._kind.health_path,
                door=door,
                limits=limits,
                on_end=self._server_ended,
            )
        self._engine = engine = Engine(
            self.name,
            remote,
            devices=names,
            meter=meter,
            frees=self._expected(),
            check=question.ask,
            server=server,
            limits=limits,
            on_death=self._died,
        )
        return engine

    def _expected(self) -> int:
        """Return what the first sleep must free of each device: half of it, if nothing is said."""
        declared = self._declared
        if declared.asleep_gib is None:
            return declared.resident_bytes // 2
        return declared.resident_bytes - bytes_of_gib(declared.asleep_gib, "asleep_gib", ConfigurationError)

    async def _first_sleep(self, engine: Engine, question: Question, meter: Meter) -> int:
        """Learn what it answers and what it frees; return what it keeps of each device."""
        declared = self._declared
        if declared.launch is None:
            await self._find_running(engine, question)
        await engine.wake()
        await question.ask()  # once more: an answer that changes by itself tells nothing
        before = await meter.free()
        await engine.sleep()
        freed = await meter.freed(before, 0, 0.0)
        resident = declared.resident_bytes
        if freed is None:
            return min(_UNMEASURED_ASLEEP, resident // 2) if declared.asleep_gib is None else resident - engine.frees
        if freed[1] > resident + resident - enough(resident):
            raise ConfigurationError(
                f"{self.name}: it gave up {freed[1] / GIB:.2f} GiB of a device, more than gpu_gib={declared.gpu_gib:g} "
                "says it ever has there"
            )
        if declared.asleep_gib is None:
            engine.frees = min(freed[0], resident)
        return resident - engine.frees

    async def _find_running(self, engine: Engine, question: Question) -> None:
        """See that somebody else's server is there and gives its answer, before it is told to do anything."""
        seen = await engine.look()
        if seen is Seen.GONE:
            raise RestoreError(f"its server at {self._declared.url} does not answer")
        if seen is Seen.AWAKE:
            await question.ask()

    def _hosted(self, where: Chunk, asleep: int) -> HostedService:
        declared = self._declared
        resident = rounded(declared.resident_bytes)
        footprint = Footprint(resident, resident, min(rounded(asleep), resident))
        return HostedService(
            self.name,
            footprints=((declared.dop, footprint),),
            restore_s=((declared.dop, declared.expected_restore_s()),),
            max_concurrency=declared.max_concurrency,
            exclusive=declared.exclusive,
            chunks=((declared.dop, where),),
        )

    async def restore(self, dop: int, places: Sequence[Place]) -> None:
        """Wake it, and see that it gives the answer that it gave at first.

        Raises:
            RestoreError: it cannot be woken, or is not what it was; it sleeps, or has ended.
            StillHeldError: the same, but it may hold its memory.
        """
        engine = self._opened()
        await engine.wake()
        if engine.state is State.LOST:
            raise RestoreError(f"{self.name}: its engine died as it had just been restored")

    async def evict(self, dop: int) -> None:
        """Wait for the calls that are still on their way, and put it to sleep.

        Raises:
            RestoreError: its memory did not become free.
        """
        await self._opened().sleep()

    async def move(self, dop: int, places: Sequence[Place]) -> None:
        """Never asked of what keeps its memory itself."""
        raise RestoreError(f"{self.name}: an engine cannot be moved")

    def service(self, dop: int) -> Service:
        """Return what an action gets that uses it."""
        assert self._door is not None
        assert self._requests is not None
        assert self._question is not None
        return EngineService(
            self.name,
            dop=dop,
            devices=self._torch_names,
            model=self._question.model,
            engine=self._opened(),
            door=self._door,
            requests=self._requests,
            limit_s=self._declared.call_s,
        )

    def end(self, service: Service) -> None:
        """The action ends."""
        cast(EngineService, service).end()

    async def aclose(self) -> None:
        """End a server of ours; leave another one as it is."""
        if self._engine is not None:
            await self._engine.aclose()
        if self._door is not None:
            with contextlib.suppress(Exception):
                await self._door.aclose()
        await self._gauge.aclose()
        if self._host is not None:
            await self._host.release(self.name)
            self._host = None

    def _opened(self) -> Engine:
        if self._engine is None:
            raise RestoreError(f"{self.name} is not open")
        return self._engine

    def _server_ended(self, why: str) -> None:
        if self._engine is not None:
            self._engine.died(why)

    def _died(self, error: Exception) -> None:
        if self._tell is not None:
            self._tell(self._declared.dop, error)
