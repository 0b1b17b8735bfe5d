"""The text that `bench schedule --resize` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arl_tangram.bench.schedule.grid import CORES, ELASTIC, KINDS, Table
from arl_tangram.bench.schedule.resize_ratios import ResizeRow
from arl_tangram.bench.schedule.resize_runs import SHARING, SIZE_AWARE, SWITCH_S
from arl_tangram.bench.schedule.show import PLACE, SUMMARIES, place
from arl_tangram.simulate.workloads import MEAN_WORK_S

_BASE = 20
_HEADINGS = {
    Table.KNOWN: "durations known: relative to the best fixed dop in hindsight, by its mean",
    Table.LEARNED: f"everything learned, of {KINDS} actions: relative to {ELASTIC}",
}


def introduction(seeds: Sequence[int]) -> str:
    """Say what is compared, and how."""
    shown = ", ".join(map(str, seeds))
    return (
        f"Action completion times (ACT) on {CORES} cores in virtual time, through the scheduler that the runtime\n"
        f"drives; means over the seeds {shown}. Calls take log-normal work (mean {MEAN_WORK_S:.1f} s on one\n"
        "core), each in a sandbox of its own; elastic ones can get 1, 2, 4, 8 or 16 cores, more or fewer while they\n"
        f"run, and speed up by a power of that, with the exponents given. {ELASTIC} and the fixed dops leave each\n"
        f"call as it began; under {', '.join(SHARING)} running calls share the cores, down to\n"
        f"none, and each change takes {SWITCH_S * 1000:g} ms in which the call does not run.\n"
    )


def resize_table(rows: Sequence[ResizeRow]) -> str:
    """Return a table of the mean completion times, and one of the 99th percentiles; the rows are of one table."""
    names = [name for name in (ELASTIC, *SHARING) if name in rows[0].figures and name != rows[0].base]
    return "\n".join(
        (
            _table(f"mean ACT, {_HEADINGS[rows[0].table]}", rows, names, lambda row, name: row.figures[name].act_s),
            _table(
                f"p99 of ACT, {_HEADINGS[rows[0].table]}", rows, names, lambda row, name: row.figures[name].act_p99_s
            ),
        )
    )


def _table(
    heading: str, rows: Sequence[ResizeRow], names: Sequence[str], figure: Callable[[ResizeRow, str], float]
) -> str:
    compared: list[tuple[str, str | None]] = [(name, None) for name in names]
    if ELASTIC in names:
        compared.append((SIZE_AWARE, ELASTIC))
    heads = [name if base is None else f"{name}/{base}" for name, base in compared]
    lines = [heading, f"{'':<{PLACE + _BASE}}" + "".join(f"{head:>{len(head) + 2}}" for head in heads)]
    columns = [[figure(row, name) / figure(row, base or row.base) for row in rows] for name, base in compared]
    shown = [(place(row.point), f"{row.base} {figure(row, row.base):.2f} s") for row in rows]
    ratios = list(zip(*columns, strict=True))
    for name, summarise in SUMMARIES:
        shown.append((f"{name:<{PLACE}}", ""))
        ratios.append(tuple(summarise(column) for column in columns))
    for (where, base), cells in zip(shown, ratios, strict=True):
        values = "".join(f"{value:>{len(head) + 2}.3f}" for head, value in zip(heads, cells, strict=True))
        lines.append(f"{where}{base:>{_BASE}}{values}")
    return "\n".join(lines) + "\n"
