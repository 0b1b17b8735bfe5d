"""What there is to share: the dimensions of all pools of a runtime, in integer units."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

CPU = "cpu"
MEMORY = "memory"
SANDBOXES = "sandboxes"
THREADS = "threads"
PROCESSES = "processes"
GPU = "gpu"
_SERVICE = "service:"
_BREAKER = "breaker"
_NODE = re.compile(r"(?P<resource>cpu|memory|sandboxes)(@(?P<node>[^@]+))?")
_QUOTA = re.compile(
    r"quota:(?P<name>[^#/]+)(#(?P<key>[0-9]{1,9}))?/(?P<counted>calls|tokens|concurrency|breaker)(/[^/]+)?"
)


@dataclass(frozen=True, slots=True)
class Dimension:
    """One resource that is counted.

    Attributes:
        name: unique within a topology, such as `cpu` or `quota:search/calls`.
        capacity: integer units that there are.
        scale: integer units in one whole unit (1000 for cores, 2**30 for memory).
        window_s: for a rate, the seconds after which a unit returns, counted from its grant; infinite for a
            budget, of which nothing returns; None for what is held and given back by the action itself.
    """

    name: str
    capacity: int
    scale: int = 1
    window_s: float | None = None


@dataclass(frozen=True, slots=True)
class QuotaKey:
    """The dimensions of a quota, or of one of its keys if it has several.

    Attributes:
        calls: indices of those that count calls: one for each window, and the budget.
        tokens: indices of those that count tokens.
        concurrency: indices of the one that counts calls in flight, if there is one.
        breaker: indices of the one that its breaker, if it has one, opens and closes.
    """

    calls: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    concurrency: tuple[int, ...] = ()
    breaker: tuple[int, ...] = ()

    def all(self) -> tuple[int, ...]:
        """Return all of them."""
        return self.calls + self.tokens + self.concurrency + self.breaker


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of a pool; each sandbox is on one.

    Attributes:
        name: empty for the only node of a pool.
        cpu: the index of the dimension of its cores, if it has any.
        memory: the index of the dimension of its memory, if that is counted.
        sandboxes: the index of the dimension that counts its sandboxes, if there is a limit.
    """

    name: str = ""
    cpu: int | None = None
    memory: int | None = None
    sandboxes: int | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """The dimensions of a runtime; an action names them by their index here.

    Attributes:
        dimensions: in a fixed order.
        index: of each, by its name.
        nodes: of the pool, in the order of their first dimensions; none if there is no pool.
        cores: bits of the dimensions that count cores; an action takes those of one node, so of one of these.
        core_scale: integer units in a core; the same on all nodes.
        quotas: by the name of a quota, its keys in order; one if it has no keys of its own.
        services: by the name of a service, the index of the dimension that counts the actions that use it.
        seats: bits of these dimensions, and of the one that counts GPUs.
    """

    dimensions: tuple[Dimension, ...]
    index: dict[str, int] = field(init=False, compare=False)
    nodes: tuple[Node, ...] = field(init=False, compare=False)
    cores: int = field(init=False, compare=False)
    core_scale: int = field(init=False, compare=False)
    quotas: Mapping[str, tuple[QuotaKey, ...]] = field(init=False, compare=False)
    services: Mapping[str, int] = field(init=False, compare=False)
    seats: int = field(init=False, compare=False)

    def __init__(self, dimensions: Iterable[Dimension]) -> None:
        ordered = tuple(dimensions)
        object.__setattr__(self, "dimensions", ordered)
        object.__setattr__(self, "index", {d.name: i for i, d in enumerate(ordered)})
        nodes = _nodes(d.name for d in ordered)
        cores = [node.cpu for node in nodes if node.cpu is not None]
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "cores", sum(1 << dimension for dimension in cores))
        object.__setattr__(self, "core_scale", ordered[cores[0]].scale if cores else 1)
        object.__setattr__(self, "quotas", _quotas(d.name for d in ordered))
        services = {d.name.removeprefix(_SERVICE): i for i, d in enumerate(ordered) if d.name.startswith(_SERVICE)}
        seated = [*services.values(), *(i for i, d in enumerate(ordered) if d.name == GPU)]
        object.__setattr__(self, "services", services)
        object.__setattr__(self, "seats", sum(1 << dimension for dimension in seated))

    def with_capacity(self, dimension: int, units: int) -> Topology:
        """Return the same with another capacity of one dimension (its index), in integer units."""
        changed = list(self.dimensions)
        changed[dimension] = replace(changed[dimension], capacity=units)
        return Topology(changed)


