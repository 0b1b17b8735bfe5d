"""When bodies of actions run, in whatever process, as lines of a file that all processes of a program write."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
