"""What `demo --judge` is about: the services and their sizes, the memory for two of them, the ways to place them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

WayName: TypeAlias = Literal["static", "lru", "loss"]
WAYS: tuple[WayName, ...] = ("static", "lru", "loss")
"""Fixed slots; and the policies of a pool that has the memory of these slots together."""

ServiceName: TypeAlias = Literal["teacher-math", "teacher-code", "teacher-science", "teacher-chat", "judge", "reward"]

LAYERS: Mapping[ServiceName, int] = {
    "teacher-math": 10,
    "teacher-code": 9,
    "teacher-science": 8,
    "teacher-chat": 7,
    "judge": 9,
    "reward": 7,
}
"""Layers of each service's encoder; a layer is 12 MiB. Any two fit into the arena, and no three."""

SERVICES: tuple[ServiceName, ...] = tuple(LAYERS)
SLOTS = 2
"""Services that are there at once."""

CORES = 1
"""Cores for the sandboxes; the models compute on the others."""

VOCABULARY = 4096
WIDTH = 512
HEADS = 8
LENGTH = 64
"""Tokens of each text that is scored."""
MAX_CONCURRENCY = 2
"""Actions that use a service at once."""

TEACHERS: Mapping[str, ServiceName] = {
    "math": "teacher-math",
    "code": "teacher-code",
    "science": "teacher-science",
    "chat": "teacher-chat",
}
"""The teacher of each domain."""
WEIGHTS: Mapping[str, float] = {"math": 4, "code": 3, "science": 2, "chat": 1}
"""How often a trajectory is of a domain."""

_FLOAT = 4


def size_of(service: ServiceName) -> int:
    """Return the bytes of the weights of a service."""
    square, vector = WIDTH * WIDTH, WIDTH
    attention = 4 * square + 4 * vector
    feed_forward = 8 * square + 5 * vector
    norms = 4 * vector
    embeddings = (VOCABULARY + LENGTH) * WIDTH
    return _FLOAT * (embeddings + LAYERS[service] * (attention + feed_forward + norms))


def slot_mib() -> int:
    """Return the MiB of a slot: the largest service, and less than 1 MiB more for aligning its tensors."""
    return max(size_of(service) for service in SERVICES) // (1 << 20) + 1
