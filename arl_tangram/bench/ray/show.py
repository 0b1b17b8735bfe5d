"""The text that `bench ray` prints."""

from __future__ import annotations

from collections.abc import Sequence

from arl_tangram.bench.machine import Machine
from arl_tangram.bench.ray.figures import Row

_NAME = 32
_CELL = 14


def introduction(machine: Machine, rounds: int, in_flight: int) -> str:
    """Say what is measured, on what, and how the comparison is meant."""
    load = ", ".join(f"{average:.2f}" for average in machine.load_averages)
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    busy = machine.if_busy("every figure worse")
    return (
        f"{machine.python} on {machine.system}, {machine.cores} cores of {machine.processor}, load {load}\n"
        f"{packages}\n{busy}\n"
        "All on one machine, in a cluster that is started for this; each client is a process. An action has an empty\n"
        "body and a quota that is never used up, so that what is measured is what sharing adds: to be granted by the\n"
        "scheduler's actor, and to tell it of the end. A bare actor call: an empty method of an asyncio actor.\n"
        f"Latency: each client makes one call after the other. Per second: each client has {in_flight} in flight.\n"
        f"Medians of {rounds} rounds, in which the contenders take turns.\n"
    )


def table(rows: Sequence[Row]) -> str:
    """Return a row for each contender and number of clients."""
    heads = ("clients", "p50 ms", "p99 ms", "per second")
    lines = [f"{'':<{_NAME}}" + "".join(f"{head:>{_CELL}}" for head in heads)]
    for row in sorted(rows, key=lambda row: row.clients):
        cells = (f"{row.clients}", f"{row.p50_ms:.2f}", f"{row.p99_ms:.2f}", f"{row.per_s:,.0f}")
        lines.append(f"{row.name:<{_NAME}}" + "".join(f"{cell:>{_CELL}}" for cell in cells))
    return "\n".join(lines) + "\n"
