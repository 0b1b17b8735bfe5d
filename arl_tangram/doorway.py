"""The way onto an event loop from elsewhere: from other loops, from other threads, and from code without a loop.

What is to be done becomes an errand. It runs on the loop, in a copy of its sender's context; its outcome goes back to
the sender. The loop may be closed at any moment, without a word to those who wait. So each errand is also kept here,
and something that the loop lets go of when it is closed tells so.

A loop that has stopped and was not closed may run again, so errands under way wait for that, unless its thread ends.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar

from arl_tangram.context import running_loop
from arl_tangram.errands import Errand, Glance, errand_var
from arl_tangram.errors import ForkedRuntimeError, RuntimeClosedError, ShutdownError, UsageError, WrongLoopError
from arl_tangram.uninterrupted import settled

T = TypeVar("T")
E = TypeVar("E", bound=Errand[Any])

_FAR_S = 1e9
_LAST_TURNS = 5
_LIMIT_S = 0.5
_LOOK_LIMIT_S = 5.0


class _Sign:
    """Something whose end is noticed."""

    __slots__ = ("__weakref__",)


class Doorway:
    """The way onto one event loop; made on its thread.

    Attributes:
        forced: whether a second Ctrl-C came while somebody waited here for what the first one had ended.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.forced = False
        self._loop = loop
        self._pid = os.getpid()
        self._errands: dict[Errand[Any], None] = {}
        self._closed = False
        self._guard: weakref.ref[asyncio.TimerHandle] | None = None  # only the loop holds it
        self._handles = Context()  # of callbacks here: the sender's would be kept alive by a timer

    @property
    def is_here(self) -> bool:
        """Whether this is said on the loop itself."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def check(self) -> None:
        """Check that something can be done on the loop from elsewhere.

        Raises:
            ForkedRuntimeError: this is a forked child of the loop's process.
            RuntimeClosedError: the runtime, or its loop, is closed.
            WrongLoopError: the loop does not run now.
        """
        if self._pid != os.getpid():
            raise ForkedRuntimeError(f"this runtime was opened by process {self._pid}; open another in this child")
        if self._loop.is_closed():
            raise RuntimeClosedError("the event loop of this runtime was closed, and the runtime with it")
        if self._closed:
            raise RuntimeClosedError("this runtime is closed, not open")
        if not self._loop.is_running():
            raise WrongLoopError("the event loop of this runtime does not run now, and only there can it do something")

    async def visit(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do something on the loop, and wait for it on the running one.

        Cancelling cancels it and takes effect when it has ended.

        Raises:
            UsageError: no event loop runs here, or that of the runtime cannot be reached, as `check` says.
            ShutdownError: the loop ended meanwhile.
        """
        self.check()
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError("no event loop runs in this thread; use run_sync(), or wait() of the runtime") from None
        errand = self._send(Errand(work))
        ended: asyncio.Future[None] = here.create_future()
        errand.outcome.add_done_callback(lambda _: _tell(here, ended))
        try:
            await asyncio.shield(ended)  # which must not be cancelled with this
        except asyncio.CancelledError:
            self._cancel(errand)
            if self._loop.is_running():
                await settled(ended)
            raise
        finally:
            self._cancel(errand)
        return _taken(errand.outcome)

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]], *, patient: bool = True) -> T:
        """Do something on the loop, and block for it.

        A Ctrl-C cancels it, and is raised when it has ended; a second one is raised at once.

        Args:
            work: what to do.
            patient: whether a first Ctrl-C is one; else it counts as the second.

        Raises:
            UsageError: an event loop runs in this thread, or that of the runtime cannot be reached, as `check` says.
            ShutdownError: the loop ended meanwhile.
        """
        self.check()
        check_blocking("to block here")
        errand = Errand(work)
        try:
            self._send(errand)
            concurrent.futures.wait([errand.outcome])
        except BaseException:
            try:
                if errand in self._errands:  # a Ctrl-C may come before it is
                    self._cancel(errand)
                    if patient and self._loop.is_running():
                        concurrent.futures.wait([errand.outcome])
                self.forced = self.forced or not patient
            except BaseException:
                self.forced = True
                raise
            raise
        return _taken(errand.outcome)

    def do(self, look: Callable[[], T]) -> T:
        """Do something short: here if this is the loop, or nothing runs on it; else there, and block for it.

        Raises:
            ForkedRuntimeError: this is a forked child of the loop's process.
            UsageError: another loop runs in this thread, and that of the runtime does not answer within 5 s.
        """
        if self.is_here:
            return look()
        if self._pid != os.getpid():
            self.check()
        if self._closed or not self._loop.is_running():
            return look()
        glance = self._send(Glance(look))
        if running_loop() is not None:  # which this holds up, and which the other loop might be waiting for
            concurrent.futures.wait([glance.outcome], _LOOK_LIMIT_S)
            if self._errands.pop(glance, None) is not None:
                raise UsageError(f"the event loop of this runtime does not answer, for {_LOOK_LIMIT_S:g} s now")
        return glance.outcome.result()

    def closing(self) -> None:
        """Say that what runs now waits for the runtime to be closed, so that closing does not wait for it."""
        errand = errand_var.get()
        if errand is not None:
            errand.closes = True

    async def aclose(self) -> None:
        """Let nothing more in; what is under way is ended, or let go of in half a second, and its senders are told."""
        self._closed = True
        for errand in list(self._errands):
            if errand.task is None:
                self._begin(errand, None)
        for _ in range(_LAST_TURNS):  # in which those end that have been told why
            await asyncio.sleep(0)
        left = [errand.task for errand in self._errands if errand.task is not None and not errand.closes]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_LIMIT_S)
            await asyncio.sleep(0)
        self._lose(but_closing=True)
        guard = None if self._guard is None else self._guard()
        if guard is not None:
            guard.cancel()

    # On the sender's side.

    def _send(self, errand: E) -> E:
        self.check()
        self._errands[errand] = None
        if self._closed:  # it may have been closed in between, and then nobody looks for this one
            self._answer(errand, None, RuntimeClosedError("this runtime is closed, not open"))
        else:
            self._post(self._begin, errand)
        return errand

    def _post(self, do: Callable[[Errand[Any], _Sign | None], None], errand: Errand[Any]) -> None:
        """Have something done on the loop; should it be closed before that, `_look` hears of it."""
        sign = _Sign()
        weakref.finalize(sign, self._look).atexit = False
        try:
            self._loop.call_soon_threadsafe(do, errand, sign, context=self._handles)
        except RuntimeError:  # closed
            self._lose()
        else:
            self._look()  # what was posted in the moment of the closing stays there for ever

    def _cancel(self, errand: Errand[Any]) -> None:
        if not errand.outcome.done():
            self._post(self._cancel_here, errand)

    # On the loop.

    def _begin(self, errand: Errand[Any], _: _Sign | None) -> None:
        if errand not in self._errands:
            return
        if isinstance(errand, Glance):
            self._errands.pop(errand)
            errand.perform()
        elif self._closed:
            self._answer(errand, None, RuntimeClosedError("this runtime is closed, not open"))
        else:
            self._keep_watch()
            errand.begin(self._loop).add_done_callback(lambda task: self._ended(errand, task), context=self._handles)

    def _cancel_here(self, errand: Errand[Any], _: _Sign | None) -> None:
        if errand.task is None:
            self._answer(errand, None, asyncio.CancelledError())
        else:
            errand.task.cancel()

    def _ended(self, errand: Errand[Any], task: asyncio.Task[tuple[Any, BaseException | None]]) -> None:
        if not task.cancelled():
            self._answer(errand, *task.result())
        elif task.cancelling():
            self._answer(errand, None, _shut_down())
        else:
            self._answer(errand, None, asyncio.CancelledError())

    # When the loop goes.

    def _keep_watch(self) -> None:
        """Leave something with the loop, and with its thread, that ends when they do."""
        if self._guard is None:
            sign = _Sign()
            weakref.finalize(sign, self._look).atexit = False
            self._guard = weakref.ref(self._loop.call_later(_FAR_S, _let_go, sign, context=self._handles))
        _thread.doors.add(self)

    def _look(self) -> None:
        """Tell all senders if the loop was closed."""
        if self._loop.is_closed():
            self._lose()

    def thread_ended(self) -> None:
        """Tell all senders if the loop has lost its thread."""
        if not self._loop.is_running():
            self._lose()

    def _lose(self, *, but_closing: bool = False) -> None:
        for errand in list(self._errands):
            if errand.task is None:
                self._answer(errand, None, RuntimeClosedError("the event loop of this runtime was closed"))
            elif not (but_closing and errand.closes):
                errand.let_go()
                self._answer(errand, None, _shut_down())

    def _answer(self, errand: Errand[Any], value: Any, error: BaseException | None) -> None:
        try:
            del self._errands[errand]  # whoever takes it out answers
        except KeyError:
            return
        errand.end(value, error)


