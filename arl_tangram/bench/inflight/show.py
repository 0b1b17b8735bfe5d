"""The text that `bench inflight` prints, and what it keeps of a run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from arl_tangram.bench.inflight.lag import EVERY_S, LATE_S, SLOTS, Crowd, Lag
from arl_tangram.bench.inflight.memory import Memory, Meter, Waiting
from arl_tangram.bench.machine import Machine

_NAME = 40
_CELL = 13


def introduction(machine: Machine, in_flight: int, body_s: float) -> str:
    """Say what is measured, on what, and how."""
    busy = machine.if_busy("every lag longer")
    return (
        f"{machine.in_words}\n{busy}\n"
        f"{in_flight:,} actions in flight in one process, garbage collector as by default, each measurement in a\n"
        "process of its own.\n"
        "Memory: bytes for each that waits, with the task of its caller; resident is the growth of the process,\n"
        "allocated what tracemalloc counts. The first row is such a task alone, which waits for a plain future; ours\n"
        "is what the others take beyond that.\n"
        f"Lag: how late a task comes that wants its turn every {EVERY_S * 1e3:g} ms, from the first submission to\n"
        f"the last answer; {SLOTS:,} bodies at once, which sleep {body_s:g} s in the mean. p99 is over its turns;\n"
        "weighted counts every moment at which it was due, those that it slept through included. In brackets: how\n"
        "much of it was the garbage collector. asyncio.gather makes all its tasks in one turn of the loop, and\n"
        "nothing else has one until each has made its first step; tangram.map makes a few at a time.\n"
    )


def memory_table(memories: Sequence[Memory]) -> str:
    """Return a row for each kind of waiter: in all, and beyond the task of the caller."""
    by_place = {(one.who, one.meter): one for one in memories}
    heads = (*Meter, *(f"ours, {meter}" for meter in Meter), "collect ms")
    lines = [f"{'bytes for each':<{_NAME}}" + "".join(f"{head:>{_CELL + 3}}" for head in heads)]
    for who in Waiting:
        of_who = [by_place[who, meter] for meter in Meter]
        beyond = [one.bytes_each - by_place[Waiting.TASK, one.meter].bytes_each for one in of_who]
        values = [*(f"{one.bytes_each:,.0f}" for one in of_who), *(f"{more:,.0f}" for more in beyond)]
        collect_ms = min(one.collect_s for one in of_who) * 1e3
        lines.append(f"{who:<{_NAME}}" + "".join(f"{value:>{_CELL + 3}}" for value in (*values, f"{collect_ms:.0f}")))
    return "\n".join(lines) + "\n"


def lag_table(lags: Sequence[Lag]) -> str:
    """Return a row for each crowd: medians of its runs, and the longest lag of all."""
    heads = ("seconds", "p50", "p99", "weighted p99", "longest", "(collector)", "late s", "(collector)", "full runs")
    lines = [f"{'lag in ms':<{_NAME}}" + "".join(f"{head:>{_CELL}}" for head in heads)]
    for crowd in Crowd:
        runs = [one for one in lags if one.crowd is crowd]
        longest = max(runs, key=lambda one: one.longest_ms)
        values = (
            f"{median(one.elapsed_s for one in runs):.1f}",
            f"{median(one.quantile_ms(0.5) for one in runs):.1f}",
            f"{median(one.quantile_ms(0.99) for one in runs):.1f}",
            f"{median(one.weighted_quantile_ms(0.99) for one in runs):.0f}",
            f"{longest.longest_ms:.0f}",
            f"({longest.collected_of_longest_s * 1e3:.0f})",
            f"{median(one.late_sum_s for one in runs):.2f}",
            f"({median(one.collected_of_late_s for one in runs):.2f})",
            f"{median(one.full_collections for one in runs):g}",
        )
        lines.append(f"{crowd:<{_NAME}}" + "".join(f"{value:>{_CELL}}" for value in values))
    lines.append(
        f"late s: seconds in lags of more than {LATE_S * 1e3:g} ms; full runs: of the collector, over all objects"
    )
    return "\n".join(lines) + "\n"


def record(lag: Lag) -> dict[str, object]:
    """Return what a file keeps of a run: its figures, not each turn."""
    return {
        "crowd": lag.crowd,
        "in_flight": lag.in_flight,
        "elapsed_s": lag.elapsed_s,
        "turns": len(lag.late_s),
        "p50_ms": lag.quantile_ms(0.5),
        "p99_ms": lag.quantile_ms(0.99),
        "weighted_p99_ms": lag.weighted_quantile_ms(0.99),
        "longest_ms": lag.longest_ms,
        "collected_of_longest_ms": lag.collected_of_longest_s * 1e3,
        "late_sum_s": lag.late_sum_s,
        "collected_of_late_s": lag.collected_of_late_s,
        "full_collections": lag.full_collections,
        "longest_collection_ms": lag.longest_collection_s * 1e3,
    }
