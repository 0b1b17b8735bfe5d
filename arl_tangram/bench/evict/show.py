"""The text that `bench evict` prints."""

from __future__ import annotations

from collections.abc import Sequence

from arl_tangram.bench.evict.catalogue import DEVICE_GIB, DEVICES, ENGINE_S, RESTORE_GB_PER_S
from arl_tangram.bench.evict.contenders import CONTENDERS, LRU
from arl_tangram.bench.evict.requests import SERVICES
from arl_tangram.bench.evict.runs import Case
from arl_tangram.scheduling.gpu.eviction import WINDOW

_NAME = 26
_CELL = 16


def introduction(count: int, seeds: Sequence[int]) -> str:
    """Say what is counted, and on what."""
    return (
        f"{SERVICES} made-up services of 1 to 168 GiB on 1, 2 or 4 of {DEVICES} devices of {DEVICE_GIB} GiB, restored "
        f"at {RESTORE_GB_PER_S:g} GB/s to each;\n"
        f"with engines, a third of them takes {ENGINE_S:g} s more. {count:,} requests of each kind, one after the "
        "other: no time passes,\n"
        f"nothing overlaps. `loss` sees the next {WINDOW} requests, as if so many waited, or fewer where the table "
        "says so;\n"
        "`clairvoyant` knows all. Choices are made by the modules that the scheduler uses. Nothing is timed: any\n"
        f"machine prints the same. Seeds {', '.join(map(str, seeds))}, all together; the policies were tuned on 1 "
        "to 5.\n"
    )


def table(cases: Sequence[Case]) -> str:
    """Return the seconds of restoring for each request, and how many times those of LRU that is."""
    lines = [f"{'ms of restoring a request':<{_NAME}}" + "".join(f"{one.name:>{_CELL}}" for one in CONTENDERS)]
    for case in cases:
        cells = "".join(f"{_cell(case, one.name):>{_CELL}}" for one in CONTENDERS)
        lines.append(f"{_name(case):<{_NAME}}{cells}")
    crowding = [case.crowding for case in cases]
    lines.append(
        f"all services together need {min(crowding):.1f} to {max(crowding):.1f} times the memory that there is"
    )
    return "\n".join(lines) + "\n"


def hit_table(cases: Sequence[Case]) -> str:
    """Return the shares of requests that found their service resident."""
    lines = [f"{'already resident':<{_NAME}}" + "".join(f"{one.name:>{_CELL}}" for one in CONTENDERS)]
    for case in cases:
        cells = "".join(f"{case.hit_rate(one.name):>{_CELL}.1%}" for one in CONTENDERS)
        lines.append(f"{_name(case):<{_NAME}}{cells}")
    return "\n".join(lines) + "\n"


def _cell(case: Case, name: str) -> str:
    milliseconds = f"{case.per_request_s(name) * 1e3:.1f}"
    ratio = case.ratio(name)
    return milliseconds if name == LRU or ratio is None else f"{milliseconds} {ratio:.3f}x"


def _name(case: Case) -> str:
    return f"{case.stream}{', engines' if case.engines else ''}"
