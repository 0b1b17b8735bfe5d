"""A Ctrl-C at every line of entering and leaving `with Tangram()`, and a second one soon after: it is closed."""

from __future__ import annotations

import asyncio
import linecache
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from types import FrameType
from typing import Any

import pytest

from arl_tangram import Tangram, calling, doorway, loop_thread
from arl_tangram.managers.manager import CpuManager
from arl_tangram.testing import FakePool

FILES = {module.__file__ for module in (calling, doorway, loop_thread)}
CLOSE_S = 0.003
GAPS = [None, 1, 2, 3, 5, 8, 13]
# Only whoever wrote the `with` can guard what comes before the first line and after the last one.
GUARDED_FROM = 3
LAST_LINE = "return self"


class SlowPool:
    """A fake pool that takes a while to open and to close, and tells whether it is open."""

    is_open = False

    def manager(self) -> CpuManager:
        manager = FakePool(cores=2).manager()
        start, aclose = manager.start, manager.aclose

        async def slow_start() -> None:
            self.is_open = True
            await start()
            await asyncio.sleep(CLOSE_S)

        async def slow_aclose() -> None:
            try:
                await asyncio.sleep(CLOSE_S)
            finally:
                await aclose()
                self.is_open = False

        manager.start, manager.aclose = slow_start, slow_aclose  # type: ignore[method-assign]
        return manager


class Presses:
    """Raises KeyboardInterrupt at the given lines of this thread, as a signal handler does between two of them."""

    def __init__(self, *lines: int) -> None:
        self.left = list(lines)
        self.line = 0
        self.last = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Presses | None:
        if frame.f_code.co_filename not in FILES or _in_finalizer(frame):
            return None
        if event == "line":
            self.line += 1
            if self.left and self.line >= self.left[0]:
                self.left.pop(0)
                self.last = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
                raise KeyboardInterrupt
        return self


def _in_finalizer(frame: FrameType | None) -> bool:
    """Whether the garbage collector has called it, so that an error goes nowhere."""
    while frame is not None:
        if frame.f_code.co_filename == weakref.__file__:
            return True
        frame = frame.f_back
    return False


@contextmanager
def pressed(*lines: int) -> Iterator[Presses]:
    presses, before = Presses(*lines), sys.gettrace()
    sys.settrace(presses)
    try:
        with suppress(KeyboardInterrupt):
            yield presses
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("moment", ["entering", "leaving"])
@pytest.mark.parametrize("gap", GAPS)
def test_case_30_interrupts_at_every_line_of_a_with(moment: str, gap: int | None) -> None:
    # Pressed at the end of an `except`, CPython may handle that error for ever: only this thread is to see it.
    with ThreadPoolExecutor(1) as own_thread:
        own_thread.submit(interrupt_everywhere, moment, gap).result()


def interrupt_everywhere(moment: str, gap: int | None) -> None:
    for first in range(GUARDED_FROM, 1000):
        lines = [first] if gap is None else [first, first + gap]
        # In a context of its own: the last line may be interrupted when the runtime is the current one already.
        presses = copy_context().run(interrupt, moment, lines)
        if presses.left == lines:
            assert first > 10
            return


def interrupt(moment: str, lines: list[int]) -> Presses:
    pool = SlowPool()
    tg = Tangram(pool)
    step: Callable[[], object] = tg.__enter__
    if moment == "leaving":
        tg.__enter__()
        step = partial(tg.__exit__, None, None, None)
    with pressed(*lines) as presses:
        step()
    if moment == "entering" and (presses.left == lines or presses.last == LAST_LINE):
        tg.__exit__(None, None, None)
    assert not pool.is_open, f"interrupted at lines {lines}"
    if (thread := getattr(tg, "_thread", None)) is not None:
        thread.stop()  # a press after all is closed may leave it, a daemon
    return presses


def test_no_error_is_left_as_being_handled() -> None:
    error = ValueError()
    with suppress(ValueError):
        raise error
    assert error.__context__ is None
