"""Show how far a command is: a bar on a terminal, plain lines elsewhere; on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import rich.progress
from rich.console import Console

Tell = Callable[[str, int, int], None]
"""Hears in words what is done now, how many such things are done, and how many there are."""


@contextmanager
def progress_shown(console: Console) -> Generator[Tell, None, None]:
    """Yield what is to hear how it goes on; the bar is gone at the end, lines stay."""
    if not console.is_terminal:
        yield _lines(console)
        return
    columns = (
        rich.progress.BarColumn(bar_width=20),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TextColumn("{task.description}"),
    )
    with rich.progress.Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("", total=None)
        yield lambda text, done, total: bars.update(bar, description=text, completed=done, total=total)


def _lines(console: Console) -> Tell:
    began_s = time.monotonic()

    def tell(text: str, done: int, total: int) -> None:
        console.print(
            f"{done + 1} of {total}, after {time.monotonic() - began_s:.0f} s: {text}", highlight=False, markup=False
        )

    return tell
