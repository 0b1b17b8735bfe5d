"""The text that `bench swap` prints."""

from __future__ import annotations

from collections.abc import Sequence

from arl_tangram.bench import spread
from arl_tangram.bench.machine import Machine
from arl_tangram.bench.swap.figures import Round

_NAME = 46
_CELL = 12


def introduction(machine: Machine, size: int, rounds: int) -> str:
    """Say what is measured, on what, and how the comparison is meant."""
    busy = machine.if_busy("every figure worse")
    return (
        f"{machine.in_words}\n"
        f"{machine.versions}\n{busy}\n"
        f"A module of {size / 1e6:,.0f} MB as a service on a device of host memory, without any artificial delay.\n"
        "Restore: from the request for memory to a module that can be used. numpy.copyto: as many bytes, between\n"
        "two arrays, in a thread. .to(): a new allocation and a copy for each tensor, as it does when the device is\n"
        "another one. Evict: until the memory can be taken by others; its pages are dropped later, off the loop.\n"
        f"{rounds} interleaved rounds, each begun by another, after one that does not count. In each the module must\n"
        "answer bit by bit as before it was ever moved. Nothing of this says how fast a GPU's link is.\n"
    )


def table(rounds: Sequence[Round], size: int) -> str:
    """Return a row for each thing that was measured, with bandwidths where bytes are copied."""
    lines = [f"{'':<{_NAME}}" + "".join(f"{head:>{_CELL}}" for head in (*spread.HEADS, "best GB/s"))]
    for name, values in (
        ("numpy.copyto, warm pages", [one.copy_s for one in rounds]),
        ("restore, warm pages", [one.restore_s for one in rounds]),
        (".to()", [one.to_s for one in rounds]),
        ("restore, pages dropped", [one.cold_s for one in rounds]),
    ):
        lines.append(f"{f'{name}, ms':<{_NAME}}{_cells(values)}{size / min(values) / 1e9:>{_CELL}.2f}")
    for name, values in (
        ("evict, ms", [one.evict_s for one in rounds]),
        ("dropping its pages, off the loop, ms", [one.drop_s for one in rounds]),
        ("lag of the loop, p99, numpy.copyto, ms", [one.copy_lag_s for one in rounds]),
        ("lag of the loop, p99, restore and evict, ms", [one.restore_lag_s for one in rounds]),
    ):
        lines.append(f"{name:<{_NAME}}{_cells(values)}")
    return "\n".join(lines) + "\n"


def _cells(seconds: Sequence[float]) -> str:
    return spread.cells([value * 1e3 for value in seconds], ".2f", _CELL)
