"""Show how far a command is: a bar on a terminal, plain lines elsewhere; on standard error."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

import rich.progress
from rich.console import Console

from arl_tangram.studies.tasks import Tell

_LINES = 20


@contextmanager
def progress_shown(console: Console, what: str) -> Generator[Tell, None, None]:
    """Yield what is to hear how many of how many are done; when there are others to be done, it begins anew."""
    if not console.is_terminal:
        yield _lines(console, what)
        return
    columns = (
        rich.progress.TextColumn("{task.description:<20}"),
        rich.progress.BarColumn(bar_width=30),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TimeRemainingColumn(),
    )
    with rich.progress.Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


def _lines(console: Console, what: str) -> Tell:
    began_s = time.monotonic()

    def tell(done: int, total: int) -> None:
        if done and (done % max(1, total // _LINES) == 0 or done == total):
            console.print(f"{what}: {done} of {total}, {time.monotonic() - began_s:.0f} s", highlight=False)

    return tell
