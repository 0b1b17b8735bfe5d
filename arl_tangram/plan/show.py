"""The text that `plan` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from arl_tangram.plan import settings
from arl_tangram.plan.comparison import CapacityPlan, Kept
from arl_tangram.plan.goal import Taken
from arl_tangram.replay.calls import calls_of
from arl_tangram.replay.source import Source

_LABEL = 28
_LEAST = 14


def shown(source: Source, plan: CapacityPlan, kept: Kept) -> str:
    """Return all that is printed."""
    calls = sum(1 for _ in calls_of(source.workload))
    remarks = list(_remarks(plan))
    lines = [
        f"{len(source.workload.rollouts):,} trajectories and {calls:,} calls, in virtual time through the scheduler",
        f"that the runtime drives. To be kept: {_goal(plan, kept)}.",
        *(f"Note: {note}" for note in source.notes),
        "",
        *_table(plan),
        "",
        *remarks,
        *[""] * bool(remarks),
        "To set:",
        *(f"  {line}" for line in settings.pools(plan.need.together, [one.resource for one in plan.need.alone])),
        "",
        *settings.trainer(plan.in_flight),
    ]
    return "\n".join(lines) + "\n"


def saved(needed: float, there: float) -> float:
    """Return the share that is saved by needing so much where there is so much; below 0 if more is needed."""
    return 1 - needed / there


def _goal(plan: CapacityPlan, kept: Kept) -> str:
    parts: list[str] = []
    if kept.act is not None:
        parts.append(f"mean ACT with admission within {plan.goal.act_s:,.3f} s, {kept.act:g} times the recorded")
    if kept.step is not None:
        parts.append(f"step within {plan.goal.step_s:,.3f} s, {kept.step:g} times the recorded")
    return " and ".join(parts)


def _table(plan: CapacityPlan) -> Iterator[str]:
    others = [baseline.need for baseline in plan.baselines if baseline.need is not None]
    heads = ["recorded", "each alone", plan.need.variant.name, *(need.variant.name for need in others)]
    width = max(_LEAST, *(len(head) + 2 for head in heads))
    yield _row("", heads, width)
    pools = [need.together for need in others]
    for one in plan.need.alone:
        resource = one.resource
        needed = resource.amount(plan.need.together)
        was = resource.amount(plan.recorded)
        theirs = [resource.amount(pool) for pool in pools]
        yield _row(resource.name, [f"{amount:,.5g}" for amount in (was, one.amount, needed, *theirs)], width)
        cells = [f"{saved(needed, there):.0%}" for there in (was, *theirs)]
        yield _row("  saved against it", [cells[0], "", "", *cells[1:]], width)
    runs = [plan.was, None, plan.need.taken, *(need.taken for need in others)]
    yield _row("ACT with admission, mean", [_seconds(run, 0) for run in runs], width)
    yield _row("step", [_seconds(run, 1) for run in runs], width)


def _remarks(plan: CapacityPlan) -> Iterator[str]:
    if plan.need.enlarged:
        yield "What each needs alone is not enough for all of them together: they are enlarged as far as needed."
    elif len(plan.need.alone) > 1:
        yield "What each needs alone is enough for all of them together: that was run, too."
    for baseline in plan.baselines:
        enough = [f"{name} {cores:g}" for name, cores in baseline.cores if cores is not None]
        short = [name for name, cores in baseline.cores if cores is None]
        if len(enough) > 1:
            yield f"Cores alone: {', '.join(enough)}; the column is of the least."
        if short:
            yield f"No number of cores is enough for {', '.join(short)}."


def _row(label: str, cells: Sequence[str], width: int) -> str:
    return f"{label:<{_LABEL}}" + "".join(f"{cell:>{width}}" for cell in cells)


def _seconds(run: Taken | None, place: int) -> str:
    return "" if run is None else f"{run[place]:,.3f} s"
