"""The text that `bench aoe` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arl_tangram.bench.aoe.cores import CorePair
from arl_tangram.bench.aoe.crowd import CrowdCost
from arl_tangram.bench.aoe.grants import GrantTimes
from arl_tangram.bench.aoe.overhead import Pooled, Visit
from arl_tangram.bench.aoe.plan import MODES, Mode, Plan
from arl_tangram.bench.machine import Machine

_NAME = 22
_CELL = 14
_NARROW = 9


def introduction(machine: Machine, plan: Plan, about_s: float) -> str:
    """Say what is measured, on what, and how."""
    lives = ", ".join(map(str, plan.lives))
    lengths = ", ".join(f"{s:g}" for s, _ in plan.repeats)
    busy = machine.if_busy("every overhead larger")
    return (
        f"{machine.in_words}\n{busy}\n"
        f"Actions of one core, each a command (sleep) of {lengths} s in a Docker container; {lives} containers\n"
        "live, and at most as many actions run as there are cores. Grants are written to the cgroup files (direct) or\n"
        "asked of the daemon (api); commands go through a shell that stays open (session), or each has an exec of its\n"
        f"own (gated exec). {plan.rounds} rounds, each begun by another mode. Overhead is the time from the grant to\n"
        "the answer less the command's own time as its shell tells it; the share: overhead / (execution + overhead),\n"
        "a ratio of sums. Clock: how long the callers waited beyond what the commands were asked to sleep, by\n"
        "another clock; the time in which a program starts counts as overhead there.\n"
        f"It takes about {max(1, round(about_s / 60))} min.\n"
    )


def overhead_table(cells: Sequence[Pooled]) -> str:
    """Return a row for each mode and number of containers: the share, and what an action costs."""
    lengths = sorted({one.cell.command_s for one in cells})
    heads = "".join(f"{f'{s:g} s':>{_NARROW}}{'clock':>{_NARROW}}{'ms each':>{_NARROW}}" for s in lengths)
    lines = [f"{'overhead share':<{_NAME}}{'live':>5}{heads}"]
    known = {one.cell: one for one in cells}
    rows = dict.fromkeys((one.cell.mode, one.cell.live) for one in cells)
    for mode, live in rows:
        found = [next((c for c in known if (c.mode, c.live, c.command_s) == (mode, live, s)), None) for s in lengths]
        texts = "".join(_overhead(None if cell is None else known[cell]) for cell in found)
        lines.append(f"{mode.name:<{_NAME}}{live:>5}{texts}")
    return "\n".join(lines) + "\n"


def _overhead(one: Pooled | None) -> str:
    if one is None:
        return f"{'-':>{_NARROW}}" * 3
    return f"{one.share:>{_NARROW}.2%}{one.checked_share:>{_NARROW}.2%}{one.each_ms:>{_NARROW}.2f}"


def grant_table(times: Sequence[GrantTimes]) -> str:
    """Return a row for each way to apply grants."""
    lines = [f"{'one grant, in ms':<{_NAME}}" + "".join(f"{h:>{_CELL}}" for h in ("count", "median", "p90", "longest"))]
    for one in times:
        values = (one.median_s, one.quantile_s(0.9), max(one.seconds))
        cells = "".join(f"{value * 1e3:>{_CELL}.3f}" for value in values)
        lines.append(f"{one.grants:<{_NAME}}{len(one.seconds):>{_CELL}}{cells}")
    return "\n".join(lines) + "\n"


def crowd_table(costs: Sequence[CrowdCost]) -> str:
    """Return a row for each mode: the cost of an action with few, many and few live containers."""
    modes = dict.fromkeys(one.mode for one in costs)
    by_mode: Mapping[Mode, list[CrowdCost]] = {mode: [one for one in costs if one.mode == mode] for mode in modes}
    stages = [one.live for one in next(iter(by_mode.values()))]
    heads = "".join(f"{f'{live} live':>{_CELL}}" for live in stages) + f"{'ratio':>{_CELL}}"
    lines = [f"{'overhead each, in ms':<{_NAME}}{heads}"]
    for mode, own in by_mode.items():
        few, many, again = (one.median_ms for one in own)
        cells = "".join(f"{value:>{_CELL}.2f}" for value in (few, many, again))
        lines.append(f"{mode.name:<{_NAME}}{cells}{many / ((few + again) / 2):>{_CELL}.2f}")
    lines.append("ratio: against the mean of the stages with few, before and after; medians of commands of 0.1 s")
    return "\n".join(lines) + "\n"


def cores_table(pairs: Sequence[CorePair]) -> str:
    """Return the best of the pairs: inside and outside, on one core and on two."""
    if not pairs:
        return "one core against two: not measured, there are fewer than two\n"
    rows = {
        "in a container": tuple(min(pair.inside_s[i] for pair in pairs) for i in (0, 1)),
        "on the bare host": tuple(min(pair.outside_s[i] for pair in pairs) for i in (0, 1)),
    }
    heads = "".join(f"{head:>{_CELL}}" for head in ("1 core", "2 cores", "ratio"))
    lines = [f"{f'best of {len(pairs)} pairs':<{_NAME}}{heads}"]
    for name, (one, two) in rows.items():
        lines.append(f"{name:<{_NAME}}{f'{one:.3f} s':>{_CELL}}{f'{two:.3f} s':>{_CELL}}{one / two:>{_CELL}.2f}")
    return "\n".join(lines) + "\n"


def latency_table(visits: Sequence[Visit]) -> str:
    """Return how long the daemon took, by operation: p50 and p99 for each mode, the medians and the worst of visits."""
    modes = [mode for mode in MODES if any(visit.mode == mode for visit in visits)]
    operations = list(dict.fromkeys(name for visit in visits for name in visit.latency))
    heads = "".join(f"{mode.name:>{2 * _CELL}}" for mode in modes)
    lines = [f"{'daemon, p50 / p99 ms':<{_NAME}}{heads}"]
    for operation in operations:
        cells = "".join(f"{_latency(visits, mode, operation):>{2 * _CELL}}" for mode in modes)
        lines.append(f"{operation:<{_NAME}}{cells}")
    return "\n".join(lines) + "\n"


def _latency(visits: Sequence[Visit], mode: Mode, operation: str) -> str:
    own = [visit.latency[operation] for visit in visits if visit.mode == mode and operation in visit.latency]
    if not own:
        return "-"
    p50_s = sorted(one.p50_s for one in own)[len(own) // 2]
    return f"{sum(one.count for one in own)} × {p50_s * 1e3:.1f} / {max(one.p99_s for one in own) * 1e3:.0f}"
