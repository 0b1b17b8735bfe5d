"""Run a coroutine in virtual time, one callback per step, so that something can be done to it at every single step."""

from __future__ import annotations

import asyncio
import functools
import heapq
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

R = TypeVar("R")

LIMIT_S = 1e6
MOST_STEPS = 2_000_000


class StuckError(AssertionError):
    """Nothing is ready and no timer is set: whoever still waits would wait for ever."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop without input, output or threads: time jumps to the next timer when nothing is ready.

    Callbacks run in the order of every other loop; each counts as one step.

    Attributes:
        step: callbacks run so far.
        before_step: called before each of them, with its number from 1.
        when_quiet: called before each jump of time.
        errors: what was given to the exception handler of the loop.
    """

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__()
        self.step = 0
        self.before_step: Callable[[int], None] = lambda step: None
        self.when_quiet: Callable[[], None] = lambda: None
        self.errors: list[dict[str, Any]] = []
        self.set_exception_handler(lambda loop, context: self.errors.append(context))

    def time(self) -> float:
        return self._now_s

    def timers(self) -> list[asyncio.TimerHandle]:
        """Return the timers that will still fire."""
        return [timer for timer in self._scheduled if not timer.cancelled()]

    def _run_once(self) -> None:
        if not self._ready:
            self.when_quiet()
        if not self._ready:
            self._jump()
        self._move_due_timers()
        self.step += 1
        if self.step > MOST_STEPS:
            raise StuckError(f"the loop is still busy after {self.step} steps, at {self._now_s} s")
        self.before_step(self.step)
        handle = self._ready.popleft()
        if not handle.cancelled():
            handle._run()

    def _jump(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():
            self._timer_cancelled_count -= 1
            heapq.heappop(self._scheduled)._scheduled = False
        if not self._scheduled:
            waiting = [task for task in asyncio.all_tasks(self) if not task.done()]
            raise StuckError(f"nothing can happen after {self._now_s} s; {len(waiting)} tasks wait: {waiting[:3]}")
        self._now_s = max(self._now_s, self._scheduled[0].when())
        if self._now_s > LIMIT_S:
            raise StuckError(f"still waiting at {self._now_s} s")

    def _move_due_timers(self) -> None:
        while self._scheduled and self._scheduled[0].when() <= self._now_s:
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False
            if timer.cancelled():
                self._timer_cancelled_count -= 1
            self._ready.append(timer)


def run_virtually(main: Coroutine[Any, Any, R], loop: VirtualLoop | None = None) -> R:
    """Run a coroutine to its end in virtual time; fail if it leaves a task, a timer or an unseen error behind."""
    loop = loop or VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(_leaving_nothing(main))
    assert not loop.errors, loop.errors
    return result


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of a coroutine function; it runs in virtual time."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtually(test(*args, **kwargs))

    return run


def virtual_loop() -> VirtualLoop:
    """Return the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


async def turns(count: int) -> None:
    """Let everybody else run, this many times."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """In real time, wait for what a thread does; the time limit of the test bounds it."""
    while not condition():  # noqa: ASYNC110 - a thread sets no event of the loop
        await asyncio.sleep(0.001)


async def _leaving_nothing(main: Coroutine[Any, Any, R]) -> R:
    result = await main
    await turns(3)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks were left behind: {left}"
    timers = virtual_loop().timers()
    assert not timers, f"timers were left behind: {timers}"
    return result
