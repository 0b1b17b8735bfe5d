"""Measure the contenders of `bench ray` in turns, with some clients at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from arl_tangram.bench.ray.clients import ECHO, SHARED_NAME, Client, Echo, pools
from arl_tangram.bench.ray.figures import CONTENDERS, Round, round_of
from arl_tangram.bench.ray_task import own_cluster
from arl_tangram.integrations.ray import share
from arl_tangram.integrations.ray.installed import Handle, Library, connected, find_ray


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        clients: the numbers of clients.
        rounds: those that count; one more comes first.
        latencies: calls one after the other, of all clients together.
        calls: calls with many in flight, of all clients together.
        in_flight: of each client.
    """

    clients: Sequence[int]
    rounds: int
    latencies: int
    calls: int
    in_flight: int


@contextmanager
def cluster(cores: int) -> Generator[Library]:
    """Start a cluster of this machine; see `own_cluster`.

    Raises:
        MissingExtraError: Ray is not installed.
    """
    with own_cluster(find_ray(), cores):
        yield connected(start=False)


async def measure(library: Library, size: Size, tell: Callable[[str], None]) -> list[Round]:
    """Measure all contenders with all numbers of clients."""
    found: list[Round] = []
    async with share(pools, name=SHARED_NAME):
        echo = _started(library, Echo, ECHO)
        clients = [_started(library, Client, f"bench-client-{number}") for number in range(max(size.clients))]
        try:
            await _all(library, clients, "open")
            for count in size.clients:
                for number in range(size.rounds + 1):
                    tell(f"{count} clients, {f'round {number}' if number else 'warm-up'}")
                    order = CONTENDERS if number % 2 else CONTENDERS[::-1]
                    measured = [await _round(library, name, clients[:count], size) for name in order]
                    found += measured if number else []
            await _all(library, clients, "aclose")
        finally:
            for actor in (*clients, echo):
                library.end(actor)
    return found


async def _round(library: Library, name: str, clients: Sequence[Handle], size: Size) -> Round:
    each = max(size.latencies // len(clients), 1)
    latencies = await _all(library, clients, "latencies", name, each)
    spans = await _all(library, clients, "busy", name, max(size.calls // len(clients), 1), size.in_flight)
    return round_of(name, len(clients), list(chain.from_iterable(latencies)), spans)


async def _all(library: Library, clients: Sequence[Handle], method: str, *arguments: Any) -> list[Any]:
    """Let all clients do something at once."""
    return await asyncio.gather(
        *(library.answer(partial(getattr(client, method).remote, *arguments)) for client in clients)
    )


def _started(library: Library, kind: type, name: str) -> Handle:
    actor = library.start(kind, f"{name}-{os.getpid()}" if kind is Client else name, ())
    assert actor is not None
    return actor
