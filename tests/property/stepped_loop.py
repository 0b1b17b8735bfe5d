"""An event loop that a test drives by hand, in virtual time, with threads that take turns with it."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

from arl_tangram.errands import Errand
from arl_tangram.managers.threads import BodyThreads
from virtual_time import VirtualLoop

_LONGEST_STEP_S = 5.0
_NEVER_S = 1e8


class SteppedLoop(VirtualLoop):
    """A virtual loop that runs for some time, or for some callbacks; in between, the test does what it likes.

    Attributes:
        lockstep: the threads that this loop waits for before each of its callbacks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lockstep = Lockstep(self)
        self._until_s = math.inf
        self._steps_left = math.inf

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is left to do before time passes."""
        return not self._ready

    def run_for(self, for_s: float = 0.0) -> None:
        """Let so much time pass; at the end, nothing is left to do before more of it passes."""
        self._until_s, self._steps_left = self.time() + for_s, math.inf
        self.run_forever()
        self.lockstep.wait()

    def run_steps(self, count: int) -> None:
        """Run so many callbacks, or fewer if nothing is left to do now."""
        self._until_s, self._steps_left = self.time(), count
        self.run_forever()
        self.lockstep.wait()

    def finish(self) -> None:
        """Close the loop; nothing may be left in it."""
        self.lockstep.join()
        tasks = asyncio.all_tasks(self)
        assert not tasks, f"tasks were left behind: {tasks}"
        timers = self.timers()
        assert not timers, f"timers were left behind: {timers}"
        self.close()
        assert not self.errors, self.errors

    def abandon(self) -> None:
        """Close the loop whatever is left in it, after a failure."""
        self.set_exception_handler(lambda loop, context: None)
        for _ in range(3):
            self.lockstep.open_gates()
            for task in asyncio.all_tasks(self):
                task.cancel()
            self.run_for(1000)
        self.close()

    def next_timer_s(self) -> float | None:
        """Return when the next timer fires; None if there is none but those that are never to fire."""
        return min((timer.when() for timer in self.timers() if timer.when() < _NEVER_S), default=None)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self.lockstep.told_the_loop(args)
        return handle

    def _run_once(self) -> None:
        self.lockstep.wait()
        if not self._ready:
            at_s = self.next_timer_s()
            if at_s is None or at_s > self._until_s:
                if self._until_s < math.inf:
                    self._now_s = max(self._now_s, self._until_s)
                self.stop()
                return
        self._steps_left -= 1
        if self._steps_left <= 0:
            self.stop()
        super()._run_once()
        self.lockstep.wait()  # while the loop still runs: a thread may want something of it


_awaited: dict[Errand[Any], Lockstep] = {}
"""What threads wait for that move in lockstep."""


class Lockstep:
    """Bodies on threads that move only while the loop stands still, so that each run is the same.

    A body moves from when it is started, its time to sleep is over or its call of an action has ended, until it sleeps,
    has called an action, or has told the loop of its end. The same holds for threads that are no bodies.
    """

    def __init__(self, loop: SteppedLoop) -> None:
        self._loop = loop
        self._moving = 0
        self._changed = threading.Condition()
        self._this = threading.local()
        self._gates: set[threading.Event] = set()
        self._threads: list[threading.Thread] = []

    def starts(self) -> None:
        """One more moves from now on."""
        with self._changed:
            self._moving += 1

    def wait(self) -> None:
        """Let the loop stand still until nobody moves."""
        if self._moving:
            with self._changed:
                assert self._changed.wait_for(lambda: not self._moving, _LONGEST_STEP_S), "a thread does not come back"

    def sleep_until(self, at_s: float) -> None:
        """On the thread of a body: sleep until this time of the loop."""
        gate = threading.Event()
        self._gates.add(gate)
        self._loop.call_at(at_s, self._wake, gate)
        self._stops()
        gate.wait()
        self._gates.discard(gate)

    def ends(self) -> None:
        """On the thread of a body: what it tells the loop next is that it has ended."""
        self._this.ending = True

    def told_the_loop(self, told: tuple[Any, ...]) -> None:
        """Whoever called has told the loop something."""
        if getattr(self._this, "calling", False):
            self._this.calling = False
            _awaited[told[0]] = self
            self._stops()
        elif getattr(self._this, "ending", False):
            self._this.ending = False
            self._stops()

    @contextmanager
    def calls_the_loop(self) -> Iterator[None]:
        """On a thread that moves: what it tells the loop next is that it waits for an answer."""
        self._this.calling = True
        try:
            yield
        finally:
            self._this.calling = False

    def answers(self, end: Callable[[], None]) -> None:
        """The thread that waits for this can go on: when the loop stands still."""
        if self._loop.is_closed():
            self._go_on(end)
        else:
            self._loop.call_soon(self._go_on, end, context=Context())

    def _go_on(self, end: Callable[[], None]) -> None:
        self.starts()
        end()

    def start_thread(self, work: Callable[[], None]) -> None:
        """When the loop runs, do something on a thread of its own that moves in lockstep."""
        self._loop.call_soon(self._start_thread, work, context=Context())

    def _start_thread(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            finally:
                self._stops()

        self.starts()
        thread = threading.Thread(target=run, name="beside the loop", daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        """Wait for the threads that are no bodies; they must have come to their ends."""
        for thread in self._threads:
            thread.join(_LONGEST_STEP_S)
            assert not thread.is_alive(), "a thread was left behind"
        self._threads.clear()

    def open_gates(self) -> None:
        """Wake all who sleep."""
        for gate in list(self._gates):
            self._wake(gate)

    def _wake(self, gate: threading.Event) -> None:
        if not gate.is_set():
            self.starts()
            gate.set()

    def _stops(self) -> None:
        with self._changed:
            self._moving -= 1
            self._changed.notify_all()


@contextmanager
def threads_in_lockstep() -> Iterator[None]:
    """Let the threads of the library, and those that wait for it, move in lockstep with every `SteppedLoop`."""
    run: Callable[..., Any] = BodyThreads.run
    end: Callable[..., Any] = Errand.end

    def stepped(self: BodyThreads, *args: Any, **kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        if isinstance(loop, SteppedLoop):
            loop.lockstep.starts()
        return run(self, *args, **kwargs)

    def answered(self: Errand[Any], value: Any, error: BaseException | None) -> None:
        lockstep = _awaited.pop(self, None)
        if lockstep is None:
            end(self, value, error)
        else:
            lockstep.answers(lambda: end(self, value, error))

    BodyThreads.run = stepped  # type: ignore[method-assign]
    Errand.end = answered  # type: ignore[method-assign]
    try:
        yield
    finally:
        BodyThreads.run = run  # type: ignore[method-assign]
        Errand.end = end  # type: ignore[method-assign]
