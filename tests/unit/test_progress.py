"""How far a command is: lines where nobody looks at bars, and a bar that is gone at the end."""

from __future__ import annotations

import io

from rich.console import Console

from arl_tangram.progress import progress_shown


def test_lines_where_there_is_no_terminal() -> None:
    file = io.StringIO()
    with progress_shown(Console(file=file)) as tell:
        tell("reserved(1): cores [all]", 0, 2)
        tell("fixed(1): cores", 1, 2)
    assert file.getvalue() == "1 of 2, after 0 s: reserved(1): cores [all]\n2 of 2, after 0 s: fixed(1): cores\n"


def test_a_bar_on_a_terminal() -> None:
    file = io.StringIO()
    with progress_shown(Console(file=file, force_terminal=True, width=100, color_system=None)) as tell:
        tell("reserved(1): cores", 3, 7)
    text = file.getvalue()
    assert "3/7" in text
    assert "reserved(1): cores" in text
    assert text.endswith("\x1b[2K")  # the line is wiped
