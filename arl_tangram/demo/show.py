"""Turn the figures of the runs into tables and words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from arl_tangram.demo.calibration import Calibration
from arl_tangram.demo.comparison import CORES, RESIZE, SCHEDULER, Run
from arl_tangram.demo.measure import Figures, Ratios, ratios_of
from arl_tangram.demo.thinking import SIGMA


def _seconds(value: float) -> str:
    return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"


def _rewards(run: Run) -> str:
    count = len(run.answers)
    passed = sum(answer.passed for answer in run.answers) / count
    similarity = sum(answer.similarity for answer in run.answers) / count
    return f"{passed:.3f}, {similarity:.3f}"


_ROWS: tuple[tuple[str, Callable[[Run], str]], ...] = (
    ("step time", lambda run: _seconds(run.figures.step_s)),
    ("ACT with admission, mean", lambda run: _seconds(run.figures.mean_act_admission_s)),
    ("ACT with admission, p99", lambda run: _seconds(run.figures.p99_act_admission_s)),
    ("ACT without admission, mean", lambda run: _seconds(run.figures.mean_act_s)),
    ("ACT without admission, p99", lambda run: _seconds(run.figures.p99_act_s)),
    ("  of it queueing, mean", lambda run: _seconds(run.figures.mean_queueing_s)),
    ("  of it execution, mean", lambda run: _seconds(run.figures.mean_execution_s)),
    ("  of it overhead, mean", lambda run: f"{run.figures.mean_overhead_s * 1000:.2f} ms"),
    ("admission of a trajectory, mean", lambda run: _seconds(run.figures.mean_admission_s)),
    ("overhead share", lambda run: f"{run.figures.overhead_share:.2%}"),
    ("core-seconds held", lambda run: f"{run.figures.held_core_s:.1f}"),
    ("core-seconds used", lambda run: f"{run.figures.used_core_s:.1f}"),
    ("calls", lambda run: str(run.figures.calls)),
    ("429 from the search API", lambda run: str(run.refused)),
    ("rewards: tests, similarity (mean)", _rewards),
)

_RESIZED_ROWS: tuple[tuple[str, Callable[[Run], str]], ...] = (
    ("suspended, mean", lambda run: _seconds(run.figures.mean_suspended_s)),
    ("changes of cores", lambda run: str(run.figures.switches)),
    ("  of them each takes", lambda run: "-" if run.switch_s is None else f"{run.switch_s * 1000:.3f} ms"),
)

# A quarter of the machine is as much as a few background services take.
_BUSY = 0.25

TERMS = (
    ("action", "one call of a tool or reward: a command, an edit, a search, a test suite"),
    ("ACT", "action completion time: queueing (waits for cores or quota) + execution + overhead"),
    ("admission", "a trajectory's wait for its reservation; counted into the ACT of its first action"),
    ("step time", "from the start until the last of the trajectories has its rewards"),
    ("overhead share", "overhead / (execution + overhead), summed over all actions"),
    ("held, used", "core-seconds set aside, and CPU seconds that the commands used of them"),
)


def show_load(console: Console, *, load: float, cpus: int) -> None:
    """Warn where other work keeps a machine of so many CPUs busy; `load` is its load average."""
    if load > _BUSY * cpus:
        console.print(
            f"This machine is busy with other work (load average {load:.1f} on {cpus} CPUs), and not evenly: "
            "compare policies on a quiet one.",
            style="yellow",
            highlight=False,
        )


def show_plan(console: Console, *, share: float, tools_s: float, thinks_s: float, turns: float) -> None:
    """Say how much the model thinks, for tools that take `share` of a lone trajectory's time."""
    console.print(
        f"Tools take {share:.0%} of a lone trajectory's {tools_s + thinks_s:.1f} s: its model thinks {thinks_s:.1f} s "
        f"in {turns:.1f} turns (means). Thinking times are log-normal with sigma {SIGMA}, the spread of recorded "
        "coding agents, and the same under every policy.",
        highlight=False,
    )


def show_calibration(console: Console, calibration: Calibration) -> None:
    """Print what lone trajectories took."""
    console.print(
        f"Calibration: {calibration.trajectories} lone trajectories on one core, without thinking, took "
        f"{calibration.tools_s:.2f} s of tools in {calibration.calls:.1f} calls each; {calibration.suite_s:.2f} s of "
        f"it is the test suite, which takes {calibration.suite_two_cores_s:.2f} s on two cores "
        f"({calibration.suite_speedup:.2f}x).",
        highlight=False,
    )


def show_terms(console: Console, terms: Sequence[tuple[str, str]] = TERMS) -> None:
    """Explain the words of a table."""
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for word, meaning in terms:
        table.add_row(word, meaning)
    console.print(Padding(table, (0, 0, 0, 2)))


