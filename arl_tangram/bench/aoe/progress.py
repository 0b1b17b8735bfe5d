"""Show how the measurement goes on: a bar on a terminal, lines elsewhere; both on standard error."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

import rich.progress
from rich.console import Console

_FRAMES_PER_S = 2.0  # drawing takes the interpreter that is measured


@contextmanager
def shown(about_s: float) -> Generator[Callable[[str], None], None, None]:
    """Show what goes on; yields what is to be told of each step. `about_s` is how long all of it may take."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: print(text, file=console.file, flush=True)
        return
    columns = (
        rich.progress.BarColumn(bar_width=20),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TextColumn(f"of about {about_s / 60:.0f} min"),
        rich.progress.TextColumn("{task.description}"),
    )
    with rich.progress.Progress(*columns, console=console, refresh_per_second=_FRAMES_PER_S) as bars:
        task = bars.add_task("", total=about_s)

        def tell(text: str) -> None:
            elapsed_s = bars.tasks[0].elapsed or 0.0
            bars.update(task, description=text, completed=min(elapsed_s, 0.99 * about_s))

        yield tell
        bars.update(task, description="done", completed=about_s)
