"""Bodies with GPUs of their own: in a module, because a worker finds them by their names."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import arl_tangram as tangram

VARIABLE = "CUDA_VISIBLE_DEVICES"


class Seen(NamedTuple):
    """What a body sees.

    Attributes:
        pid: its worker's.
        devices: what it was granted.
        now: the variable, as the body has it.
        at_start: the same when its process started, before anything could have looked.
        order: in which CUDA counts.
    """

    pid: int
    devices: tuple[str, ...]
    now: str | None
    at_start: str | None
    order: str | None


def see() -> Seen:
    environ = dict(entry.split("=", 1) for entry in Path("/proc/self/environ").read_text().split("\0") if "=" in entry)
    return Seen(
        os.getpid(),
        tangram.current_allocation().devices,
        os.environ.get(VARIABLE),
        environ.get(VARIABLE),
        os.environ.get("CUDA_DEVICE_ORDER"),
    )


@tangram.action(isolate="process")
def without() -> Seen:
    return see()


@tangram.action(gpu=1, isolate="process")
def on_one() -> Seen:
    return see()


@tangram.action(gpu=2, isolate="process")
def on_two() -> Seen:
    return see()


@tangram.action(gpu=tangram.Elastic(1, 2, speedup=tangram.Linear()), isolate="process")
def on_one_or_two() -> Seen:
    return see()


@tangram.action(gpu=4, isolate="process")
def on_four() -> Seen:
    return see()


@tangram.action(gpu=2, isolate="process", timeout=0.5)
def too_long(pid_file: str) -> None:
    Path(pid_file).write_text(str(os.getpid()))
    time.sleep(600)
