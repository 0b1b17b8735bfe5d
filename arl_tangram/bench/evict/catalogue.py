"""Made-up services for `bench evict`: as large, and as slow to restore, as models are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arl_tangram.model.gpu import Footprint, GpuDevice, GpuNode, HostedService
from arl_tangram.model.quantities import GIB

DEVICES = 8
DEVICE_GIB = 64
"""Of a device, what services can have."""

RESTORE_GB_PER_S = 53.0
"""To each device, at once: what pinned memory was seen to give over one PCIe 5.0 link."""

ENGINE_S = 1.5
"""What an engine of its own adds: it has to wake, and to be probed."""

MODELS: tuple[tuple[float, int, float], ...] = (
    (1.3, 1, 0.2),
    (3.0, 1, 0.2),
    (15.0, 1, 0.25),
    (28.0, 1, 0.15),
    (62.0, 2, 0.15),
    (140.0, 4, 0.05),
)
"""Sizes in GiB, on how many devices, and how common: encoders, and models of 1 to 70 thousand million weights."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What there is.

    Attributes:
        nodes: the devices.
        services: one instance each.
    """

    nodes: tuple[GpuNode, ...]
    services: tuple[HostedService, ...]

    @property
    def crowding(self) -> float:
        """How many times the memory of all devices the services need together."""
        there = sum(device.capacity_bytes for node in self.nodes for device in node.devices)
        return sum(dop * f.resident_bytes for service in self.services for dop, f in service.footprints) / there


def make_catalogue(names: Sequence[str], rng: np.random.Generator, *, engines: float = 0.0) -> Catalogue:
    """Draw a service for each name.

    Args:
        names: of the services.
        rng: draws sizes, which do not depend on how often a service is asked for.
        engines: the share of services that are servers of their own.
    """
    common = np.array([share for _, _, share in MODELS])
    services: list[HostedService] = []
    for name in names:
        gib, dop, _ = MODELS[int(rng.choice(len(MODELS), p=common / common.sum()))]
        size = int(gib * float(rng.uniform(0.8, 1.2)) * GIB) // dop
        restore_s = size / (RESTORE_GB_PER_S * 1e9) + (ENGINE_S if rng.random() < engines else 0.0)
        services.append(HostedService(name, ((dop, Footprint(size, size)),), ((dop, restore_s),)))
    devices = tuple(GpuDevice(f"gpu{i}", DEVICE_GIB * GIB) for i in range(DEVICES))
    return Catalogue((GpuNode("", devices),), tuple(services))
