"""Thousands of verified leases on devices of memory: cancelled anywhere, copies that fail, free memory poisoned.

Scheduler, manager, devices and torch services are the real ones. What a module answers is the sum of all its bytes, so
that a single byte of another module, or of free memory, is a wrong answer.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

from arl_tangram.errors import EvictedServiceError, InfrastructureError, RestoreError
from arl_tangram.managers.gpu.devices.cpu.device import CpuDevice
from arl_tangram.managers.gpu.devices.device import Device, Region
from arl_tangram.managers.gpu.host.host_memory import HostMemory
from arl_tangram.managers.gpu.lease import GpuLease
from arl_tangram.managers.gpu.manager import GpuManager
from arl_tangram.model.gpu import Chunk, Seat
from arl_tangram.services.torch_service import TorchService
from gpu_driver import Driver

torch.set_num_threads(1)
MIB = 1 << 20
WORKERS, JOBS = 12, 75


class Summed(nn.Module):
    """Answers with the sum of its bytes: exact, and different if any byte is."""

    def __init__(self, seed: int, mib: float) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        words = int(mib * MIB) // 4
        self.register_buffer("words", torch.randint(-(2**31), 2**31 - 1, (words,), generator=draw, dtype=torch.int32))
        self.scale = nn.Parameter(torch.rand(7, generator=draw))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.words, torch.Tensor)
        total = self.words.sum(dtype=torch.int64) + self.scale.view(torch.int32).sum(dtype=torch.int64)
        return rows + total


class Faults:
    """Lets copies fail now and then; asked on threads."""

    def __init__(self, seed: int, share: float) -> None:
        self._draw = random.Random(seed)
        self._lock = threading.Lock()
        self._share = share
        self.count = 0

    def strike(self, _: Region) -> None:
        with self._lock:
            if self._draw.random() >= self._share:
                return
            self.count += 1
        raise OSError("the link is down")

    def stop(self) -> None:
        with self._lock:
            self._share = 0.0


@dataclass
class Memory:
    """Opens devices of memory that is poisoned when it is free."""

    mib: Sequence[float]
    faults: Faults
    devices: list[CpuDevice] = field(default_factory=list)

    async def open(self, *, shared: bool, arenas: bool = True) -> Sequence[Device]:
        self.devices = [
            CpuDevice(f"cpu:{number}", int(mib * MIB), poison=True, fault=self.faults.strike)
            for number, mib in enumerate(self.mib)
        ]
        return self.devices

    async def lend(self, names: Sequence[str]) -> Sequence[Device]:
        raise NotImplementedError

    async def host_memory(self) -> HostMemory:
        return HostMemory(256 * MIB)

    def notes(self) -> tuple[str, ...]:
        return ()


MODULES = {"tiny": 0.5, "small": 1.0, "middle": 3.0, "large": 6.0, "larger": 9.0, "big": 14.0}


@pytest.mark.timeout(90)
@pytest.mark.parametrize("seed", range(4))
async def test_no_wrong_answer_no_leak_and_nobody_starves(seed: int) -> None:
    draw, faults, seen = random.Random(seed), Faults(seed, 0.15), Counter[str]()
    modules = {name: Summed(number, mib) for number, (name, mib) in enumerate(MODULES.items())}
    rows = torch.arange(4)
    answers = {name: module(rows) for name, module in modules.items()}
    services = [
        TorchService(
            name,
            load=lambda module=module: module,
            dops=(1, 2) if name in {"small", "large"} else (1,),
            max_concurrency=draw.choice([1, 2, 4]),
        )
        for name, module in modules.items()
    ]
    memory = Memory((15.5, 7.5), faults)
    manager = GpuManager(services, memory)
    await manager.start()
    driver = Driver(manager)

    async def body(lease: GpuLease) -> None:
        service = lease.service
        for _ in range(draw.choice([1, 1, 2])):
            assert torch.equal(await service.call(rows), answers[service.name]), f"{service.name} has a wrong answer"
            seen["verified"] += 1
            if draw.random() < 0.2:
                await asyncio.sleep(draw.random() * 0.003)  # it is held, and may be moved, while nothing computes
        seen["leases"] += 1

    async def job(name: str, gives_up: bool) -> None:
        try:
            async with asyncio.timeout(draw.random() * 0.1 if gives_up else None):
                await driver.run(name, body)
        except TimeoutError:
            seen["cancelled"] += 1
        except RestoreError:
            seen["given up"] += 1
        except InfrastructureError:
            seen["lost"] += 1

    async def worker() -> None:
        for _ in range(JOBS):
            # The small ones are asked for most, so that the big one has somebody to be starved by.
            name = draw.choices(list(MODULES), weights=[4, 4, 3, 2, 2, 1])[0]
            await job(name, draw.random() < 0.25)

    await asyncio.gather(*(worker() for _ in range(WORKERS)))
    faults.stop()
    for name in MODULES:
        await driver.run(name, body)
    counts = manager.statistics()
    for instance, _ in driver.seats.resident():
        manager.evict(instance)
    for number, device in enumerate(memory.devices):
        lease = manager.take(Seat(Chunk(number, 1)))  # waits until nothing is there
        await lease.ready()
        lease.release()
        assert device.free_bytes == device.largest_hole == device.capacity_bytes
    driver.close()
    await manager.aclose()
    assert seen["leases"] + seen["cancelled"] + seen["given up"] + seen["lost"] == WORKERS * JOBS + len(MODULES)
    assert seen["leases"] > 500
    assert seen["cancelled"] > 20
    assert faults.count > 2
    assert sum(service.restores for service in counts.values()) > 30
    assert sum(service.moves for service in counts.values()) > 0
    # It fits on the first device only. There, each of those who wait before it lets 64 pass at most.
    assert driver.most_passed["big"] <= 64, driver.most_passed
    with pytest.raises(EvictedServiceError):
        modules["big"](rows)