def is_coroutine(value: object) -> bool:
    """Return whether something can be run on a loop, once."""
    return inspect.iscoroutine(value)


def check_blocking(what: str) -> None:
    """Check that blocking here holds up no event loop.

    Raises:
        UsageError: one runs in this thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(f"an event loop runs in this thread, and {what} would hold it up: await it instead")


class _Thread(threading.local):
    """Notices the end of a thread that has run the loop of a doorway."""

    def __init__(self) -> None:
        self.doors: weakref.WeakSet[Doorway] = weakref.WeakSet()
        self.sign = _Sign()
        weakref.finalize(self.sign, _tell_doors, self.doors).atexit = False


def _tell_doors(doors: weakref.WeakSet[Doorway]) -> None:
    for door in list(doors):
        door.thread_ended()


def _tell(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
    def tell() -> None:
        if not ended.done():
            ended.set_result(None)

    with suppress(RuntimeError):  # that loop is closed: nobody waits there any more
        loop.call_soon_threadsafe(tell)


def _taken(outcome: concurrent.futures.Future[T]) -> T:
    """Return the result or raise the error, without a cycle through its traceback."""
    try:
        return outcome.result()
    finally:
        del outcome


def _shut_down() -> ShutdownError:
    return ShutdownError("the runtime, or its event loop, was closed while this was under way")


def _let_go(_: _Sign) -> None:
    """Stand in a timer that is never due."""


_thread = _Thread()
