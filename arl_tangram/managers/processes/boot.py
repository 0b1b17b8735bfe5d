"""The program of a worker process, run as `python -P boot.py PARENT`: finds the library, then serves.

Its descriptor 3 is the socket to the runtime. First come the length and the entries of `sys.path`, without which the
library might not be found.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys

CHANNEL = 3
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36


def _take(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            sys.exit(0)  # the runtime is gone
        data += piece
    return data


def _close_strangers() -> None:
    """Close what a library of the trainer has left open for its children: it is not for bodies."""
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd > CHANNEL:
            try:  # noqa: SIM105 - contextlib is not loaded yet
                os.close(fd)
            except OSError:
                pass  # the listing's own


def _tie_to(parent: int) -> None:
    """Die with the trainer, whatever the body is doing; adopt what the body starts, so that all of it can be found."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)  # it died before


def _mark_expendable() -> None:
    """Let the kernel choose a body, and what it starts, when memory is short: not the trainer."""
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as weight:
            weight.write(b"1000")
    except OSError:
        pass


def main() -> None:
    """Serve the runtime at the other end of descriptor 3."""
    _tie_to(int(sys.argv[1]))
    _close_strangers()
    _mark_expendable()
    os.set_inheritable(CHANNEL, False)
    channel = socket.socket(fileno=CHANNEL)
    size = int.from_bytes(_take(channel, 4), "big")
    sys.path[:] = json.loads(_take(channel, size))
    from arl_tangram.managers.processes.serving import serve  # noqa: PLC0415 - found only now

    serve(channel)


if __name__ == "__main__":
    main()