def on_node(resource: str, node: str = "") -> str:
    """Return the name of a dimension of one node.

    Args:
        resource: `cpu`, `memory` or `sandboxes`.
        node: the name of the node; empty for the only node of a pool.
    """
    return f"{resource}@{node}" if node else resource


def resource_of(name: str) -> str | None:
    """Return what a dimension of a node counts (`cpu`, `memory` or `sandboxes`), or None for any other dimension."""
    parts = _NODE.fullmatch(name)
    return None if parts is None else parts["resource"]


def node_of(name: str) -> str:
    """Return the name of the node in the name of its dimension; empty for the only node of a pool."""
    parts = _NODE.fullmatch(name)
    return "" if parts is None else parts["node"] or ""


def quota_calls(name: str, key: int = 0, window_s: float | None = None) -> str:
    """Return the name of a dimension that counts a quota's calls.

    Args:
        name: of the quota.
        key: the number of the key, from 1; 0 for a quota without keys.
        window_s: its window, where a quota has several; infinite for a budget.
    """
    return f"{_quota(name, key)}/calls{_window(window_s)}"


def quota_tokens(name: str, key: int = 0, window_s: float | None = None) -> str:
    """Return the name of a dimension that counts a quota's tokens; arguments as those of `quota_calls`."""
    return f"{_quota(name, key)}/tokens{_window(window_s)}"


def quota_concurrency(name: str, key: int = 0) -> str:
    """Return the name of the dimension that counts a quota's calls in flight."""
    return f"{_quota(name, key)}/concurrency"


def quota_breaker(name: str, key: int = 0) -> str:
    """Return the name of the dimension that a quota's breaker opens and closes."""
    return f"{_quota(name, key)}/{_BREAKER}"


def service_seats(name: str) -> str:
    """Return the name of the dimension that counts the actions that use a service."""
    return f"{_SERVICE}{name}"


def is_breaker(name: str) -> bool:
    """Whether a dimension is that of a breaker: no resource, and of no interest to users."""
    return name.endswith(f"/{_BREAKER}")


def _quota(name: str, key: int) -> str:
    return f"quota:{name}#{key}" if key else f"quota:{name}"


def _window(window_s: float | None) -> str:
    if window_s is None:
        return ""
    return "/total" if math.isinf(window_s) else f"/{window_s!r}s".replace(".0s", "s")


def _nodes(names: Iterable[str]) -> tuple[Node, ...]:
    """Return the nodes of a pool, read from the names of the dimensions as quotas are."""
    found: dict[str, dict[str, int]] = {}
    for index, name in enumerate(names):
        if (parts := _NODE.fullmatch(name)) is not None:
            found.setdefault(parts["node"] or "", {})[parts["resource"]] = index
    return tuple(Node(name, **counted) for name, counted in found.items())


def _quotas(names: Iterable[str]) -> dict[str, tuple[QuotaKey, ...]]:
    """Return the keys of each quota, read from the names of the dimensions: all that a trace keeps of them."""
    found: dict[str, dict[int, dict[str, list[int]]]] = {}
    for index, name in enumerate(names):
        if (parts := _QUOTA.fullmatch(name)) is not None:
            counted = found.setdefault(parts["name"], {}).setdefault(int(parts["key"] or 0), {})
            counted.setdefault(parts["counted"], []).append(index)
    return {
        name: tuple(
            QuotaKey(**{counted: tuple(indices) for counted, indices in keys[number].items()})
            for number in sorted(keys)
        )
        for name, keys in found.items()
    }
