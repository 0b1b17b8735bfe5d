"""Starts a process that is spoken to over a socket and whose end is told by a pidfd."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import NamedTuple


class Child(NamedTuple):
    """A process that was just started.

    Attributes:
        pid: its number.
        process: its pidfd, which whoever has this closes.
        socket: our end of the connection, which does not block.
    """

    pid: int
    process: int
    socket: socket.socket


def start(kind: socket.SocketKind, spawn: Callable[[int], int]) -> Child:
    """Start a process with one end of a new socket pair.

    Args:
        kind: of the sockets: a stream, or whole messages.
        spawn: starts it with the other end, whose descriptor it is given, and returns its number.

    Raises:
        OSError: it cannot be started; then nothing is left of it.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    with contextlib.ExitStack() as stack:
        stack.enter_context(ours)
        with theirs:
            ours.setblocking(False)
            pid = spawn(theirs.fileno())
        try:
            process = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        stack.pop_all()
    return Child(pid, process, ours)
