"""What workloads run on: one pool of cores, or machines like those of the published testbed."""

from __future__ import annotations

from dataclasses import dataclass

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.gpu import GpuDevice, GpuNode
from arl_tangram.model.quantities import GIB, MILLI, bytes_of_gib, whole
from arl_tangram.model.topology import CPU, MEMORY, THREADS, Dimension, Topology, on_node


def pool(cores: int, *, memory_gib: int = 1024, threads: int = 128) -> Topology:
    """Return cores, memory and threads of a runtime with one pool of cores."""
    return Topology(
        [Dimension(CPU, cores * MILLI, MILLI), Dimension(MEMORY, memory_gib * GIB, GIB), Dimension(THREADS, threads)]
    )


@dataclass(frozen=True, slots=True)
class Testbed:
    """The machines that the published results were measured on, as far as they are told (arXiv 2603.13019).

    Attributes:
        nodes: machines with cores (the paper: 15).
        cores: of each of these (the paper: 256).
        memory_gib: of each of these (the paper: 2.4 TB).
        gpu_nodes: machines with GPUs (the paper: 5).
        gpus: of each of these (the paper: 8).
        gpu_gib: of each GPU, what services can have; our assumption: the paper names no GPU, and a card of 80 GB
            tells of 79.6 GiB.
        host_gib: memory of each machine with GPUs, where evicted services are (the paper: 3 TB).

    Raises:
        ConfigurationError: a value that is not possible.
    """

    __test__ = False  # not a class of tests

    nodes: int = 15
    cores: int = 256
    memory_gib: int = 2235
    gpu_nodes: int = 5
    gpus: int = 8
    gpu_gib: float = 79.0
    host_gib: int = 2793

    def __post_init__(self) -> None:
        for what in ("nodes", "cores", "memory_gib", "gpu_nodes", "gpus", "host_gib"):
            whole(getattr(self, what), f"Testbed({what}=)", ConfigurationError, least=1)
        bytes_of_gib(self.gpu_gib, "Testbed(gpu_gib=)", ConfigurationError)

    def dimensions(self) -> tuple[Dimension, ...]:
        """Return the cores and the memory of each machine with cores: what a topology of it begins with."""
        found: list[Dimension] = []
        for number in range(self.nodes):
            name = f"node{number}"
            found.append(Dimension(on_node(CPU, name), self.cores * MILLI, MILLI))
            found.append(Dimension(on_node(MEMORY, name), self.memory_gib * GIB, GIB))
        return tuple(found)

    def devices(self) -> tuple[GpuNode, ...]:
        """Return the machines with GPUs."""
        size = bytes_of_gib(self.gpu_gib, "Testbed(gpu_gib=)", ConfigurationError)
        return tuple(
            GpuNode(f"gpus{node}", tuple(GpuDevice(f"gpus{node}:{gpu}", size) for gpu in range(self.gpus)))
            for node in range(self.gpu_nodes)
        )
