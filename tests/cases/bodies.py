"""Bodies for worker processes, which find them by their names."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import arl_tangram as tangram


@tangram.action(cpu=1, isolate="process")
def name_of_process() -> int:
    return os.getpid()


@tangram.action(isolate="process")
def fails_at(item: int, bad: int) -> int:
    if item == bad:
        raise KeyError(item)  # the line of the tool in a process
    return item


@tangram.action(isolate="process")
def says_so_and_ends(log: str, how: str) -> None:
    """Append a line, then let the worker be lost: whether it was run again can be counted."""
    with Path(log).open("a") as file:
        file.write("ran\n")
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)


@tangram.action(isolate="process")
def calls_another() -> int:
    return tangram.run_sync(name_of_process)
