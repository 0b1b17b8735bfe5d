"""Show how the runs go on: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

import rich.progress
from rich.console import Console

from arl_tangram.demo.comparison import Progress
from arl_tangram.demo.playing import Watcher

# Drawing holds the interpreter that also schedules: often enough for the eye, seldom enough for the measurement.
_FRAMES_PER_S = 2
_LINES = 4


def progress_for(console: Console) -> Progress:
    """Return what suits the console."""
    return Bars(console) if console.is_terminal else Lines(console)


@contextmanager
def import_shown(console: Console) -> Generator[Callable[[int, int], None], None, None]:
    """Show how an image is imported: yields what is to hear how many of how many bytes are there."""
    if not console.is_terminal:
        yield partial(_print_import, console)
        return
    columns = (
        rich.progress.TextColumn("{task.description:<20}"),
        rich.progress.BarColumn(bar_width=14),
        rich.progress.DownloadColumn(),
        rich.progress.TimeElapsedColumn(),
    )
    with rich.progress.Progress(*columns, console=console, refresh_per_second=_FRAMES_PER_S) as bars:
        task = bars.add_task("Docker image", total=None, visible=False)
        yield lambda done, size: bars.update(task, completed=done, total=size, visible=True)


def _print_import(console: Console, done: int, size: int) -> None:
    if done == size:
        console.print(f"Docker image: {size / 1e6:.0f} MB sent to the daemon", highlight=False)


class Bars:
    """One bar per run, that counts calls; bars of earlier runs stay."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def watch(self, label: str, trajectories: int, calls: int) -> Generator[Watcher, None, None]:
        """Show a bar while the run goes on."""
        columns = (
            rich.progress.TextColumn("{task.description:<20}"),
            rich.progress.BarColumn(bar_width=14),
            rich.progress.TextColumn("{task.fields[ended]:>3}/{task.fields[trajectories]} trajectories"),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TextColumn("calls"),
            rich.progress.TimeElapsedColumn(),
        )
        with rich.progress.Progress(*columns, console=self._console, refresh_per_second=_FRAMES_PER_S) as bars:
            task = bars.add_task(label, total=calls, ended=0, trajectories=trajectories)
            yield _Bar(bars, task)


class _Bar:
    def __init__(self, bars: rich.progress.Progress, task: rich.progress.TaskID) -> None:
        self._bars = bars
        self._task = task
        self._ended = 0

    def call_ended(self) -> None:
        self._bars.advance(self._task)

    def trajectory_ended(self) -> None:
        self._ended += 1
        self._bars.update(self._task, ended=self._ended)


class Lines:
    """A few lines per run."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def watch(self, label: str, trajectories: int, calls: int) -> Generator[Watcher, None, None]:
        """Print a line each time another quarter of the trajectories has ended."""
        yield _Line(self._console, label, trajectories, calls)


class _Line:
    def __init__(self, console: Console, label: str, trajectories: int, calls: int) -> None:
        self._console = console
        self._label = label
        self._trajectories = trajectories
        self._began_s = time.perf_counter()
        self._calls = calls
        self._calls_ended = 0
        self._ended = 0

    def call_ended(self) -> None:
        self._calls_ended += 1

    def trajectory_ended(self) -> None:
        self._ended += 1
        if self._ended * _LINES // self._trajectories > (self._ended - 1) * _LINES // self._trajectories:
            took_s = time.perf_counter() - self._began_s
            self._console.print(
                f"{self._label}: {self._ended} of {self._trajectories} trajectories, "
                f"{self._calls_ended} of {self._calls} calls, {took_s:.1f} s",
                highlight=False,
            )
