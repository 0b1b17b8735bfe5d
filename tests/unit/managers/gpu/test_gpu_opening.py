"""A pool is opened as it was declared, or refused with what was asked and what there is; lent devices come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from arl_tangram.errors import ConfigurationError, RestoreError, UsageError
from arl_tangram.managers.gpu.devices.cuda.device import CudaDevice
from arl_tangram.managers.gpu.devices.fake_device import FakeDevice
from arl_tangram.managers.gpu.discovery.found import FoundGpus, Gpu
from arl_tangram.managers.gpu.discovery.machine_devices import MachineDevices
from arl_tangram.managers.gpu.manager import GpuManager
from arl_tangram.managers.gpu.pool import GpuPool
from arl_tangram.model.gpu import Chunk, Instance, Seat
from arl_tangram.model.quantities import GIB
from fake_services import MIB, FakeService, FakeSource, started

pytestmark = pytest.mark.looptime


async def refused(source: FakeSource, *services: FakeService) -> str:
    """Return why a pool cannot be opened; it must be possible to close it then."""
    manager = GpuManager(services, source)
    with pytest.raises(ConfigurationError) as caught:
        await manager.start()
    await manager.aclose()
    assert [service.name for service in services if not service.is_closed] == []
    return str(caught.value)


async def test_services_are_loaded_one_after_the_other() -> None:
    services = [FakeService(f"s{number}", load_s=10) for number in range(8)]
    manager, _ = await started(FakeSource(100), *services)
    assert asyncio.get_running_loop().time() == pytest.approx(80, abs=1)
    assert [service.name for service in manager.services] == [service.name for service in services]
    assert manager.nodes[0].devices[0].capacity_bytes == 100 * MIB
    assert manager.describe() == "fake:0 100.0 MiB: 8 services, evicted by loss"
    await manager.aclose()


async def test_engines_are_loaded_before_the_rest() -> None:
    engine, module = FakeService("e", keeps_memory=True, load_s=5), FakeService("m")
    manager, _ = await started(FakeSource(100), module, engine)
    assert module.at("open") >= engine.at("open")
    await manager.aclose()


async def test_a_load_that_raises() -> None:
    slow = FakeService("slow", load_s=1000)
    why = await refused(FakeSource(100), FakeService("broken", load_error=KeyError("weights")), slow)
    assert why == "service 'broken' cannot be loaded: KeyError('weights')"
    assert asyncio.get_running_loop().time() < 1  # the others are given up


async def test_one_that_is_larger_than_any_device() -> None:
    why = await refused(FakeSource(50, 60), FakeService("big", mib=80))
    assert why == (
        "service 'big' with dop 1 needs 80.0 MiB on each device; the most that there is, on fake:1, is 60.0 MiB"
    )


async def test_one_whose_restore_takes_more_than_any_device_has() -> None:
    assert "needs 65.0 MiB" in await refused(FakeSource(60), FakeService("big", mib=50, peak_mib=65))


async def test_one_that_does_not_fit_beside_what_sleeps() -> None:
    engine = FakeService("e", mib=50, asleep_mib=30, keeps_memory=True, chunks=((1, Chunk(0, 1)),))
    why = await refused(FakeSource(100), engine, FakeService("big", mib=80))
    assert "is 70.0 MiB beside what sleeping engines keep there" in why


async def test_a_dop_without_devices() -> None:
    why = await refused(FakeSource(100, 100, 100), FakeService("wide", dops=(1, 4)))
    assert why == (
        "service 'wide' with dop 4 needs 4 neighbouring devices, in whole groups of 4; the pool has 3 devices"
    )
    engine = FakeService("e", keeps_memory=True, chunks=((1, Chunk(7, 1)),))
    assert "devices up to number 7; the pool has 1, from 0" in await refused(FakeSource(100), engine)


async def test_a_service_that_does_not_know_what_it_needs() -> None:
    assert "says that it needs" in await refused(FakeSource(100), FakeService("odd", mib=5, asleep_mib=9))
    why = await refused(FakeSource(100), FakeService("odd", mib=5, asleep_mib=2))
    assert why == "service 'odd' keeps memory where it sleeps, and does not say where"


async def test_cancelled_while_it_is_opened() -> None:
    slow = FakeService("slow", load_s=1000)
    manager = GpuManager([slow], FakeSource(100))
    starting = asyncio.create_task(manager.start())
    await asyncio.sleep(1)
    starting.cancel()
    await asyncio.wait([starting])
    await manager.aclose()
    assert slow.is_closed
    assert asyncio.get_running_loop().time() < 2


async def test_used_before_it_is_started() -> None:
    manager = GpuManager([], FakeSource(100))
    with pytest.raises(UsageError, match="before start"):
        manager.take(Seat(Chunk(0, 1)))
    assert "not started" in manager.describe()


# Devices that are lent.


async def test_lent_devices_come_and_go() -> None:
    source, a = FakeSource(100, lendable=[("t:0", 200), ("t:1", 200)]), FakeService("a", mib=40)
    manager, _ = await started(source, a)
    first, node = await manager.lend(["t:0", "t:1"])
    assert (first, [device.name for device in node.devices]) == (1, ["t:0", "t:1"])
    assert manager.nodes[1] == node
    lease = manager.take(Seat(Chunk(1, 1), Instance("a", 1), restores=True))
    await lease.ready()
    assert lease.devices == ("t:0",)
    lease.release()
    await manager.reclaim(first)  # which evicts what is still there
    assert a.resident == {}
    assert source.lent[0].free_bytes == 200 * MIB
    refused = manager.take(Seat(Chunk(1, 1), Instance("a", 1), restores=True))
    with pytest.raises(RestoreError, match="t:0 was taken back"):
        await refused.ready()
    assert await manager.lend(["t:0", "t:1"]) == (first, node)  # the numbers that they had
    assert len(manager.nodes) == 2
    again = manager.take(Seat(Chunk(2, 1), Instance("a", 1), restores=True))
    await again.ready()
    await again.service.call()
    again.release()
    await manager.reclaim(first)
    await manager.aclose()


async def test_what_is_not_given_up_stays_lent() -> None:
    a = FakeService("a", mib=40, evict_errors=[RestoreError("held")])
    manager, _ = await started(FakeSource(100, lendable=[("t:0", 200)]), a)
    first, _ = await manager.lend(["t:0"])
    lease = manager.take(Seat(Chunk(1, 1), Instance("a", 1), restores=True))
    await lease.ready()
    lease.release()
    with pytest.raises(RestoreError, match=r"cannot be given back: t:0 has a/1 with 40\.0 MiB"):
        await manager.reclaim(first)
    await asyncio.sleep(5)
    await manager.reclaim(first)
    await manager.aclose()


async def test_lent_devices_of_another_size_are_the_same_devices() -> None:
    """Of a GPU, what others leave free at that moment is lent: hardly ever the same number of bytes."""
    source = FakeSource(100, lendable=[("t:0", 200)])
    manager, _ = await started(source, FakeService("a", mib=100))
    for mib in (200, 180, 210):
        source.lendable["t:0"] = mib
        first, node = await manager.lend(["t:0"])
        assert (first, node.devices[0].capacity_bytes) == (1, mib * MIB)
        assert manager.nodes[1:] == (node,)
        lease = manager.take(Seat(Chunk(1, 1), Instance("a", 1), restores=True))
        await lease.ready()
        lease.release()
        assert f"t:0 {mib}.0 MiB" in manager.describe()
        await manager.reclaim(first)
        assert "t:0" not in manager.describe()
    await manager.aclose()


async def test_devices_are_given_back_when_what_is_stuck_there_lets_go() -> None:
    a = FakeService("a", mib=40)
    manager, _ = await started(FakeSource(100, lendable=[("t:0", 200)]), a)
    for ends in ("it lets go", "it lets go", "closed meanwhile"):
        first, _ = await manager.lend(["t:0"])
        lease = manager.take(Seat(Chunk(1, 1), Instance("a", 1), restores=True))
        await lease.ready()
        lease.release()
        a.evict_errors = [RestoreError("held")] * 3
        with pytest.raises(RestoreError, match="cannot be given back"):
            await manager.reclaim(first)
        with pytest.raises(ConfigurationError, match="has it already"):
            await manager.lend(["t:0"])
        if ends == "it lets go":
            await asyncio.sleep(20)
            assert "t:0" not in manager.describe()
            await manager.reclaim(first)  # nothing is left to do
    await manager.aclose()


async def test_without_services_that_are_copied_there_are_no_arenas() -> None:
    for keep, opened_with in (
        ([False], (False, True)),
        ([False, True], (True, True)),
        ([True], (True, False)),
        ([], (False, False)),
    ):
        services = [FakeService(f"s{number}", keeps_memory=keeps) for number, keeps in enumerate(keep)]
        manager, _ = await started(source := FakeSource(100), *services)
        assert source.opened_with == opened_with
        await manager.aclose()


async def test_a_device_that_the_pool_has_is_not_lent() -> None:
    source = FakeSource(100, lendable=[("fake:0", 100)])
    manager, _ = await started(source)
    with pytest.raises(ConfigurationError, match="fake:0 cannot be lent to a pool that has it already"):
        await manager.lend(["fake:0"])
    assert len(manager.nodes) == 1
    await manager.aclose()


# The declaration.


@pytest.mark.parametrize(
    ("keywords", "why"),
    [
        ({"devices": []}, "at least one device"),
        ({"devices": "cuda:0"}, "takes 'auto' or names of devices, not 'cuda:0'"),
        ({"devices": ["cpu:0:4GiB", "cpu:0:8GiB"]}, "'cpu:0' is there twice"),
        ({"devices": ["cpu:0"]}, "a part of the machine's memory is called like 'cpu:0:4GiB'"),
        ({"devices": ["cpu:0:0GiB"]}, "is no device"),
        ({"devices": [3]}, "3 is no name of a device"),
        ({"devices": ["cuda:0", "cuda:0"]}, "'cuda:0' is there twice"),
        ({"policy": "random"}, "there are 'loss', 'lru' and 'gdsf'"),
        ({"host_gib": 0}, "above 0"),
        ({"host_gib": -1}, "host_gib"),
        ({"reserve": 1}, "a share from 0 to 0.9"),
        ({"reserve": True}, "a share from 0 to 0.9"),
    ],
)
def test_a_declaration_that_cannot_work(keywords: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        GpuPool(**keywords)


def test_services_that_cannot_work() -> None:
    with pytest.raises(ConfigurationError, match="two services have the name 'a'"):
        GpuPool(_Declared("a"), _Declared("b"), _Declared("a"))
    for wrong in (_Declared, "judge", None):
        with pytest.raises(ConfigurationError, match="takes services, such as TorchService"):
            GpuPool(wrong)  # type: ignore[arg-type]


def test_a_declaration_is_a_value() -> None:
    assert GpuPool(devices=["cpu:0:4GiB"]) == GpuPool(devices=("cpu:0:4GiB",))
    assert GpuPool(devices=["cpu:0:4GiB"]) != GpuPool(devices=["cpu:0:5GiB"])
    assert repr(GpuPool()) == "GpuPool(services=(), devices='auto', policy='loss', host_gib=None, reserve=0.15)"


class _Declared:
    def __init__(self, name: str) -> None:
        self.name = name

    def backend(self) -> Any:
        raise NotImplementedError


# The devices of this machine.


def machine(names: Sequence[str] | None, *gpus: Gpu) -> MachineDevices:
    found = FoundGpus(gpus, "" if gpus else "no driver of NVIDIA", ("GPU-1: 40 GiB are in use",) if gpus else ())
    return MachineDevices(None if names is None else tuple(names), reserve=0.15, host_bytes=1 << 30, find=lambda: found)


async def test_no_gpus_are_said_plainly() -> None:
    with pytest.raises(ConfigurationError, match=r"there are no GPUs: no driver of NVIDIA\. With devices=\['cpu"):
        await machine(None).open(shared=False)
    with pytest.raises(ConfigurationError, match="no GPU is called 'GPU-1'"):
        await machine(["cpu:0:1GiB", "GPU-1"]).open(shared=False)


async def test_parts_of_memory_are_devices() -> None:
    source = machine(["cpu:0:64MiB", "cpu:1:0.5GiB"])
    devices = await source.open(shared=False)
    assert [(device.name, device.capacity_bytes) for device in devices] == [("cpu:0", 64 * MIB), ("cpu:1", 512 * MIB)]
    assert (await source.host_memory()).budget_bytes == 1 << 30
    for device in devices:
        await device.aclose()


async def test_more_memory_than_the_machine_has_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"cpu:0 with 9000000.00 GiB: of this machine's memory, .* can be"):
        await machine(["cpu:0:9000000GiB"]).open(shared=False)


async def test_host_memory_is_what_devices_leave_of_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arl_tangram.managers.gpu.discovery.machine_devices.available_bytes", lambda: 10 * GIB)
    source = MachineDevices(("cpu:0:4GiB", "cpu:1:1GiB"), reserve=0.15, host_bytes=None)
    devices = await source.open(shared=False)  # which take their pages when they are written
    assert (await source.host_memory()).budget_bytes == 4 * GIB
    for device in devices:
        await device.aclose()


async def test_gpus_without_arenas_need_no_torch_and_take_no_memory(opened_gpus: list[tuple[str, int, bool]]) -> None:
    source = machine(["GPU-0"], gpu("GPU-0"), gpu("GPU-1"))
    devices = [*await source.open(shared=True, arenas=False), *await source.lend(["GPU-1"])]
    assert opened_gpus == []
    assert [(device.name, device.torch_name, device.holds_all) for device in devices] == [
        ("GPU-0", "cuda:0", False),
        ("GPU-1", "cuda:1", False),
    ]
    assert devices[0].capacity_bytes == 85 * GIB
    assert devices[0].allocate(1) is None
    await devices[0].vacate()
    await devices[0].occupy()
    for device in devices:
        await device.aclose()
    assert (await source.host_memory())._pinner is None


async def test_a_gpu_of_which_torch_has_no_known_number_is_called_by_its_uuid() -> None:
    (device,) = await machine(None, replace(gpu("GPU-0"), cuda_index=None)).open(shared=True, arenas=False)
    assert (device.name, device.torch_name) == ("GPU-0", "GPU-0")
    await device.aclose()


@pytest.fixture
def opened_gpus(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, bool]]:
    """What GPUs were opened, with how many GiB, and whether their memory is left to others."""
    opened: list[tuple[str, int, bool]] = []

    async def open_gpu(name: str, size: int, *, cuda_index: int, vacated: bool) -> FakeDevice:
        opened.append((name, size // GIB, vacated))
        return FakeDevice(name, size)

    monkeypatch.setattr(CudaDevice, "open", open_gpu)
    return opened


def gpu(uuid: str, *, free_gib: int = 100) -> Gpu:
    return Gpu(uuid, "NVIDIA H200", 100 * GIB, free_gib * GIB, None, int(uuid[-1]))


async def test_memory_that_others_use_is_theirs(opened_gpus: list[tuple[str, int, bool]]) -> None:
    source = machine(None, gpu("GPU-0"), gpu("GPU-1", free_gib=60))
    await source.open(shared=False)
    assert opened_gpus == [("GPU-0", 85, False), ("GPU-1", 45, False)]
    assert source.notes() == ("GPU-1: 40 GiB are in use",)
    full = machine(["GPU-0"], gpu("GPU-0", free_gib=10))
    with pytest.raises(ConfigurationError, match=r"10.00 GiB of 100.00 GiB can be used, and reserve=0.15 of all"):
        await full.open(shared=False)


async def test_memory_that_engines_of_the_pool_use_is_the_pools(opened_gpus: list[tuple[str, int, bool]]) -> None:
    await machine(["cuda:1"], gpu("GPU-0"), gpu("GPU-1", free_gib=10)).open(shared=True)
    assert opened_gpus == [("GPU-1", 85, True)]


async def test_what_was_opened_is_closed_if_the_next_one_fails(opened_gpus: list[tuple[str, int, bool]]) -> None:
    source = machine(None, gpu("GPU-0"), gpu("GPU-1", free_gib=5))
    with pytest.raises(ConfigurationError):
        await source.open(shared=False)
    assert [name for name, _, _ in opened_gpus] == ["GPU-0"]


async def test_pinned_host_memory_where_there_are_gpus(opened_gpus: list[tuple[str, int, bool]]) -> None:
    source = machine(None, gpu("GPU-0"))
    assert (await source.host_memory())._pinner is None
    await source.open(shared=False)
    assert (await source.host_memory())._pinner is not None
