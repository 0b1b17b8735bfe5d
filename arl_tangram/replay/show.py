"""The text that `replay` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arl_tangram.model.lifecycle import Outcome
from arl_tangram.model.topology import Dimension, Topology
from arl_tangram.replay.calls import calls_of
from arl_tangram.replay.source import Source
from arl_tangram.replay.variants import Prediction
from arl_tangram.simulate.calls import Workload
from arl_tangram.trace.figures import Figures

_LABEL = 26
_GAVE_UP, _SUSPENDED = "  gave up waiting", "    suspended"  # rows that are left out where there is none
_LEAST = 14
Column = tuple[str, Figures, Topology | None]
"""What stands over it, its figures, and what there was to share if that is known."""


def introduction(source: Source, workload: Workload) -> str:
    """Say what is replayed, and what of it is not as it was recorded."""
    calls = sum(1 for _ in calls_of(workload))
    recorded = f", recorded under {source.policy}{' with resizing' if source.shared else ''}" if source.policy else ""
    text = (
        f"{len(workload.rollouts):,} trajectories and {calls:,} calls{recorded}, in virtual time through the\n"
        "scheduler that the runtime drives. Work, overhead and thinking times are those that were recorded; the\n"
        "scheduler knows nothing of them beforehand.\n"
    )
    return text + "".join(f"Note: {note}\n" for note in source.notes)


def table(columns: Sequence[Column]) -> str:
    """Return the figures of all columns."""
    width = max(_LEAST, *(len(head) + 2 for head, _, _ in columns))
    lines = [f"{'':<{_LABEL}}" + "".join(f"{head:>{width}}" for head, _, _ in columns)]
    for label, cell in _ROWS:
        cells = [cell(figures, topology) for _, figures, topology in columns]
        if label not in (_GAVE_UP, _SUSPENDED) or any(text not in ("-", "0", "0.000 s") for text in cells):
            lines.append(f"{label:<{_LABEL}}" + "".join(f"{text:>{width}}" for text in cells))
    return "\n".join(lines) + "\n"


def refusals(predictions: Sequence[Prediction]) -> str:
    """Say how many calls a prediction has that could never start: what they ask for was used up for good."""
    found = [(one.variant.name, one.figures.total.failures.get(Outcome.ERROR, 0)) for one in predictions]
    return "".join(
        f"Note: {count:,} calls under {name} could never start: a budget was used up.\n"
        for name, count in found
        if count
    )


def deviation(measured: Figures, predicted: Prediction) -> str:
    """Say by how much the run itself is mispredicted: what to expect of the other columns at least."""
    parts = [
        f"{name} {predicted_s / measured_s - 1:+.1%}"
        for name, measured_s, predicted_s in (
            ("ACT", measured.admitted_act_mean_s, predicted.figures.admitted_act_mean_s),
            ("step", measured.elapsed_s, predicted.figures.elapsed_s),
        )
        if measured_s and predicted_s
    ]
    if not parts:
        return ""
    return f"The recorded run itself, replayed as {predicted.variant.name} on its own pool: {', '.join(parts)}.\n"


def _s(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3f} s"


def cores_of(topology: Topology | None) -> float | None:
    """Return the cores that there are on all nodes; None if that is not known."""
    if topology is None or not topology.cores:
        return None
    return sum(row.capacity / row.scale for row in _rows_of_cores(topology))


def _rows_of_cores(topology: Topology) -> list[Dimension]:
    return [row for index, row in enumerate(topology.dimensions) if topology.cores >> index & 1]


def _cores(_figures: Figures, topology: Topology | None) -> str:
    found = cores_of(topology)
    return "-" if found is None else f"{found:g}"


def _of_cores(figures: Figures, topology: Topology | None) -> tuple[float, float, float | None] | None:
    """Return the cores of all nodes, the core-seconds held, and those that commands used, if any did."""
    if topology is None or not topology.cores:
        return None
    rows = _rows_of_cores(topology)
    by_name = {row.name: row for row in figures.dimensions}
    found = [by_name[row.name] for row in rows]
    used = [row.used_share * row.capacity * figures.elapsed_s for row in found if row.used_share is not None]
    return (
        sum(row.capacity for row in found),
        sum(row.held_unit_s for row in found),
        sum(used) if figures.total.cpu_s and len(used) == len(found) else None,
    )


def _held(figures: Figures, topology: Topology | None) -> str:
    found = _of_cores(figures, topology)
    return "-" if found is None else f"{found[1]:,.1f}"


def _mean_held(figures: Figures, topology: Topology | None) -> str:
    found = _of_cores(figures, topology)
    return "-" if found is None or not figures.elapsed_s else f"{found[1] / figures.elapsed_s:,.2f}"


def _share(figures: Figures, topology: Topology | None, place: int) -> str:
    found = _of_cores(figures, topology)
    amount = None if found is None else found[place]
    if found is None or amount is None or not figures.elapsed_s or not found[0]:
        return "-"
    return f"{amount / figures.elapsed_s / found[0]:.1%}"


_ROWS: tuple[tuple[str, Callable[[Figures, Topology | None], str]], ...] = (
    ("cores", _cores),
    ("calls", lambda figures, _: f"{figures.total.calls:,}"),
    (_GAVE_UP, lambda figures, _: f"{figures.total.failures.get(Outcome.QUEUE_TIMEOUT, 0):,}"),
    ("step", lambda figures, _: _s(figures.elapsed_s)),
    ("ACT with admission, mean", lambda figures, _: _s(figures.admitted_act_mean_s)),
    ("ACT with admission, p99", lambda figures, _: _s(figures.admitted_act_p99_s)),
    ("  ACT without, mean", lambda figures, _: _s(figures.total.act_mean_s)),
    ("    queueing", lambda figures, _: _s(figures.total.queueing_mean_s)),
    ("    execution", lambda figures, _: _s(figures.total.execution_mean_s)),
    ("    overhead", lambda figures, _: _s(figures.total.overhead_mean_s)),
    (
        _SUSPENDED,
        lambda figures, _: _s(figures.total.suspended_s / figures.total.calls if figures.total.calls else None),
    ),
    ("admission, mean wait", lambda figures, _: _s(figures.trajectories.waited_mean_s)),
    ("core-seconds held", _held),
    ("cores held, mean", _mean_held),
    ("  of the pool", lambda figures, topology: _share(figures, topology, 1)),
    ("commands used of the pool", lambda figures, topology: _share(figures, topology, 2)),
)
