"""What a body can do to whoever runs it, one function per fault; also a program that does it, for commands.

Only the standard library is imported, so that a command in a sandbox needs nothing of this package.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

LONG_S = 600.0
GIB = 1 << 30
PIECE_BYTES = 1 << 20
FORKS = 7
"""Each process forks as often: 128 processes in all, which any machine can bear."""


class UnpicklableError(Exception):
    """An error that cannot leave its process, as it holds a lock."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def regex() -> None:
    """Match a pattern for hours, in C code that holds the interpreter lock."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def spin() -> None:
    """Run Python code for ever."""
    while True:
        pass


def sleep() -> None:
    """Wait in a system call."""
    time.sleep(LONG_S)


def pause() -> None:
    """Wait for a moment in a system call, which nobody would notice on a thread."""
    time.sleep(0.4)


def gil() -> None:
    """Wait in C code that keeps the interpreter lock."""
    ctypes.PyDLL(None).sleep(int(LONG_S))


def deaf() -> None:
    """Ignore every signal and every error that could end it."""
    for number in signal.valid_signals():
        with suppress(OSError, ValueError):  # those that cannot be ignored
            signal.signal(number, signal.SIG_IGN)
    while True:
        with suppress(BaseException):
            time.sleep(LONG_S)


def leave() -> None:
    """End the process without clean-up."""
    os._exit(3)


def segfault() -> None:
    """Read where there is nothing."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def killed() -> None:
    """Be killed by another process, as by the kernel or an operator."""
    subprocess.Popen(["sh", "-c", f"kill -KILL {os.getpid()}"])
    time.sleep(LONG_S)


def large() -> bytes:
    """Return 1 GiB."""
    return bytes(GIB)


def system_exit() -> None:
    """Do as `sys.exit` does."""
    raise SystemExit(3)


def keyboard_interrupt() -> None:
    """Do as Ctrl-C does."""
    raise KeyboardInterrupt


def stop_iteration() -> None:
    """Raise what means the end of an iterator, and in a coroutine something else."""
    raise StopIteration(3)


def unpicklable() -> None:
    """Raise what cannot be sent to another process."""
    raise UnpicklableError("why")


def recursion() -> None:
    """Call itself without end."""
    recursion()


def memory() -> int:
    """Take four times as much memory as is granted."""
    return sum(len(piece) for piece in [b"x" * PIECE_BYTES for _ in range(1024)])


def survivor() -> None:
    """Leave a process in a session of its own, whose parent has ended."""
    subprocess.run(["sh", "-c", f"setsid sleep {LONG_S:g} </dev/null >/dev/null 2>&1 &"], check=True)


def left_behind() -> None:
    """Leave such a process, and end without clean-up."""
    survivor()
    os._exit(3)


def fork_bomb() -> None:
    """Double the number of processes again and again, and move half of them to sessions of their own."""
    for _ in range(FORKS):
        with suppress(OSError):  # no more are allowed here
            if os.fork() == 0:
                with suppress(OSError):
                    os.setsid()
    time.sleep(LONG_S)


def descriptors() -> None:
    """Close what is open, the connection to whoever runs this included."""
    os.closerange(0, 21)


def surroundings() -> None:
    """Change the working folder and the environment of the process."""
    os.chdir("/")
    os.environ.clear()
    os.environ["PATH"] = "/nowhere"


FAULTS: dict[str, Callable[[], object]] = {
    "regex": regex,
    "spin": spin,
    "sleep": sleep,
    "pause": pause,
    "gil": gil,
    "deaf": deaf,
    "exit": leave,
    "segfault": segfault,
    "killed": killed,
    "large": large,
    "SystemExit": system_exit,
    "KeyboardInterrupt": keyboard_interrupt,
    "StopIteration": stop_iteration,
    "unpicklable": unpicklable,
    "recursion": recursion,
    "memory": memory,
    "survivor": survivor,
    "left-behind": left_behind,
    "fork-bomb": fork_bomb,
    "descriptors": descriptors,
    "surroundings": surroundings,
}
"""By the names that the table and `--only` use."""


def _write_out(data: bytes) -> None:
    view = memoryview(data)
    for start in range(0, len(view), PIECE_BYTES):
        sys.stdout.buffer.write(view[start : start + PIECE_BYTES])


if __name__ == "__main__":
    _result = FAULTS[sys.argv[1]]()
    if isinstance(_result, bytes):
        _write_out(_result)
