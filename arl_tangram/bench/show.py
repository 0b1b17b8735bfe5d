"""The text that `bench overhead` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arl_tangram.bench.contenders import BASES, SLOTS, TRACED_ACTION
from arl_tangram.bench.gates import Gate, growth, medians
from arl_tangram.bench.machine import Machine
from arl_tangram.bench.rounds import Series

_NAME = 26
_CELL = 26
_VERDICTS = {True: "pass", False: "FAIL", None: "----"}


def introduction(machine: Machine, rounds: int, least_actions: int) -> str:
    """Say what is measured, on what, and how the comparison is meant."""
    return (
        f"{machine.in_words}\n"
        f"{machine.versions}\n\n"
        f"Each contender runs an empty body N times, all submitted at once, {SLOTS} at a time, as its documentation\n"
        "shows: asyncio.gather around a semaphore; a task group around a limiter; asyncio.gather over calls of an\n"
        f"action; ray.get of a list of calls. cpu=1 and Ray have {machine.cores} slots, one per core. The clock runs\n"
        "from the first submission to the last answer; opening the loop, the runtime or the cluster does not count.\n"
        f"The garbage collector comes as by default. Medians of {rounds} interleaved rounds, each begun by another\n"
        f"contender, after one that does not count; a sample is the mean over at least {least_actions:,} actions.\n"
    )


def table(series: Sequence[Series], sizes: Sequence[int]) -> str:
    """Return the medians with their range, and the growth from the smallest size to the largest."""
    lines = ["microseconds per action: median (least - most)"]
    heads = "".join(f"{f'{size:,} in flight':>{_CELL}}" for size in sizes)
    lines.append(f"{'':<{_NAME}}{heads}{'growth':>9}")
    by_place = {(one.name, one.in_flight): one for one in series}
    for name in dict.fromkeys(one.name for one in series):
        cells = "".join(f"{_cell(by_place.get((name, size))):>{_CELL}}" for size in sizes)
        grown = growth(series, name)
        lines.append(f"{name:<{_NAME}}{cells}{'-' if grown is None else f'{grown:.2f}':>9}")
    return "\n".join(lines) + "\n"


def ratio_table(series: Sequence[Series], sizes: Sequence[int]) -> str:
    """Return how many times each contender the actions cost."""
    known = medians(series)
    lines = ["ratios of medians"]
    lines.append(f"{'':<{2 * _NAME}}" + "".join(f"{f'{size:,}':>12}" for size in sizes))
    for name, bases in BASES:
        for base in bases:
            pairs = [(known.get((name, size)), known.get((base, size))) for size in sizes]
            if any(us is not None and of is not None for us, of in pairs):
                cells = "".join(f"{'-' if us is None or of is None else f'{us / of:.3f}':>12}" for us, of in pairs)
                lines.append(f"{f'{name} / {base}':<{2 * _NAME}}{cells}")
    return "\n".join(lines) + "\n"


def gate_lines(gates: Sequence[Gate], verdicts: Mapping[bool | None, str] = _VERDICTS) -> str:
    """Return one line for each promise: pass, FAIL, or that it was not measured."""
    return "".join(f"{verdicts[gate.passed]}  {gate.promise}: {_value(gate)}\n" for gate in gates)


def trace_line(events: int, dropped: int) -> str:
    """Say what the row of the trace covers."""
    return (
        f"{TRACED_ACTION}: until the file is complete; {dropped:,} of {events:,} events were dropped at the bounded "
        "queue to the writer.\n"
    )


def _cell(one: Series | None) -> str:
    if one is None:
        return "not measured"
    return f"{one.median_us:.1f} ({min(one.samples_us):.1f} - {max(one.samples_us):.1f})"


def _value(gate: Gate) -> str:
    return gate.where if gate.value is None else f"{gate.value:.3f} ({gate.where})"
