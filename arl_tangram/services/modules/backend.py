"""The backend of a torch service: opens, restores, evicts and moves its instances. Torch is imported by `open`."""

from __future__ import annotations

import asyncio
import gc
import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from arl_tangram.errors import RestoreError
from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.managers.gpu.extra import need_torch
from arl_tangram.managers.gpu.host.host_memory import HostMemory
from arl_tangram.managers.gpu.instances.backend import Place, StillHeldError
from arl_tangram.managers.threads import BodyThreads
from arl_tangram.model.gpu import Footprint, HostedService
from arl_tangram.model.service import Service

if TYPE_CHECKING:
    import torch

    from arl_tangram.services.modules.calls import ResidentModule
    from arl_tangram.services.modules.instance import ModuleInstance
    from arl_tangram.services.modules.loading import Loaded

_T = TypeVar("_T")

LONGEST_CALL_S = 600.0
_AT_ONCE = 256  # tensors that are attached on the loop, in less than a millisecond: a thread takes as long to begin
_LAST_CALL_S = 5.0  # that calls may take once everything is closed
# Until a restore was measured: what a plain copy on a common machine, and a PCIe 4 link, can be counted on to do.
_CPU_BYTES_PER_S, _GPU_BYTES_PER_S = 4e9, 20e9


class Declared(Protocol):
    """What a `TorchService` says; its attributes are described there."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def load(self) -> Callable[..., object]: ...  # noqa: D102
    @property
    def dops(self) -> Sequence[int]: ...  # noqa: D102
    @property
    def max_concurrency(self) -> int: ...  # noqa: D102
    @property
    def exclusive(self) -> bool: ...  # noqa: D102
    @property
    def verify(self) -> bool | None: ...  # noqa: D102


class ModuleBackend:
    """A torch service at work; for one event loop."""

    def __init__(self, declared: Declared, *, longest_call_s: float = LONGEST_CALL_S) -> None:
        self._declared = declared
        self._what = f"TorchService({declared.name!r})"
        self._longest_call_s = longest_call_s
        self._threads = BodyThreads()
        self._host: HostMemory | None = None
        self._buffers: list[str] = []
        self._sums: dict[int, torch.Tensor] = {}
        self._instances: dict[int, ModuleInstance] = {}
        self._services: list[ResidentModule] = []
        self._tell: Callable[[int, Exception], None] = _unheard
        self._renewals: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """The name that it was declared with."""
        return self._declared.name

    @property
    def keeps_memory(self) -> bool:
        """Its memory is in the arenas."""
        return False

    def on_lost(self, tell: Callable[[int, Exception], None]) -> None:
        """Take what is told when an instance is lost: when it could not be copied anew after it was written to."""
        self._tell = tell

    async def open(self, host: HostMemory, devices: Sequence[Device]) -> HostedService:
        """Call `load` on a thread, and pack what it returns into host memory.

        Raises:
            ConfigurationError: it cannot be loaded, or hosted here; the message says why.
            MissingExtraError: torch is not installed.
        """
        await self._off_loop(_import_hosting)
        from arl_tangram.services.modules import hosting  # noqa: PLC0415 - with torch, which is optional; on a thread

        declared = self._declared
        loads = await self._off_loop(partial(hosting.load, declared.load, self._what, declared.dops))
        self._host = host
        sources = await self._packed(host, loads)
        made = partial(hosting.instances, self.name, self._what, loads, sources, declared.max_concurrency)
        self._instances = await self._off_loop(made)
        if any(map(self._verifies, devices)):
            for source in (source for each in sources.values() for source in each):
                _ = await self._sums_of(source)
        sizes = {dop: max(packing.size_bytes for packing in loaded.packings) for dop, loaded in loads.items()}
        gpus = all(_is_gpu(device) for device in devices)
        # Each GPU has a link of its own; on a CPU, all copies share the memory.
        restore_s = [
            (dop, size / _GPU_BYTES_PER_S if gpus else dop * size / _CPU_BYTES_PER_S) for dop, size in sizes.items()
        ]
        return HostedService(
            name=self.name,
            footprints=tuple((dop, Footprint(size, size)) for dop, size in sizes.items()),
            restore_s=tuple(restore_s),
            max_concurrency=declared.max_concurrency,
            exclusive=declared.exclusive,
        )

    async def restore(self, dop: int, places: Sequence[Place]) -> None:
        """Copy the bytes of an instance to places, and let its modules lie there.

        Raises:
            RestoreError: a copy failed, or what has arrived is not what was sent.
            StillHeldError: views of the memory that it had before are still held.
        """
        instance = self._instances[dop]
        async with instance.changing:
            try:
                if instance.places != tuple(places):  # else a move was given up before it had begun
                    await self._let_go(instance, StillHeldError)
                    await self._copy(instance, places)
                    await self._attach(instance, places)
            finally:
                instance.admit()

    async def evict(self, dop: int) -> None:
        """Wait for calls that compute, then let the modules of an instance lie nowhere; nothing is copied.

        Raises:
            RestoreError: views of its memory are still held, by a result or the module itself; or a call does not end;
                or a buffer that the module has made cannot be copied to the host.
        """
        instance = self._instances[dop]
        async with instance.changing:
            await instance.idle(self._longest_call_s)
            await self._separate(instance, to_host=True)
            instance.detach()
            await self._let_go(instance, RestoreError)

    async def move(self, dop: int, places: Sequence[Place]) -> None:
        """Carry a resident instance to other regions of its devices; new calls wait.

        What was written to is copied from the host first.

        Raises:
            RestoreError: a copy failed; or it could not begin, and then is where it was.
        """
        instance = self._instances[dop]
        instance.hold_back()
        async with instance.changing:
            instance.hold_back()  # a renewal has let calls begin
            await instance.idle(self._longest_call_s)
            await self._separate(instance)
            await self._let_go(instance, RestoreError)
            await instance.idle(self._longest_call_s)  # as it was before garbage was collected
            before, written = instance.places, instance.is_written
            if not before:
                raise RestoreError(f"service {self.name!r} is nowhere: it could not be copied anew")
            instance.detach()
            if written:
                await self._copy(instance, before)
            try:
                await self._carry(before, places)
            except OSError as error:
                raise RestoreError(f"service {self.name!r} could not be moved on its device: {error}") from error
            try:
                await self._attach(instance, places)
            except BaseException:
                await self._carry(places, before)  # it is to be restored to where it was
                raise
            instance.admit()

    def service(self, dop: int) -> Service:
        """Return what an action gets that uses this instance, for as long as it runs."""
        from arl_tangram.services.modules.calls import ResidentModule  # noqa: PLC0415 - as above

        service = ResidentModule(self._instances[dop], self._threads, partial(self._renewed, dop))
        self._services.append(service)
        return service

    def end(self, service: Service) -> None:
        """The action ends: what it got is of no use any more."""
        for index, each in enumerate(self._services):
            if each is service:
                self._services.pop(index).end()
                return

    async def aclose(self) -> None:
        """Let go of the modules and of host memory; waits for calls that compute, but not for long."""
        for service in self._services:
            service.end()
        self._services.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_CALL_S):
                for renewal in self._renewals:
                    renewal.cancel()
                if self._renewals:
                    await asyncio.wait(self._renewals)
                for instance in self._instances.values():
                    await instance.idle(_LAST_CALL_S * 2)
        for instance in self._instances.values():
            instance.detach()
            instance.admit()
        self._instances.clear()
        self._sums.clear()
        self._threads.close()
        for buffer in self._buffers:
            assert self._host is not None
            await self._host.release(buffer)
        self._buffers.clear()

    async def _packed(self, host: HostMemory, loads: Mapping[int, Loaded]) -> dict[int, tuple[torch.Tensor, ...]]:
        """Pack what was loaded, each once, and return the bytes in host memory by dop."""
        from arl_tangram.services.modules import hosting  # noqa: PLC0415 - as above

        packed: dict[int, tuple[torch.Tensor, ...]] = {}
        for dop, loaded in loads.items():
            if id(loaded) not in packed:
                # A part that is smaller than the others has as much, because all regions of an instance are equal.
                size = max(packing.size_bytes for packing in loaded.packings)
                buffers = tuple([await self._buffer(host, dop, size) for _ in loaded.packings])
                await self._off_loop(partial(hosting.pack, loaded, buffers))
                packed[id(loaded)] = buffers
        return {dop: packed[id(loaded)] for dop, loaded in loads.items()}

    async def _buffer(self, host: HostMemory, dop: int, size: int) -> torch.Tensor:
        name = f"{self.name}/{dop}.{len(self._buffers)}" if self._buffers else self.name
        buffer = await host.allocate(name, size)
        self._buffers.append(name)
        return buffer.tensor()

    async def _copy(self, instance: ModuleInstance, places: Sequence[Place]) -> None:
        """Copy the bytes to all places at once; if one fails, nothing is written any more."""
        pairs = [(place.device, place.region, source) for place, source in zip(places, instance.sources, strict=True)]
        try:
            async with asyncio.TaskGroup() as copies:
                for device, region, source in pairs:
                    assert region is not None
                    _ = copies.create_task(device.copy_in(region, source))
        except ExceptionGroup as group:
            failed = group.exceptions[0]
            if not isinstance(failed, OSError):
                raise failed from None
            raise RestoreError(f"service {self.name!r} could not be copied to its device: {failed}") from failed
        for device, region, source in pairs:
            if self._verifies(device):
                assert region is not None
                await self._verify(device, device.view(region), source)

    async def _carry(self, before: Sequence[Place], places: Sequence[Place]) -> None:
        for old, new in zip(before, places, strict=True):
            if old.region is not None and new.region is not None and old.region != new.region:
                await new.device.move(old.region, new.region)

    async def _renewed(self, dop: int) -> None:
        """Wait until an instance that was written to is what it was; cancelling gives up the wait alone."""
        task = asyncio.get_running_loop().create_task(self._renew(dop), context=Context())
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)
        await asyncio.wait([task])
        if not task.cancelled():  # by `aclose`, which the call will see
            task.result()

    async def _renew(self, dop: int) -> None:
        """Copy an instance from the host to where it is, once nothing computes; calls wait. If that fails, it is lost.

        Raises:
            RestoreError: a call does not end; or a buffer that the module has made cannot be copied.
        """
        instance = self._instances[dop]
        async with instance.changing:
            if not instance.spoiled or not instance.places:  # somebody else has done it, or it was evicted meanwhile
                return
            instance.hold_back()
            try:
                await instance.idle(self._longest_call_s)
                await self._separate(instance)
                places = instance.places
                instance.detach()
                try:
                    await self._copy(instance, places)
                    await self._attach(instance, places)
                except Exception as error:  # noqa: BLE001 - whatever it was, it is told
                    self._tell(dop, StillHeldError(str(error)) if instance.held else error)
            finally:
                instance.admit()

    async def _attach(self, instance: ModuleInstance, places: Sequence[Place]) -> None:
        if instance.tensors <= _AT_ONCE and not instance.has_others:
            instance.attach(places)
        else:
            await self._off_loop(partial(instance.attach, places))

    async def _separate(self, instance: ModuleInstance, *, to_host: bool = False) -> None:
        """Let nothing that the modules have registered lie in their memory but what is packed there."""
        if not instance.has_others:
            return
        try:
            await self._off_loop(partial(instance.separate, to_host=to_host))
        except RuntimeError as error:
            raise RestoreError(f"service {self.name!r}: a buffer of its module cannot be copied: {error}") from error

    def _verifies(self, device: Device) -> bool:
        verify = self._declared.verify
        return _is_gpu(device) if verify is None else verify

    async def _verify(self, device: Device, memory: torch.Tensor, source: torch.Tensor) -> None:
        from arl_tangram.services.modules import hosting  # noqa: PLC0415 - as above

        sums = await self._sums_of(source)
        if differing := await self._off_loop(partial(hosting.differing, memory, sums)):
            raise RestoreError(
                f"service {self.name!r}: of {source.numel()} bytes, {differing} pieces of 1 MiB have not arrived on "
                f"{device.name} as they were sent"
            )

    async def _sums_of(self, source: torch.Tensor) -> torch.Tensor:
        """Return the sums of bytes in host memory, which are made once: reading them takes as long as a transfer."""
        from arl_tangram.services.modules import hosting  # noqa: PLC0415 - as above

        if source.data_ptr() not in self._sums:
            self._sums[source.data_ptr()] = await self._off_loop(partial(hosting.checksums, source))
        return self._sums[source.data_ptr()]

    async def _let_go(self, instance: ModuleInstance, error: type[RestoreError]) -> None:
        """Check that nobody else holds a view of memory that an instance has, or had."""
        if instance.held:
            await self._off_loop(gc.collect)  # a cycle of objects may hold it, which nobody uses any more
        if held := instance.held:
            raise error(
                f"service {self.name!r}: {held} views of its {instance.sources[0].numel()} bytes on a device are still "
                f"held, by a result, by its module or by whoever took them: that memory is not free"
            )

    async def _off_loop(self, work: Callable[[], _T]) -> _T:
        """Do something on a thread; a cancel leaves it to its end."""
        job = self._threads.run(work, ())
        await asyncio.wait([job])
        result: _T = job.result().result()
        return result


def _unheard(_dop: int, _error: Exception) -> None:
    """Nobody listens yet."""


def _import_hosting() -> None:
    need_torch()
    importlib.import_module("arl_tangram.services.modules.hosting")


def _is_gpu(device: Device) -> bool:
    return device.torch_name != "cpu"
