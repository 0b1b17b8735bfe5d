"""Inside a worker process: run one call after the other, and tell how each one ended."""

from __future__ import annotations

import multiprocessing.spawn
import os
import pickle
import socket
import sys
import time
import traceback
from collections.abc import Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from arl_tangram.context import Invocable, Quota, TrajectoryScope, active_var, runtime_var
from arl_tangram.errors import NestedActionError, UsageError
from arl_tangram.managers.processes import place
from arl_tangram.managers.processes.call import Call
from arl_tangram.managers.processes.frames import Frame, Kind, oom_kills, receive, send
from arl_tangram.managers.processes.outcome import Ending, Told, failed, returned
from arl_tangram.managers.processes.reference import resolve
from arl_tangram.managers.processes.surroundings import surroundings
from arl_tangram.model.allocation import Allocation


class RemoteAction:
    """The running action, as its body sees it in a worker."""

    ended = False
    sandbox = None
    service = None
    no_sandbox = "its body runs in a worker process, and only those of `async def` actions run in one"

    def __init__(self, name: str, allocation: Allocation) -> None:
        self.name = name
        self.allocation = allocation

    def quota(self, name: str) -> Quota | None:
        """A quota is held by the runtime, in another process."""
        raise UsageError(f"{self.name} runs in a process of its own, where current_quota() does not work")


class RemoteRuntime:
    """What stands for the runtime in a worker, to say that it is elsewhere."""

    is_open = True
    open_on = None

    def __init__(self) -> None:
        self.pid = os.getpid()

    def trajectory(self, *, image: str | None, memory_gib: float, group: str | None) -> TrajectoryScope:
        """Refuse."""
        _refuse("trajectory")

    def invoke(self, action: Invocable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        """Refuse."""
        _refuse(action.spec.name)

    def invoke_sync(self, action: Invocable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NoReturn:
        """Refuse."""
        _refuse(action.spec.name)


def _refuse(what: str) -> NoReturn:
    active = active_var.get()
    chain = f"{active.name} → {what}" if active is not None else what
    raise NestedActionError(f"{chain}: a body in a worker process cannot await an action; call it from the rollout")


def serve(channel: socket.socket) -> None:
    """Answer the runtime until it hangs up."""
    place.is_worker = True
    if not _prepare(channel):
        channel.close()
        return
    runtime_var.set(RemoteRuntime())
    send(channel, Frame(Kind.READY, b""))
    everywhere, me = os.sched_getaffinity(0), os.getpid()
    with suppress(ConnectionError):  # the runtime has hung up
        while (frame := receive(channel)) is not None:
            told, load = _run(channel, pickle.loads(frame.note), frame.load, everywhere)
            _flush()
            if os.getpid() != me:  # a body has forked, and this is the child that came back from it
                os._exit(0)
            told = told._replace(leaves_processes=_has_children())
            send(channel, Frame(Kind.DONE, pickle.dumps(told), load))
            del frame, load


def _prepare(channel: socket.socket) -> bool:
    """Become like the program that started this: its arguments, its folder, its main module."""
    frame = receive(channel)
    if frame is None:
        return False
    complaint = ""
    place.is_preparing = True
    try:
        multiprocessing.spawn.prepare(pickle.loads(frame.note))
    except BaseException:  # noqa: BLE001 - told to who started it, whatever it is
        complaint = traceback.format_exc()
    place.is_preparing = False
    if complaint or place.is_unguarded:
        unguarded = b"unguarded" if place.is_unguarded else b""
        send(channel, Frame(Kind.FAILED, complaint.encode(errors="replace"), unguarded))
        return False
    return True


def _run(
    channel: socket.socket, call: Call, arguments: memoryview | bytes, everywhere: Collection[int]
) -> tuple[Told, bytes]:
    """Run a body; whatever it raises is an outcome."""
    try:
        body = resolve(call.reference)
    except BaseException as error:  # noqa: BLE001 - as above
        return failed(Ending.NOT_FOUND, error)
    try:
        args, kwargs = pickle.loads(arguments)
    except BaseException as error:  # noqa: BLE001 - as above
        return failed(Ending.NOT_UNPACKED, error)
    del arguments
    action = RemoteAction(call.grant.name, call.grant.allocation)
    active = active_var.set(action)
    value, raised, body_s = None, None, 0.0
    try:
        with surroundings(call, everywhere):
            send(channel, Frame(Kind.BEGAN, str(oom_kills()).encode()))
            began_s = time.monotonic()
            try:
                value = body(*args, **kwargs)
            finally:
                body_s = time.monotonic() - began_s
    except BaseException as caught:  # noqa: BLE001 - as above; with very little memory, not even a body can begin
        raised = caught
    finally:
        action.ended = True
        active_var.reset(active)
    return returned(value, body_s) if raised is None else failed(Ending.RAISED, raised, body_s)


def _flush() -> None:
    """Write out what the body has printed: a worker is ended without warning."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _has_children() -> bool:
    """Whether something that the body started still runs; reaps what has ended."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
