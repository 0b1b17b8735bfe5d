"""What there is to share: the dimensions of all pools of a runtime, in integer units."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

CPU = "cpu"
MEMORY = "memory"
THREADS = "threads"


@dataclass(frozen=True, slots=True)
class Dimension:
    """One resource that is counted.

    Attributes:
        name: unique within a topology, such as `cpu` or `quota:search/calls`.
        capacity: integer units that there are.
        scale: integer units in one whole unit (1000 for cores, 2**30 for memory).
        window_s: for a rate, the seconds after which a unit returns, counted from its grant; None
            for what is held and given back by the action itself.
    """

    name: str
    capacity: int
    scale: int = 1
    window_s: float | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """The dimensions of a runtime; an action names them by their index here."""

    dimensions: tuple[Dimension, ...]
    index: dict[str, int] = field(init=False, compare=False)

    def __init__(self, dimensions: Iterable[Dimension]) -> None:
        ordered = tuple(dimensions)
        object.__setattr__(self, "dimensions", ordered)
        object.__setattr__(self, "index", {d.name: i for i, d in enumerate(ordered)})


def quota_calls(name: str) -> str:
    """Return the name of the dimension that counts a quota's calls per period."""
    return f"quota:{name}/calls"


def quota_concurrency(name: str) -> str:
    """Return the name of the dimension that counts a quota's calls in flight."""
    return f"quota:{name}/concurrency"
