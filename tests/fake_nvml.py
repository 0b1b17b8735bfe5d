"""A machine with GPUs as NVML tells of it: a module with the functions of `pynvml` that we use, and its real errors."""

# ruff: noqa: N802, N803 - the names are the library's

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import pynvml

GIB = 1 << 30


@dataclass
class FakeSlice:
    """A slice that MIG makes."""

    uuid: str
    name: str = "NVIDIA H200 MIG 1g.18gb"
    total: int = 18 * GIB
    used: int = 0


@dataclass
class FakeGpu:
    """One GPU; `slices` is None where MIG is off, and has holes as NVML's numbering has."""

    uuid: str
    name: str = "NVIDIA H200"
    total: int = 141 * GIB
    used: int = 1 << 20
    bus: str = "00000000:01:00.0"
    slices: list[FakeSlice | None] | None = None
    error: int = 0
    mig_error: int = 0


@dataclass
class FakeNvml:
    """The module. `links` are the pairs with NVLink, `levels` those that are nearer than the rest by PCIe.

    Attributes:
        init_error: what `nvmlInit` raises, as a number.
        opened: how often it is open.
    """

    gpus: Sequence[FakeGpu] = ()
    init_error: int = 0
    links: set[frozenset[int]] = field(default_factory=set)
    levels: dict[frozenset[int], int] = field(default_factory=dict)
    topology_error: int = 0
    opened: int = 0
    NVMLError = pynvml.NVMLError

    def nvmlInit(self) -> None:
        if self.init_error:
            raise pynvml.NVMLError(self.init_error)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self._check()
        self.opened -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.15"

    def nvmlDeviceGetCount(self) -> int:
        self._check()
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        self._check()
        if self.gpus[index].error:
            raise pynvml.NVMLError(self.gpus[index].error)
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, handle: FakeGpu | FakeSlice) -> str:
        return handle.uuid

    def nvmlDeviceGetName(self, handle: FakeGpu | FakeSlice) -> str:
        return handle.name

    def nvmlDeviceGetPciInfo(self, handle: FakeGpu | FakeSlice) -> SimpleNamespace:
        if isinstance(handle, FakeSlice):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(busId=handle.bus.encode())

    def nvmlDeviceGetMemoryInfo(self, handle: FakeGpu | FakeSlice) -> SimpleNamespace:
        self._check()
        if isinstance(handle, FakeGpu) and handle.error:
            raise pynvml.NVMLError(handle.error)
        return SimpleNamespace(total=handle.total, free=handle.total - handle.used, used=handle.used)

    def nvmlDeviceGetMigMode(self, handle: FakeGpu) -> list[int]:
        if handle.mig_error:
            raise pynvml.NVMLError(handle.mig_error)
        return [0, 0] if handle.slices is None else [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: FakeGpu) -> int:
        return len(handle.slices or ())

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: FakeGpu, index: int) -> FakeSlice:
        piece = (device.slices or [])[index]
        if piece is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return piece

    def nvmlDeviceGetTopologyCommonAncestor(self, device1: FakeGpu, device2: FakeGpu) -> int:
        if self.topology_error:
            raise pynvml.NVMLError(self.topology_error)
        return self.levels.get(self._pair(device1, device2), pynvml.NVML_TOPOLOGY_SYSTEM)

    def nvmlDeviceGetP2PStatus(self, device1: FakeGpu, device2: FakeGpu, p2pIndex: int) -> int:
        if self.topology_error:
            raise pynvml.NVMLError(self.topology_error)
        assert p2pIndex == pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        linked = self._pair(device1, device2) in self.links
        return pynvml.NVML_P2P_STATUS_OK if linked else pynvml.NVML_P2P_STATUS_NOT_SUPPORTED

    def _pair(self, one: FakeGpu, other: FakeGpu) -> frozenset[int]:
        places = {id(gpu): number for number, gpu in enumerate(self.gpus)}
        return frozenset({places[id(one)], places[id(other)]})

    def _check(self) -> None:
        if not self.opened:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)


def uuid(number: int, kind: str = "GPU") -> str:
    """Return a UUID that differs from others in its beginning."""
    return f"{kind}-{number:x}{number:x}0c41f2-1111-2222-3333-444455556666"


def eight_h200() -> FakeNvml:
    """Return a node with eight GPUs, each of which has NVLink to all others."""
    gpus = [FakeGpu(uuid(number), bus=f"00000000:{number + 1:02X}:00.0") for number in range(8)]
    return FakeNvml(gpus, links={frozenset({a, b}) for a in range(8) for b in range(8) if a != b})
