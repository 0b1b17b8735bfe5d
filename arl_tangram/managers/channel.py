"""Starts a process and talks to it in whole messages: the trainer's end of the socket, on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from arl_tangram.managers.child import start

MESSAGE_BYTES = 1 << 15  # longer requests travel in a memfd
REPLY_BYTES = 1 << 12

# Enters the cgroups, then becomes the program: `sh -c ENTER sh FILE... -- PROGRAM...`
ENTER = 'while [ "$1" != -- ]; do echo $$ >"$1" || exit 97; shift; done; shift; exec "$@"'

_open: weakref.WeakSet[Channel] = weakref.WeakSet()


class Channel:
    """The connection to one keeper.

    Attributes:
        pid: the process that was started: the keeper, or the bwrap around it.
        on_reply: gets the words of each answer; set by the owner before the loop runs again.
        exited: done when the process has ended and been reaped.
    """

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], entrances: Sequence[str]) -> None:
        """Start the keeper; must be called on the thread of the event loop, which must outlive it.

        Raises:
            OSError: it cannot be started.
        """
        self._loop = asyncio.get_running_loop()
        self.on_reply: Callable[[list[str]], None] = _ignore
        self._outgoing: deque[tuple[bytes, list[int]]] = deque()
        self.exited: asyncio.Future[None] = self._loop.create_future()
        command = ("/bin/sh", "-c", ENTER, "sh", *entrances, "--", *argv)
        with contextlib.ExitStack() as stack:
            self._errors = stack.enter_context(open(os.memfd_create("arl_tangram-keeper"), "r+b", buffering=0))
            self.pid, self._process, self._socket = start(
                socket.SOCK_SEQPACKET, lambda theirs: _spawn(command, env, theirs, self._errors.fileno())
            )
            stack.pop_all()
        self._loop.add_reader(self._socket.fileno(), self._receive)
        self._loop.add_reader(self._process, self._collect)
        _open.add(self)

    def send(self, fields: Sequence[bytes], descriptors: Sequence[int] = ()) -> None:
        """Send a request; the descriptors are closed once they are sent. A keeper that is gone is no error here."""
        data = b"\0".join(fields)
        owned = list(descriptors)
        if len(data) > MESSAGE_BYTES:
            try:
                owned.insert(0, os.memfd_create("arl_tangram-request"))
                write_all(owned[0], data)
            except BaseException:
                close_all(owned)
                raise
            data = b"large"
        self._outgoing.append((data, owned))
        if len(self._outgoing) == 1:
            self._flush()

    def close(self) -> None:
        """Hang up: the keeper kills everything and exits; `exited` tells when."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
        while self._outgoing:
            close_all(self._outgoing.popleft()[1])

    def kill(self) -> None:
        """Kill the keeper itself, and with bwrap all that is in its namespace."""
        if not self.exited.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def complaint(self) -> str:
        """Return what the keeper, or what should have started it, wrote to standard error."""
        if self._errors.closed:
            return ""
        return os.pread(self._errors.fileno(), 4096, 0).decode(errors="replace").strip()

    def release(self) -> None:
        """Close what is left once the keeper has exited."""
        self.close()
        self._errors.close()

    def close_in_child(self) -> None:
        """Close the socket in a forked child of the trainer, so that its end still tells the trainer's death."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def _flush(self) -> None:
        while self._outgoing:
            data, descriptors = self._outgoing[0]
            try:
                socket.send_fds(self._socket, [data], descriptors) if descriptors else self._socket.send(data)
            except BlockingIOError:
                self._loop.add_writer(self._socket.fileno(), self._flush)
                return
            except ConnectionError:
                pass  # it is gone, which `exited` tells
            except OSError:
                self.kill()  # a request that cannot be sent would be waited for without end
            self._outgoing.popleft()
            close_all(descriptors)
        if self._socket.fileno() >= 0:
            self._loop.remove_writer(self._socket.fileno())

    def _receive(self) -> None:
        while self._socket.fileno() >= 0:
            try:
                data = self._socket.recv(REPLY_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._loop.remove_reader(self._socket.fileno())
                return
            self.on_reply(data.decode("ascii", errors="replace").split(" "))

    def _collect(self) -> None:
        """Reap the keeper, after the last of its answers."""
        self._receive()
        self._loop.remove_reader(self._process)
        os.close(self._process)
        with contextlib.suppress(ChildProcessError):  # somebody else reaps all children of this process
            os.waitpid(self.pid, 0)
        self.close()
        if not self.exited.done():
            self.exited.set_result(None)


def _ignore(_: list[str]) -> None:
    """Stand in until the owner is there: nothing is read before the loop runs again."""


def write_all(fd: int, data: bytes) -> None:
    """Write everything to a file."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def memory_file(data: bytes) -> int:
    """Return a descriptor that reads this data."""
    if not data:
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    fd = os.memfd_create("arl_tangram-stdin")
    try:
        write_all(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _spawn(argv: tuple[str, ...], env: Mapping[str, str], stdin: int, stderr: int) -> int:
    # Sources above 2, so that no move overwrites the source of the next one.
    sources: list[int] = []
    try:
        for fd in (stdin, stderr):
            sources.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3))  # noqa: PERF401 - each must be closed
        moves = [(os.POSIX_SPAWN_DUP2, sources[min(target, 1)], target) for target in range(3)]
        # A session of its own: a Ctrl-C in the terminal is for the trainer, which closes the sandboxes in order.
        return os.posix_spawn(
            argv[0], argv, env, file_actions=moves, setsid=True, setsigmask=(), setsigdef=(signal.SIGPIPE,)
        )
    finally:
        close_all(sources)


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors."""
    for fd in descriptors:
        os.close(fd)


def _close_in_child() -> None:
    for channel in list(_open):
        channel.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)
