"""The runtime of this process: one that is open here, or the shared one, opened on a loop of its own at first use.

Trainers make and use their workers inside event loops that are theirs: heartbeats to the owner of a shared runtime must
not depend on them, and what blocks must not stand in their way.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from arl_tangram.calling import Calling
from arl_tangram.context import open_runtimes, runtime_var
from arl_tangram.errors import ConfigurationError, NoRuntimeError, NoSharedRuntimeError, TangramError
from arl_tangram.integrations.ray import Shared, connect
from arl_tangram.integrations.ray.installed import in_worker

T = TypeVar("T")


class _Here:
    """The shared runtime that was opened here for this process, if any."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held for no longer than a look
        self.opening: concurrent.futures.Future[Shared] | None = None
        self.pid = os.getpid()
        self.missed: dict[str, tuple[float, str]] = {}  # until when a name is not looked for again, and why

    def usable(self) -> concurrent.futures.Future[Shared] | None:
        """Return what was opened, or is being opened, unless it failed, was closed, or lost its owner for good."""
        opening = self.opening
        if opening is None or self.pid != os.getpid() or (opening.done() and opening.exception() is not None):
            return None
        return opening if not opening.done() or _is_usable(opening.result()) else None


_here = _Here()


def open_here(make: Callable[[], Shared]) -> Shared:
    """Open a shared runtime for this process, on a loop of its own, or return the one that is open; blocks.

    It may be called where an event loop runs, which stands still meanwhile.

    Args:
        make: returns it, such as `lambda: share(pools)`; not opened.

    Raises:
        ConfigurationError: it is no shared runtime, or one of another name is open here.
        TangramError: it cannot be opened; see `share` and `connect`.
    """
    made = make()
    if not isinstance(made, Shared):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"open_here() takes what share() or connect() returns, not {made!r}; a Tangram of this process alone is "
            "entered by `with`"
        )
    opened = _begin(lambda: made).result()
    if opened.name != made.name:
        text = f"this process has the shared runtime {opened.name!r} open, and can have no {made.name!r} beside it"
        raise ConfigurationError(text)
    return opened


async def runtime_here(name: str = "tangram", *, timeout_s: float = 60) -> Calling:
    """Return the runtime of this process: one that the program has opened, else the shared one of a name.

    That is opened once for the process, whoever asks and on whichever loop; again after its owner was lost.

    Args:
        name: of the shared runtime.
        timeout_s: seconds until it must be there.

    Raises:
        ConfigurationError: in a worker of Ray, a `Tangram` is open whose limits would hold in this process only.
        NoRuntimeError: several runtimes are open here, and none of them is the current one.
        NoSharedRuntimeError: none is open here, and none is shared under this name. It is raised at once to those who
            ask within the next `timeout_s` seconds: each call of a tool asks, and would wait again.
    """
    found = _open_in_program(name)
    if found is not None:
        return found
    until_s, why = _here.missed.get(name, (0.0, ""))
    if time.monotonic() < until_s:
        raise NoSharedRuntimeError(why)
    opening = _begin(lambda: connect(name, timeout=timeout_s))
    try:
        opened = await asyncio.wrap_future(opening)
    except NoSharedRuntimeError as error:
        _here.missed[name] = time.monotonic() + timeout_s, str(error)
        raise
    if opened.name != name:
        raise ConfigurationError(
            f"this process has the shared runtime {opened.name!r} open, and was asked for {name!r}"
        )
    return opened


def close_here() -> None:
    """Close what was opened by `open_here` or `runtime_here`, if anything; blocks, bounded."""
    with _here.lock:
        opening, _here.opening = _here.opening, None
        _here.missed.clear()
    if opening is None or _here.pid != os.getpid():
        return
    concurrent.futures.wait([opening])
    if opening.exception() is None:
        _elsewhere(lambda: _leave(opening.result())).result()


def _open_in_program(name: str) -> Calling | None:
    """Return the runtime that is open in this process, whoever opened it."""
    found = [one for one in list(open_runtimes) if isinstance(one, Calling) and one.is_open and one.pid == os.getpid()]
    for one in found:
        if isinstance(one, Shared) and one.name == name and _is_usable(one):
            return one
    own = [one for one in found if not isinstance(one, Shared)]
    if own and in_worker():
        raise ConfigurationError(
            f"{own[0]!r} is open in process {os.getpid()}, a worker of Ray: its limits hold in this process only, and "
            "each worker would have its own; share the pools from the trainer's process, and open none in workers"
        )
    if len(own) > 1:
        current = runtime_var.get()
        own = [one for one in own if one is current]
        if not own:
            raise NoRuntimeError("several runtimes are open in this process and none of them is current here")
    return own[0] if own else None


def _begin(make: Callable[[], Shared]) -> concurrent.futures.Future[Shared]:
    """Return what is open, or begin to open it, on a thread."""
    with _here.lock:
        opening = _here.usable()
        if opening is None:
            before, of_here = _here.opening, _here.pid == os.getpid()
            _here.pid = os.getpid()
            opening = _here.opening = _elsewhere(lambda: _opened(before if of_here else None, make))
        return opening


def _opened(before: concurrent.futures.Future[Shared] | None, make: Callable[[], Shared]) -> Shared:
    if before is not None and before.done() and before.exception() is None:
        with suppress(TangramError):  # its owner is lost
            _leave(before.result())
    return make().__enter__()


def _leave(shared: Shared) -> None:
    shared.__exit__(None, None, None)


def _is_usable(shared: Shared) -> bool:
    return shared.is_open and not shared.is_over


def _elsewhere(work: Callable[[], T]) -> concurrent.futures.Future[T]:
    """Do what blocks on a thread of its own, where no event loop runs."""
    done: concurrent.futures.Future[T] = concurrent.futures.Future()
    done.set_running_or_notify_cancel()  # so that who waits and is cancelled cancels it for nobody else

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, name="arl_tangram here", daemon=True).start()
    return done
