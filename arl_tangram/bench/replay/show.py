"""The text that `bench replay` prints."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from arl_tangram.bench.replay.runs import FREE, IN_ORDER, RESERVED, SIZE_AWARE, Row
from arl_tangram.replay.recorded import Repairs, told
from arl_tangram.replay.variants import SWITCH_S
from arl_tangram.simulate.calls import Workload

_NAME = 22


def introduction(workload: Workload, repairs: Repairs) -> str:
    """Say what is replayed, what was changed about it, and who the contenders are."""
    works_s = [call.work_s for rollout in workload.rollouts for turn in rollout.turns for call in turn.calls]
    changed = "".join(f"{line}\n" for line in told(repairs))
    return (
        f"{len(workload.rollouts):,} recorded trajectories with {len(works_s):,} calls (mean {fmean(works_s):.2f} s, "
        f"longest {max(works_s):.0f} s), in virtual time\n"
        "through the scheduler that the runtime drives. All start together; each call takes one core for as long as\n"
        "it took, and between its calls a trajectory thinks as long as it did. Nothing is known beforehand.\n"
        f"{changed}\n"
        f"{RESERVED}: each trajectory holds a core to its end; its first call waits for that.\n"
        f"{IN_ORDER}: calls take cores in the order in which they come, and keep them.\n"
        f"{FREE}: running calls share the cores, least attained service first; a switch costs nothing.\n"
        f"{SIZE_AWARE}: running calls share the cores by what is left of them; a switch costs {SWITCH_S * 1000:g} ms.\n"
    )


def table(rows: Sequence[Row]) -> str:
    """Return the figures of all runs."""
    heads = ("mean ACT", "median", "p99", "trajectory", "step")
    lines = [f"{'cores':>5}  {'':<{_NAME}}" + "".join(f"{head:>12}" for head in heads) + f"{'switches/call':>15}"]
    for row in rows:
        seconds = (row.act_s, row.act_p50_s, row.act_p99_s, row.span_s, row.step_s)
        cells = "".join(f"{f'{value:,.2f} s':>12}" for value in seconds)
        lines.append(f"{row.cores:>5}  {row.contender:<{_NAME}}{cells}{row.switches:>15.2f}")
    return "\n".join(lines) + "\n"
