"""The devices of a pool and the services on them: makes seats real, and says what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

from arl_tangram.errors import ConfigurationError, RestoreError, ServiceLostError, TangramError, UsageError
from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.host.host_memory import HostMemory
from arl_tangram.managers.gpu.instances.backend import Backend, DeclaredService
from arl_tangram.managers.gpu.instances.counts import Counts
from arl_tangram.managers.gpu.instances.hosted import Hosted, Stage, Stay, ended
from arl_tangram.managers.gpu.instances.listener import GpuListener, Telling
from arl_tangram.managers.gpu.instances.loading import check, counted, load, with_whole_devices
from arl_tangram.managers.gpu.instances.site import Site
from arl_tangram.managers.gpu.instances.transitions import Transitions
from arl_tangram.managers.gpu.lease import GpuLease
from arl_tangram.managers.gpu.nodes import Nodes
from arl_tangram.managers.gpu.sizes import in_words
from arl_tangram.managers.gpu.source import DeviceSource
from arl_tangram.model.gpu import Chunk, GpuNode, HostedService, Instance, Seat, ServiceStatistics
from arl_tangram.uninterrupted import finish_anyway

EvictionPolicy = Literal["loss", "lru", "gdsf"]

CLOSE_S = 30.0
"""Seconds that transitions have to end when the pool closes; a restore of the largest models takes less."""


class GpuManager:
    """Owns devices and services; made by `GpuPool.manager`, for one event loop.

    The calls come in this order: `start`, all others, `aclose`; and `aclose` also if `start` has failed. What the
    scheduler decides is handed to `take` and `evict` in the turn of the decision, in the order of decisions: all that
    happens in the real world follows from that order.

    Attributes:
        policy: by what the scheduler is to choose who is evicted.

    Args:
        services: what it hosts.
        source: where devices and host memory come from.
    """

    def __init__(
        self, services: Sequence[DeclaredService], source: DeviceSource, *, policy: EvictionPolicy = "loss"
    ) -> None:
        self.policy: EvictionPolicy = policy
        self._declared = tuple(services)
        self._source = source
        self._telling = Telling()
        self._counts = Counts(service.name for service in services)
        self._backends: dict[str, Backend] = {}
        self._hosted: dict[Instance, Hosted] = {}
        self._services: tuple[HostedService, ...] = ()
        self._host: HostMemory | None = None
        self._nodes = Nodes()
        self._transitions: Transitions | None = None
        self._leases: set[GpuLease] = set()
        self._reclaiming: dict[int, asyncio.Task[None]] = {}  # by first number: what does not let go of lent devices
        self._is_started = False
        self._is_closed = False
        self._is_over = False

    # Opening and closing.

    async def start(self) -> None:
        """Open the devices and load the services, which are evicted then; `nodes` and `services` are known afterwards.

        Cancelled, it ends soon; `aclose` follows.

        Raises:
            ConfigurationError: there are no devices, or a service cannot be loaded or hosted; the message names it.
            MissingExtraError: what a service or a device needs is not installed.
        """
        for declared in self._declared:
            backend = self._backends[declared.name] = declared.backend()
            backend.on_lost(partial(self._lost, declared.name))
        keeps = any(backend.keeps_memory for backend in self._backends.values())
        arenas = not all(backend.keeps_memory for backend in self._backends.values())
        devices = await self._source.open(shared=keeps, arenas=arenas)
        self._nodes.open(devices)
        self._transitions = Transitions(self._nodes.sites, self._counts, self._telling)
        self._host = await self._source.host_memory()
        if keeps:
            await self._vacate()
        await self._load(devices, self._host)
        if keeps and arenas:
            await self._occupy()
        self._is_started = True

    async def _load(self, devices: Sequence[Device], host: HostMemory) -> None:
        loaded = await load(list(self._backends.values()), host, devices)
        services = [counted(service, self._backends[service.name]) for service in loaded]
        keep = [self._backends[service.name].keeps_memory for service in services]
        if not all(keep):
            services = [
                with_whole_devices(service, devices) if keeps else service
                for service, keeps in zip(services, keep, strict=True)
            ]
        for service in services:
            check(service, self._nodes.nodes, services)
        self._services = tuple(services)
        for service, exact in zip(services, loaded, strict=True):
            self._host_service(service, exact)

    async def _vacate(self) -> None:
        """Leave the memory that arenas hold to what keeps its memory itself: else nothing is left for that."""
        for site in self._nodes.sites:
            if site.device.holds_all:
                site.is_away = True
                await site.device.vacate()

    async def _occupy(self) -> None:
        """Take it again where no engine sleeps; there, it is whoever's comes first."""
        for site in self._nodes.sites:
            if site.is_away and not site.used:
                try:
                    await site.device.occupy()
                except OSError as error:
                    raise ConfigurationError(
                        f"{site.device.name} has no {in_words(site.device.capacity_bytes)} for services: {error}"
                    ) from error
                site.is_away = False

    def _host_service(self, service: HostedService, exact: HostedService) -> None:
        backend, sizes, fixed = self._backends[service.name], dict(exact.footprints), dict(service.chunks)
        for dop, footprint in service.footprints:
            instance = Instance(service.name, dop)
            hosted = self._hosted[instance] = Hosted(instance, backend, footprint, sizes[dop].resident_bytes)
            if dop in fixed:
                for number in fixed[dop].devices:
                    self._nodes.sites[number].takes(hosted, footprint.evicted_bytes)

    async def aclose(self) -> None:
        """End all services, and let go of devices and memory; bounded, idempotent. Leases are of no use afterwards."""
        if not self._is_closed:
            self._is_closed = True
            await finish_anyway(self._close())

    async def _close(self) -> None:
        self._telling.listener = None
        await self._stop_reclaiming(*self._reclaiming)
        if self._transitions is not None:
            await self._transitions.aclose(CLOSE_S)
        for lease in list(self._leases):
            lease.release()
        await asyncio.gather(*(backend.aclose() for backend in self._backends.values()), return_exceptions=True)
        await _closed([site.device for site in self._nodes.sites if site.is_open])
        if self._host is not None:
            await self._host.aclose()
        self._is_over = True

    # What there is.

    @property
    def nodes(self) -> tuple[GpuNode, ...]:
        """The devices, numbered from 0 over all nodes; those that are lent are nodes of their own, at the end."""
        return self._nodes.nodes

    @property
    def services(self) -> tuple[HostedService, ...]:
        """What it hosts, as the scheduler is to count it."""
        return self._services

    @property
    def is_closed(self) -> bool:
        """Whether all is closed, and all memory given back."""
        return self._is_over

    def devices_of(self, chunk: Chunk) -> tuple[str, ...]:
        """Return by which names the devices of a chunk are known outside."""
        return tuple(self._nodes.sites[number].device.name for number in chunk.devices)

    def listen(self, listener: GpuListener) -> None:
        """Let somebody be told from now on what becomes of instances and devices."""
        self._telling.listener = listener

    def statistics(self) -> Mapping[str, ServiceStatistics]:
        """Return what each service has cost and was used for, by its name."""
        return self._counts.read()

    def describe(self) -> str:
        """Say in one line what there is."""
        sites = [site for site in self._nodes.sites if site.is_open]
        devices = [f"{site.device.name} {in_words(site.device.capacity_bytes)}" for site in sites]
        if not devices:
            return "a GpuPool that is not started, so what it has is unknown"
        count = len(self._services)
        used = self._host.used_bytes if self._host is not None else 0
        host = f", {in_words(used)} of host memory" if used else ""
        return f"{', '.join(devices)}: {count} service{'' if count == 1 else 's'}{host}, evicted by {self.policy}"

    def notes(self) -> tuple[str, ...]:
        """Return lines for the report: what was left out of the devices, and what does not let go of its memory."""
        stuck = [
            f"{hosted.instance} was evicted and does not let go of {in_words(hosted.footprint.resident_bytes)} on "
            f"{', '.join(self.devices_of(hosted.there.chunk))}"
            for hosted in self._hosted.values()
            if hosted.stage is Stage.STUCK and hosted.there is not None
        ]
        return (*self._source.notes(), *stuck)

    # Decisions.

    def take(self, seat: Seat) -> GpuLease:
        """Begin to make a seat real; synchronous, in the turn of the decision, so that nothing is held back by tasks.

        What it evicts is evicted, and what it restores is restored, whatever becomes of the action.

        Raises:
            UsageError: the manager is not started, or closed.
        """
        transitions = self._running()
        for victim in seat.evicts:
            transitions.evict(self._hosted[victim])
        backend: Backend | None = None
        stay: Stay | None = None
        if seat.instance is None:
            coming = transitions.empty(seat.chunk)
        else:
            hosted = self._hosted[seat.instance]
            backend = hosted.backend
            self._counts.used(seat.instance.service, asked=seat.restores)
            if seat.restores:
                stay = transitions.restore(hosted, seat.chunk)
                coming = stay.coming
            elif hosted.stay is not None and not hosted.stay.over:
                stay = hosted.stay
                coming = stay.coming
            else:
                coming = asyncio.get_running_loop().create_future()
                coming.set_exception(ServiceLostError(f"{seat.instance} is not there any more"))
        lease = GpuLease(seat, self.devices_of(seat.chunk), coming, backend, self._leases.discard, stay=stay)
        self._leases.add(lease)
        return lease

    def evict(self, instance: Instance) -> None:
        """Begin to evict an instance for nobody, if it is there; synchronous, in the order of decisions as `take`."""
        self._running().evict(self._hosted[instance])

    def _lost(self, service: str, dop: int, error: Exception) -> None:
        hosted = self._hosted.get(Instance(service, dop))
        if hosted is not None and self._transitions is not None and not self._is_closed:
            self._transitions.lost(hosted, error)

    def _running(self) -> Transitions:
        if self._transitions is None or not self._is_started or self._is_closed:
            raise UsageError("the manager of a GpuPool is used before start() or after aclose()")
        return self._transitions

    # Devices that are lent for a while.

    async def lend(self, names: Sequence[str]) -> tuple[int, GpuNode]:
        """Add devices of this machine for a while, such as those of the trainer while it does not train.

        Cancelled, or if it fails, nothing is added.

        Args:
            names: as those of the pool.

        Returns:
            The number of the first one, and the node that they are: the others follow. Devices that were lent together
            before have the numbers that they had; others have new ones, behind all that there were.

        Raises:
            ConfigurationError: there are no such devices, or the pool has one of them already.
        """
        self._running()
        devices = await self._source.lend(names)
        try:
            self._running()
            return self._nodes.lend(devices)
        except TangramError:
            await finish_anyway(_closed(devices))
            raise

    def is_lent(self, first: int, node: GpuNode) -> bool:
        """Whether devices are there by the loan for which `lend` has returned these, and not by a later one."""
        return self._nodes.node_at(first) is node and self._nodes.sites[first].is_open

    async def reclaim(self, first: int) -> None:
        """Close the devices that were lent, once what is still resident on them is evicted; nobody may use it.

        What is stuck there is tried again at once.

        Raises:
            RestoreError: something is still on them; they stay open until it lets go of them, which is tried from time
                to time, and at once when this is called again.
        """
        transitions = self._running()
        node, sites = self._nodes.node_at(first), self._nodes.sites_of(first)
        await self._stop_reclaiming(first)
        if not self.is_lent(first, node):
            return
        tried: list[asyncio.Future[None]] = []
        for hosted in self._hosted.values():
            if hosted.stay is not None and any(site.number in hosted.stay.chunk.devices for site in sites):
                transitions.evict(hosted)
            if hosted.there is not None and any(site.number in hosted.there.chunk.devices for site in sites):
                tried += transitions.try_again(hosted)
        await ended([*tried, *(future for site in sites for future in (*site.leaving, site.settled))])
        if left := [site for site in sites if site.has_residents]:
            held = "; ".join(f"{site.device.name} has {site.in_words()}" for site in left)
            self._reclaiming[first] = asyncio.get_running_loop().create_task(self._reclaim_later(sites))
            raise RestoreError(f"devices that were lent cannot be given back: {held}")
        await finish_anyway(_given_back(sites))

    async def _reclaim_later(self, sites: Sequence[Site]) -> None:
        """Close devices as soon as nothing is on them any more."""
        while left := [site for site in sites if site.has_residents]:
            await left[0].change()
        await finish_anyway(_given_back(sites))

    async def _stop_reclaiming(self, *firsts: int) -> None:
        """Wait no longer for what is on devices; those that are being closed are closed afterwards."""
        tasks = [self._reclaiming.pop(first) for first in firsts if first in self._reclaiming]
        for task in tasks:
            task.cancel()
        await ended(tasks)


async def _given_back(sites: Sequence[Site]) -> None:
    for site in sites:
        site.is_open = False
    await _closed([site.device for site in sites])


async def _closed(devices: Sequence[Device]) -> None:
    await asyncio.gather(*(device.aclose() for device in devices), return_exceptions=True)
