"""What a host offers to a pool: which of its cores, and how much memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.docker.answers import EngineInfo
from arl_tangram.managers.docker.declared import HostSettings
from arl_tangram.managers.docker.neighbours import share_of_memory
from arl_tangram.managers.docker.probe import host_cores
from arl_tangram.managers.host.cgroup import cpulist
from arl_tangram.managers.host.machine import Machine, parse_cpulist
from arl_tangram.managers.manager import counted

NumaNodes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """What a host offers.

    Attributes:
        nodes: cores that the pool could have there, by NUMA node.
        cores: how many it has.
        memory_bytes: memory that it has.
        most_memory_bytes: memory that it could have.
    """

    nodes: NumaNodes
    cores: int
    memory_bytes: int
    most_memory_bytes: int

    @property
    def most_cores(self) -> int:
        """How many cores the pool could have there."""
        return sum(map(len, self.nodes))


def offer(
    host: HostSettings,
    info: EngineInfo,
    machine: Machine | None,
    *,
    said: str,
    taken: Collection[int] = (),
    shares: bool = False,
) -> Offer:
    """Return what a host offers.

    Args:
        host: what was declared of it.
        info: what its daemon tells.
        machine: this machine, if it is that.
        said: what it is called in messages.
        taken: cores of its machine that other hosts of the pool have.
        shares: whether there are such hosts, so that it has no more cores than it takes now.

    Raises:
        ConfigurationError: there is less than was asked.
    """
    nodes = _without(_cores(host, info, machine, said), taken)
    count = sum(map(len, nodes))
    if count < (host.cores or 1):
        raise ConfigurationError(_too_few(host, said, count, machine, taken))
    cores = host.cores or count
    if shares:
        nodes = _first(nodes, cores)
    memory = share_of_memory(
        host.memory_bytes,
        host.beside,
        said=said,
        usable=info.memory_bytes if machine is None else min(info.memory_bytes, machine.memory_bytes),
        there_is=info.memory_bytes,
    )
    return Offer(nodes, cores, memory, memory if host.beside else info.memory_bytes)


def _cores(host: HostSettings, info: EngineInfo, machine: Machine | None, said: str) -> NumaNodes:
    asked = host.core_ids
    if asked is None:
        return host_cores(info.ncpu, machine)
    known = _online() if machine is not None else tuple(range(info.ncpu))
    if missing := sorted(set(asked) - set(known)):
        there_are = f"there is no core {missing[0]} among {cpulist(known)}"
        raise ConfigurationError(f"{said} shall give the cores {cpulist(asked)}, and {there_are}")
    local = [tuple(core for core in node if core in asked) for node in (machine.nodes if machine is not None else ())]
    rest = tuple(sorted(set(asked) - {core for node in local for core in node}))
    return tuple(node for node in (*local, rest) if node)


def _too_few(host: HostSettings, said: str, count: int, machine: Machine | None, taken: Collection[int]) -> str:
    asked = counted(host.cores, "core") if host.cores else "cores"
    if taken:
        which = "this" if machine is not None else "that"
        return (
            f"{said} shall give {asked}, and {count} of {which} machine are left: other hosts of the pool have "
            f"{cpulist(sorted(taken))}; give each its cores= or core_ids="
        )
    why = " (of this machine, this process may use no more; core_ids= names others)" if machine is not None else ""
    return f"{said} shall give {asked}, and {count} can be used{why}"


def _without(nodes: NumaNodes, taken: Collection[int]) -> NumaNodes:
    left = (tuple(core for core in node if core not in taken) for node in nodes)
    return tuple(node for node in left if node)


def _first(nodes: NumaNodes, count: int) -> NumaNodes:
    found: list[tuple[int, ...]] = []
    for node in nodes:
        found.append(node[:count])
        count -= len(found[-1])
    return tuple(node for node in found if node)


def _online() -> Sequence[int]:
    return parse_cpulist(Path("/sys/devices/system/cpu/online").read_text())
