"""What `test_main_ppo` adds to the agent of the example: what is in a sandbox at first, and when each body runs."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

import arl_tangram as tangram

P = ParamSpec("P")
R = TypeVar("R")

# For the programs of the model: they can import it only in a sandbox that was set up, and write down when they run.
WATCH = """
import atexit, json, time
begun_s = time.monotonic()
def end():
    line = json.dumps({{"kind": "tool", "pid": 0, "span": [begun_s, time.monotonic()]}})
    with open({path!r}, "a") as file:
        file.write(line + "\\n")
atexit.register(end)
time.sleep(0.05)
"""


@contextmanager
def span(kind: str) -> Iterator[None]:
    """Write down from when to when a body runs, and in which process."""
    begun_s = time.monotonic()  # of this machine, so that processes can be compared
    try:
        yield
    finally:
        line = json.dumps({"kind": kind, "pid": os.getpid(), "span": [begun_s, time.monotonic()]})
        with Path(os.environ["SPANS"]).open("a") as file:
            file.write(f"{line}\n")


def watched(body: Callable[P, R]) -> Callable[P, R]:
    """Write down when the body of an action runs, as the kind `grade`."""

    @functools.wraps(body)
    def watching(*args: P.args, **kwargs: P.kwargs) -> R:
        with span("grade"):
            return body(*args, **kwargs)

    return watching


@tangram.action(cpu=1, timeout=60)
async def prepare() -> None:
    """Put the module `watch` into the sandbox."""
    with span("setup"):
        await tangram.current_sandbox().write_file("watch.py", WATCH.format(path=os.environ["SPANS"]).encode())