def comparison_table(runs: Sequence[Run], *, title: str) -> Table:
    """Return one table: a column for each policy, a row for each figure."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for run in runs:
        table.add_column(run.policy, justify="right", no_wrap=True, style="bold" if run.policy == SCHEDULER else "")
    resized = any(run.policy == RESIZE for run in runs)
    for name, figure in (*_ROWS, *(_RESIZED_ROWS if resized else ())):
        table.add_row(name, *(figure(run) for run in runs))
    return table


def ratios_between(runs: Sequence[Run]) -> Ratios | None:
    """Return how the scheduler compares with the better of the reservations, or None if either was not run."""
    baselines = _baselines(runs)
    scheduled = _scheduled(runs)
    return ratios_of(baselines, scheduled) if baselines and scheduled else None


def ratio_table(runs: Sequence[Run]) -> RenderableType:
    """Return the ratios against the better of the reservations, figure by figure."""
    ratios, baselines, scheduled = ratios_between(runs), _baselines(runs), _scheduled(runs)
    if ratios is None or scheduled is None:
        return Text("No ratios: they need the scheduler and at least one reservation.")
    table = Table(
        title="Against the better reservation, figure by figure",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("", "reserved", SCHEDULER, "ratio"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    rows: tuple[tuple[str, Callable[[Figures], float], float, str], ...] = (
        ("step time", lambda f: f.step_s, ratios.step, "s"),
        ("ACT with admission, mean", lambda f: f.mean_act_admission_s, ratios.act_admission, "s"),
        ("ACT without admission, mean", lambda f: f.mean_act_s, ratios.act, "s"),
        ("core-seconds held", lambda f: f.held_core_s, ratios.held, ""),
    )
    for name, figure, ratio, unit in rows:
        best = min(figure(baseline) for baseline in baselines)
        table.add_row(name, f"{best:.3f} {unit}".strip(), f"{figure(scheduled):.3f} {unit}".strip(), f"{ratio:.2f}x")
    return table


def sweep_tables(results: Mapping[float, Sequence[Run]]) -> RenderableType:
    """Return the summary over the shares of the tools: for step time and for ACT, one row for each share."""
    return Group(
        _sweep_table("Step time over the shares of tools", results, lambda f: f.step_s, lambda r: r.step),
        _sweep_table(
            "Mean ACT with admission over the shares of tools",
            results,
            lambda f: f.mean_act_admission_s,
            lambda r: r.act_admission,
        ),
        Text("Ratios: scheduler against the better of the reservations. Overhead: its share under the scheduler."),
    )


def _sweep_table(
    title: str,
    results: Mapping[float, Sequence[Run]],
    figure: Callable[[Figures], float],
    ratio: Callable[[Ratios], float],
) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    policies = [run.policy for run in next(iter(results.values()))]
    for column in ("tools", *policies, "ratio", "overhead"):
        table.add_column(column, justify="right", no_wrap=True, style="bold" if column == "ratio" else "")
    for share, runs in results.items():
        ratios, scheduled = ratios_between(runs), _scheduled(runs)
        table.add_row(
            f"{share:.0%}",
            *(_seconds(figure(run.figures)) for run in runs),
            "-" if ratios is None else f"{ratio(ratios):.2f}x",
            "-" if scheduled is None else f"{scheduled.overhead_share:.2%}",
        )
    return table


def explanation(runs: Sequence[Run]) -> RenderableType:
    """Say in words what the table shows, from its figures."""
    reserved = [_reserved_words(run) for run in runs if run.policy.startswith("reserved")]
    scheduled = [_scheduler_words(run) for run in runs if run.policy == SCHEDULER]
    resized = [_resize_words(run) for run in runs if run.policy == RESIZE]
    return Text("\n".join(reserved + scheduled + resized))


def _reserved_words(run: Run) -> str:
    cores = int(run.policy[len("reserved(") : -1])
    at_once = min(CORES // cores, len(run.answers))
    return (
        f"{run.policy}: a trajectory keeps {cores} of the {CORES} cores from its first turn to its last, also while "
        f"its model thinks. So {at_once} of {len(run.answers)} run at a time and the others wait, "
        f"{run.figures.mean_admission_s:.1f} s in the mean; {_idle(run.figures):.0%} of the core-seconds held were "
        "idle."
    )


def _scheduler_words(run: Run) -> str:
    return (
        f"{run.policy}: all {len(run.answers)} trajectories start at once and take cores call by call, so that one's "
        "thinking leaves cores to the others' tools; a test suite gets both cores when nothing else needs one. "
        f"{_idle(run.figures):.0%} of the core-seconds held were idle; the commands kept "
        f"{run.figures.used_core_s / run.figures.step_s:.2f} of {CORES} cores busy over the step."
    )


def _resize_words(run: Run) -> str:
    figures, took_s = run.figures, 0.0 if run.switch_s is None else run.switch_s * run.figures.switches
    return (
        f"{run.policy}: as {SCHEDULER}, and actions share the cores while they run: who is expected to be done soon "
        f"goes first, and others have fewer cores meanwhile, or none. {figures.switches} changes for {figures.calls} "
        f"calls took {took_s:.2f} s in all; ACT includes what a call was suspended for, in the mean "
        f"{_seconds(figures.mean_suspended_s)}."
    )


def _idle(figures: Figures) -> float:
    return 1 - figures.used_core_s / figures.held_core_s


def _baselines(runs: Sequence[Run]) -> list[Figures]:
    return [run.figures for run in runs if run.policy.startswith("reserved")]


def _scheduled(runs: Sequence[Run]) -> Figures | None:
    return next((run.figures for run in runs if run.policy == SCHEDULER), None)
