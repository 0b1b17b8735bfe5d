"""What `test_main_ppo` adds to the agent of the example: what is in a sandbox at first, and when each body runs."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from spans import span

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
