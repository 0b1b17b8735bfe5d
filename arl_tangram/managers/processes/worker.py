"""The runtime's end of one worker: starts it, hands it calls, hears of its death at once, kills it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pickle
import signal
import socket
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from arl_tangram.managers.child import start
from arl_tangram.managers.environment import SANDBOX_VARIABLE
from arl_tangram.managers.host.owner import new_name
from arl_tangram.managers.local.keeper import descendants, send_signal
from arl_tangram.managers.processes.boot import CHANNEL
from arl_tangram.managers.processes.call import Call
from arl_tangram.managers.processes.frames import Assembler, Frame, Kind
from arl_tangram.managers.processes.preparation import interpreter, preparation
from arl_tangram.managers.threads import BodyThreads
from arl_tangram.uninterrupted import settled

BEGIN_LIMIT_S = 120.0  # for an interpreter to start, a program to be imported and arguments to be made again
KILL_LIMIT_S = 1.0
TURN_BYTES = 1 << 20  # copied in one turn of the loop
FLAGS = ("-P",)  # the folder of the program is no place for modules
BOOT = str(Path(__file__).with_name("boot.py"))

_open: weakref.WeakSet[Worker] = weakref.WeakSet()


@dataclass(eq=False)
class WorkerGone(Exception):
    """A worker ended without an answer.

    Attributes:
        begun: whether the body may have begun.
        exit_code: as `os.waitstatus_to_exitcode` tells it, below 0 for a signal; None if somebody else reaped it.
        oom_kills: the machine's count of out-of-memory kills when the body began; -1 if unknown.
        complaint: why it ended, if it could say so.
        unguarded: whether importing the script would have opened a runtime.
    """

    begun: bool
    exit_code: int | None
    oom_kills: int
    complaint: str
    unguarded: bool = False


class Worker:
    """One worker process.

    Attributes:
        pid: its number; it leads a session and a group of its own.
        threads: what its environment told the libraries that it has loaded.
        ended: done when it has ended and been reaped.
        mark: what it and all that it starts have in their environment, as the processes of a sandbox have: what it
            leaves behind is found by that, by the next start as well if the trainer was killed.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Start it; must be called on the thread of the event loop, with which it dies.

        Args:
            environment: variables on top of those of this process.

        Raises:
            OSError: it cannot be started.
        """
        self.environment = dict(environment)
        self.mark = f"{new_name()}.worker"
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._reply: asyncio.Future[Frame] | None = None
        self._on_begin: Callable[[], None] | None = None
        self._begun = False
        self._oom_kills = -1
        self._complaint = ""
        self._unguarded = False
        self._assembler = Assembler()
        self._outgoing: deque[memoryview] = deque()
        self._deaf = False
        self._killing = False
        self._dead = False
        self._reaped = False
        first = preparation()
        variables = {**os.environ, **environment, SANDBOX_VARIABLE: self.mark}
        self.pid, self._process, self._socket = start(socket.SOCK_STREAM, lambda theirs: _spawn(theirs, variables))
        self._loop.add_reader(self._socket.fileno(), self._receive)
        self._loop.add_reader(self._process, self._collect)
        _open.add(self)
        self._send(memoryview(len(first.path).to_bytes(4, "big") + first.path))
        self._send(*Frame(Kind.PREPARE, first.program).parts())

    @property
    def is_alive(self) -> bool:
        """Whether it can be given a call."""
        return not (self._dead or self._killing)

    async def run(self, call: Call, arguments: bytes, on_begin: Callable[[], None]) -> Frame:
        """Hand over a call and return the answer; cancelling does not stop it.

        Args:
            call: what to run.
            arguments: its pickled arguments.
            on_begin: called when the body begins.

        Raises:
            WorkerGone: it ended first.
        """
        if self.ended.done():
            raise WorkerGone(False, None, -1, "")
        self._begun, self._oom_kills, self._on_begin = False, -1, on_begin
        reply: asyncio.Future[Frame] = self._loop.create_future()
        self._reply = reply
        self._send(*Frame(Kind.CALL, pickle.dumps(call), arguments).parts())
        limit = self._loop.call_later(BEGIN_LIMIT_S, self._too_late, context=Context())
        try:
            return await reply
        finally:
            limit.cancel()
            self._reply = self._on_begin = None

    async def kill(self, threads: BodyThreads) -> None:
        """Kill it and everything that it has started, and wait until it is gone, however often that is cancelled."""
        if self._dead or self._killing:
            await settled(self.ended)
            return
        self._killing = True  # until this has ended, its number and its pidfd are not given to another process
        try:
            # Not a task, which `asyncio.run` would cancel at its end.
            await settled(threads.run(partial(_kill_tree, self.pid, self._process), ()))
        finally:
            self._killing = False
            self.strike()  # in case no thread could be had
            self._reap_if_dead()
            await settled(self.ended)

    def strike(self) -> None:
        """Kill it alone, at once."""
        if not self._dead:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def give_up(self) -> None:
        """Let go of a process that cannot be killed now, such as one that waits for a disk that does not answer."""
        if not self._reaped:
            self._reaped = True
            self._loop.remove_reader(self._process)
            os.close(self._process)
            self._disconnect()
            self.ended.set_result(None)

    def close_in_child(self) -> None:
        """Close the socket in a forked child of the trainer."""
        with contextlib.suppress(OSError):
            self._socket.close()

    # Talking.

    def _send(self, *parts: memoryview) -> None:
        waiting = bool(self._outgoing)
        self._outgoing.extend(parts)
        if not waiting:
            self._flush()

    def _flush(self) -> None:
        left = TURN_BYTES
        while self._outgoing and left > 0:
            part = self._outgoing[0]
            try:
                sent = self._socket.send(part[:left])
            except BlockingIOError:
                break
            except OSError:  # it is gone, which `_collect` tells
                self._outgoing.clear()
                break
            left -= sent
            if sent == len(part):
                self._outgoing.popleft()
            else:
                self._outgoing[0] = part[sent:]
        if self._socket.fileno() >= 0:
            if self._outgoing:
                self._loop.add_writer(self._socket.fileno(), self._flush)
            else:
                self._loop.remove_writer(self._socket.fileno())

    def _receive(self) -> None:
        left = TURN_BYTES
        while left > 0 and not self._deaf:
            try:
                count = self._socket.recv_into(self._assembler.room())
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if count == 0:
                self._stop_listening()
                return
            left -= count
            try:
                for frame in self._assembler.add(count):
                    self._hear(frame)
            except ValueError as error:
                self._complaint = f"it sent what is no message: {error}"
                self._stop_listening()

    def _stop_listening(self) -> None:
        """Kill it: it cannot be spoken to any more."""
        self._deaf = True
        self._loop.remove_reader(self._socket.fileno())
        self.strike()

    def _hear(self, frame: Frame) -> None:
        match frame.kind:
            case Kind.BEGAN:
                self._begun, self._oom_kills = True, int(frame.note)
                if self._on_begin is not None:
                    self._on_begin()
            case Kind.DONE if self._reply is not None and not self._reply.done():
                self._reply.set_result(frame)
            case Kind.FAILED:
                self._complaint = frame.note.decode(errors="replace")
                self._unguarded = bool(frame.load)
            case _:
                pass

    def _too_late(self) -> None:
        if not self._begun:
            self._complaint = f"the body had not begun after {BEGIN_LIMIT_S:g} s"
            self.strike()

    # Its end.

    def _collect(self) -> None:
        """Hear of its death, after the last of what it said."""
        self._dead = True
        self._loop.remove_reader(self._process)
        received = -1
        while self._assembler.received > received:
            received = self._assembler.received
            self._receive()
        self._reap_if_dead()

    def _reap_if_dead(self) -> None:
        """Reap it, unless its number is in use or it has been reaped."""
        if self._killing or not self._dead or self._reaped:
            return
        self._reaped = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # what it has started; still its number, which a zombie keeps
        exit_code: int | None = None
        with contextlib.suppress(ChildProcessError):  # somebody else reaps all children of this process
            exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._process)
        self._disconnect()
        if self._reply is not None and not self._reply.done():
            gone = WorkerGone(self._begun, exit_code, self._oom_kills, self._complaint, self._unguarded)
            self._reply.set_exception(gone)
        if not self.ended.done():
            self.ended.set_result(None)

    def _disconnect(self) -> None:
        self._deaf = True
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
        self._outgoing.clear()


def _spawn(channel: int, environment: Mapping[str, str]) -> int:
    # A source above the target, so that the move always makes a descriptor that is inherited.
    source = fcntl.fcntl(channel, fcntl.F_DUPFD_CLOEXEC, CHANNEL + 1)
    try:
        moves = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, source, CHANNEL),
        ]
        argv = [*interpreter(), *FLAGS, BOOT, str(os.getpid())]
        # A session of its own: a Ctrl-C in the terminal is for the trainer, which ends its workers in order.
        return os.posix_spawn(
            argv[0], argv, environment, file_actions=moves, setsid=True, setsigmask=(), setsigdef=(signal.SIGPIPE,)
        )
    finally:
        os.close(source)


def _kill_tree(pid: int, process: int) -> None:
    """Stop a worker, kill all that it has started, then the worker; blocks.

    It adopts its orphans, so everything is below it; while it is stopped it starts nothing more. A group is
    killed at once, so that an ordinary fork bomb dies with it.
    """
    deadline_s = time.monotonic() + KILL_LIMIT_S
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGSTOP)
    seen: set[int] = set()
    while (found := set(descendants(pid)) - seen) and time.monotonic() < deadline_s:
        for child in found:
            send_signal(child, signal.SIGKILL)
        seen |= found
    send_signal(-pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGKILL)


def _close_in_child() -> None:
    for worker in list(_open):
        worker.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)
