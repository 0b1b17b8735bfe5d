"""What the user reads."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console, RenderableType

from arl_tangram.demo import show
from arl_tangram.demo.calibration import Calibration
from arl_tangram.demo.comparison import Run
from arl_tangram.demo.measure import Figures
from arl_tangram.demo.progress import Lines, progress_for
from arl_tangram.demo.rollout import Answer

FIGURES = Figures(
    calls=320,
    mean_act_s=0.2,
    p99_act_s=2.5,
    mean_act_admission_s=1.5,
    p99_act_admission_s=50.0,
    mean_queueing_s=0.01,
    mean_execution_s=0.187,
    mean_overhead_s=0.003,
    mean_admission_s=26.0,
    step_s=60.0,
    held_core_s=120.0,
    used_core_s=48.0,
    overhead_share=0.0158,
)
ANSWERS = (Answer(0, (0,), 0.5, 1.0), Answer(1, (0,), 0.7, 0.5))
RESERVED = Run("reserved(1)", FIGURES, 0, ANSWERS)
SCHEDULED = Run(
    "scheduler",
    replace(FIGURES, step_s=30.0, mean_act_admission_s=1.0, held_core_s=50.0, mean_admission_s=0.0),
    3,
    ANSWERS,
)


def text_of(*shown: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    for item in shown:
        console.print(item)
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def row(text: str, name: str) -> list[str]:
    return next(line.strip() for line in text.splitlines() if line.strip().startswith(name)).removeprefix(name).split()


def test_the_table_has_a_row_for_every_figure_that_is_asked_for() -> None:
    text = text_of(show.comparison_table([RESERVED, SCHEDULED], title="two"))
    assert row(text, "step time") == ["60.0", "s", "30.0", "s"]
    assert row(text, "ACT with admission, mean") == ["1.500", "s", "1.000", "s"]
    assert row(text, "ACT with admission, p99") == ["50.0", "s", "50.0", "s"]
    assert row(text, "ACT without admission, mean") == ["0.200", "s", "0.200", "s"]
    assert row(text, "ACT without admission, p99") == ["2.500", "s", "2.500", "s"]
    assert row(text, "core-seconds held") == ["120.0", "50.0"]
    assert row(text, "core-seconds used") == ["48.0", "48.0"]
    assert row(text, "overhead share") == ["1.58%", "1.58%"]
    assert row(text, "429 from the search API") == ["0", "3"]
    assert row(text, "rewards: tests, similarity (mean)") == ["0.750,", "0.600", "0.750,", "0.600"]


def test_changes_of_cores_have_rows_where_there_were_some() -> None:
    resized = Run("resize", replace(FIGURES, switches=321, mean_suspended_s=0.25), 0, ANSWERS, 0.0001)
    text = text_of(show.comparison_table([SCHEDULED, resized], title="two"))
    assert row(text, "suspended, mean") == ["0.000", "s", "0.250", "s"]
    assert row(text, "changes of cores") == ["0", "321"]
    assert row(text, "of them each takes") == ["-", "0.100", "ms"]
    assert "changes of cores" not in text_of(show.comparison_table([RESERVED, SCHEDULED], title="two"))
    words = " ".join(text_of(show.explanation([SCHEDULED, resized])).split())
    assert "321 changes for 320 calls took 0.03 s in all" in words
    assert "in the mean 0.250 s" in words


def test_three_policies_fit_into_eighty_columns() -> None:
    text = text_of(show.comparison_table([RESERVED, replace(RESERVED, policy="reserved(2)"), SCHEDULED], title="three"))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "…" not in text
    for name in ("reserved(1)", "reserved(2)", "scheduler"):
        assert name in text


def test_ratios_are_shown_with_both_figures() -> None:
    text = text_of(show.ratio_table([RESERVED, SCHEDULED]))
    assert row(text, "step time") == ["60.000", "s", "30.000", "s", "2.00x"]
    assert row(text, "ACT with admission, mean") == ["1.500", "s", "1.000", "s", "1.50x"]


def test_there_are_no_ratios_without_both_sides() -> None:
    assert "No ratios" in text_of(show.ratio_table([SCHEDULED]))
    assert "No ratios" in text_of(show.ratio_table([RESERVED]))


def test_the_sweep_has_a_row_for_each_share_and_fits_into_eighty_columns() -> None:
    runs = [RESERVED, replace(RESERVED, policy="reserved(2)"), SCHEDULED]
    text = text_of(show.sweep_tables({0.1: runs, 0.47: runs}))
    assert "…" not in text
    step, act = text.split("Mean ACT with admission over the shares")
    for share in ("10%", "47%"):
        assert row(step, share) == ["60.0", "s", "60.0", "s", "30.0", "s", "2.00x", "1.58%"]
        assert row(act, share) == ["1.500", "s", "1.500", "s", "1.000", "s", "1.50x", "1.58%"]


def test_the_explanation_says_who_waited_and_what_was_idle() -> None:
    text = " ".join(text_of(show.explanation([RESERVED, SCHEDULED])).split())
    assert "keeps 1 of the 2 cores" in text
    assert (
        "2 of 2 run at a time and the others wait, 26.0 s in the mean; 60% of the core-seconds held were idle" in text
    )
    assert "1.60 of 2 cores busy" in text


def test_a_busy_machine_is_told() -> None:
    console = Console(file=io.StringIO(), width=200)
    show.show_load(console, load=0.4, cpus=2)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == ""
    show.show_load(console, load=4.6, cpus=2)
    assert "busy with other work (load average 4.6 on 2 CPUs)" in console.file.getvalue()


def test_the_calibration_tells_the_speed_up() -> None:
    console = Console(file=io.StringIO(), width=200)
    show.show_calibration(console, Calibration(4, 20, 3.0, 2.0, 1.25))
    show.show_plan(console, share=0.3, tools_s=3.0, thinks_s=7.0, turns=9.5)
    assert isinstance(console.file, io.StringIO)
    text = " ".join(console.file.getvalue().split())
    assert "1.25 s on two cores (1.60x)" in text
    assert "30% of a lone trajectory's 10.0 s: its model thinks 7.0 s in 9.5 turns" in text


def test_progress_off_a_terminal_is_a_line_per_quarter() -> None:
    console = Console(file=io.StringIO(), width=100)
    progress = progress_for(console)
    assert isinstance(progress, Lines)
    with progress.watch("scheduler", 8, 80) as watcher:
        for _ in range(8):
            for _ in range(10):
                watcher.call_ended()
            watcher.trajectory_ended()
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == [f"scheduler: {n} of 8 trajectories" for n in (2, 4, 6, 8)]
    assert "20 of 80 calls" in lines[0]


def test_progress_on_a_terminal_is_a_bar() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with progress_for(console).watch("scheduler", 1, 1) as watcher:
        watcher.call_ended()
        watcher.trajectory_ended()
    assert isinstance(console.file, io.StringIO)
    assert "1/1 trajectories" in console.file.getvalue()
