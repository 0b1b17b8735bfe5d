"""Notice `async def` bodies that hold up the event loop, and name them: while they do, nothing else runs.

A step of a body is what it does between two awaits. One that has held the loop for `LONG_S` is logged when it ends; one
that goes on is logged while it does, with the line that it is at, from a thread that looks once in a while. A body that
holds the loop gives no event to wait for, so that thread has to look at a clock.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from types import CoroutineType
from typing import Any, Self, cast

LONG_S = 0.25
STUCK_S = 2.0
_MOST_NAMES = 1000
_LONG_COLLECTION_S = 0.01

_logger = logging.getLogger(__name__)


class _Collections:
    """The long collections of garbage of late, which are not the fault of the body in whose step they fall."""

    def __init__(self) -> None:
        self._watches = 0
        self._began_s = 0.0
        self._long: deque[tuple[float, float]] = deque(maxlen=256)

    def watch(self) -> None:
        """Note them from now on."""
        self._watches += 1
        if self._watches == 1:
            gc.callbacks.append(self._note)

    def leave(self) -> None:
        """Note them no longer, unless somebody else wants that."""
        self._watches -= 1
        if self._watches == 0:
            gc.callbacks.remove(self._note)

    def since_s(self, began_s: float) -> float:
        """Return the seconds spent on those that began at this time or later."""
        return sum(took_s for at_s, took_s in list(self._long) if at_s >= began_s)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began_s = monotonic()
        elif (took_s := monotonic() - self._began_s) > _LONG_COLLECTION_S:
            self._long.append((self._began_s, took_s))


class LoopWatch:
    """Watches the steps of the bodies on one event loop; made on the thread of the loop.

    Attributes:
        name: of the body that makes a step now, or None.
        began_s: when that step, or the last one, began.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self.began_s = 0.0
        self._loop_thread = threading.get_ident()
        self._named: set[str] = set()
        closed = threading.Event()
        _collections.watch()
        self._finish = weakref.finalize(self, _finish, closed)
        looking = threading.Thread(
            target=_look_until, args=(closed, weakref.ref(self)), name="arl_tangram watch", daemon=True
        )
        looking.start()

    def begin(self, body: Awaitable[Any], name: str) -> tuple[Any, Awaitable[Any] | None]:
        """Run the first step of a body, which is all of many.

        Returns:
            What the body returned; and what runs the rest of it when it is awaited and then returns that, or None.
        """
        if type(body) is not CoroutineType:  # what cannot be run step by step is not watched
            return None, body
        coroutine = cast("Coroutine[Any, Any, Any]", body)
        self.name, self.began_s = name, monotonic()
        try:
            waits_for = coroutine.send(None)
        except StopIteration as ended:
            return ended.value, None
        finally:
            self.name = None
            if monotonic() - self.began_s >= LONG_S:
                self.held(name, monotonic() - self.began_s)
        return None, Steps(coroutine, waits_for, name, self)

    def close(self) -> None:
        """Let the thread end."""
        self._finish()

    def held(self, name: str, for_s: float) -> None:
        """Name a body that has held the loop for `for_s` until now, once."""
        for_s -= _collections.since_s(monotonic() - for_s)
        if for_s >= LONG_S and self._is_new(name):
            _logger.warning(
                "%s held the event loop for %.2f s in one step, and nothing else ran meanwhile: "
                "await in it, or make it a plain `def`, which runs on a thread",
                name,
                for_s,
            )

    def look(self) -> None:
        """Name a body that goes on holding the loop; called on another thread."""
        name, began_s = self.name, self.began_s
        if name is None or monotonic() - began_s < STUCK_S:
            return
        frame = sys._current_frames().get(self._loop_thread)  # pyright: ignore[reportPrivateUsage] - documented
        where = "".join(traceback.format_stack(frame, limit=3)) if frame is not None else ""
        if self.name is name and self.began_s == began_s and self._is_new(name):
            _logger.warning(
                "%s has held the event loop for %.1f s and still does; nothing else runs meanwhile. It is at\n%s",
                name,
                monotonic() - began_s,
                where,
            )

    def _is_new(self, name: str) -> bool:
        if name in self._named or len(self._named) >= _MOST_NAMES:
            return False
        self._named.add(name)
        return True


class Steps:
    """Runs the rest of a coroutine, step by step.

    Args:
        body: the coroutine.
        waits_for: what its first step waits for.
        name: of the action.
        watch: watches each step.
    """

    __slots__ = ("_body", "_name", "_send", "_waits_for", "_watch")

    def __init__(self, body: Coroutine[Any, Any, Any], waits_for: Any, name: str, watch: LoopWatch) -> None:
        self._body = body
        self._send: Callable[[None], Any] = self._first
        self._waits_for = waits_for
        self._name = name
        self._watch = watch

    def _first(self, _: None) -> Any:
        self._send = self._body.send
        return self._waits_for

    def __await__(self) -> Self:
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        watch = self._watch
        watch.name, watch.began_s = self._name, monotonic()
        try:
            return self._send(None)
        finally:
            watch.name = None
            if monotonic() - watch.began_s >= LONG_S:
                watch.held(self._name, monotonic() - watch.began_s)

    def send(self, value: Any) -> Any:
        """Go on to the next await."""
        return self.__next__()

    def throw(self, *error: Any) -> Any:
        """Go on with an error, such as that it is cancelled."""
        throwing = self._body.throw

        def send(_: None) -> Any:
            return throwing(*error)

        self._send = send
        try:
            return self.__next__()
        finally:
            self._send = self._body.send

    def close(self) -> None:
        """End it without a result."""
        self._body.close()


def _finish(closed: threading.Event) -> None:
    closed.set()
    _collections.leave()


def _look_until(closed: threading.Event, watch_ref: weakref.ref[LoopWatch]) -> None:
    while not closed.wait(STUCK_S / 2):
        watch = watch_ref()
        if watch is not None:
            watch.look()
        del watch


_collections = _Collections()
