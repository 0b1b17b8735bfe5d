"""Bodies for worker processes: in a module, because a worker finds them by their names."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import arl_tangram as tangram
from arl_tangram import Allocation

THREADS = "OMP_NUM_THREADS"


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that waits to be reaped has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class Unmade(Exception):
    """Pickles, and cannot be made again from its arguments."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__("why")


class Unpicklable(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class Untold(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class RemadeOnlyOnce:
    """Arrives in a worker, and cannot be made again in the trainer, or the other way round."""

    def __init__(self, fails_in: int) -> None:
        self.fails_in = fails_in

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self.fails_in, os.getpid())


def _remake(fails_in: int, made_in: int) -> RemadeOnlyOnce:
    if fails_in == os.getpid() or (fails_in == 0 and made_in != os.getpid()):
        raise LookupError("not here")
    return RemadeOnlyOnce(fails_in)


class MadeElsewhere:
    def __init__(self) -> None:
        self.made_on = 0

    def __setstate__(self, state: dict[str, int]) -> None:
        self.made_on = threading.get_ident()


def outer(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as a user's own decorator does."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@tangram.action(isolate="process")
def identify(_: object = None) -> int:
    return os.getpid()


@tangram.action(cpu=1, isolate="process")
def look() -> tuple[int, set[int], str | None, Allocation]:
    return os.getpid(), os.sched_getaffinity(0), os.environ.get(THREADS), tangram.current_allocation()


@tangram.action(cpu=2, isolate="process")
def look_wide() -> tuple[int, set[int], str | None, Allocation]:
    return look.body()


@tangram.action(cpu=2, isolate="process")
def keep_a_thread() -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


@tangram.action(cpu=1, isolate="process")
def pinned_threads() -> list[set[int]]:
    """Return where each thread may run: this one, and one that an earlier call has started."""
    return [os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")]


@tangram.action(isolate="process")
def disturb(folder: str) -> None:
    os.environ["OF_THE_BODY"] = "1"
    os.environ.pop("PATH", None)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.chdir(folder)
    signal.setitimer(signal.ITIMER_REAL, 0.05)


@tangram.action(isolate="process")
def undisturbed() -> tuple[int, bool, bool, set[int], str]:
    time.sleep(0.1)
    return os.getpid(), "OF_THE_BODY" in os.environ, "PATH" in os.environ, os.sched_getaffinity(0), os.getcwd()


def wait_at(gate: str) -> int:
    """Wait until somebody writes to a named pipe."""
    with open(gate, "rb") as reader:
        reader.read()
    return os.getpid()


@tangram.action(cpu=1, isolate="process")
def hold(gate: str) -> int:
    return wait_at(gate)


@tangram.action(isolate="process", quota={"api": 1})
def hold_quota(gate: str) -> int:
    return wait_at(gate)


@tangram.action(cpu=1, isolate="process")
def endless(pid_file: str) -> None:
    announce(pid_file)
    while True:
        pass


@tangram.action(cpu=1, isolate="process")
def deaf(pid_file: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    announce(pid_file)
    while True:
        try:
            while True:
                time.sleep(600)
        except BaseException:  # noqa: BLE001 - it hears nothing, on purpose
            continue


@tangram.action(cpu=1, isolate="process")
def bomb(pid_file: str) -> None:
    """Spend hours in C code that holds the interpreter lock."""
    announce(pid_file)
    re.match(r"(a+)+$", "a" * 60 + "b")


@tangram.action(cpu=1, timeout=2, isolate="process")
def reward(answer: str) -> float:
    """Check an answer with a regular expression that some answers keep busy for hours."""
    if answer.startswith("x"):
        re.match(r"(a+)+$", "a" * 60 + "b")
    return 1.0


@tangram.action(cpu=1, isolate="process")
def sleepy(pid_file: str) -> None:
    announce(pid_file)
    time.sleep(600)


@tangram.action(cpu=1, isolate="process")
def family(pid_file: str) -> None:
    """Start a child, and one in a session of its own whose parent ends at once; then run on."""
    child = subprocess.Popen(["sleep", "600"])
    orphan = subprocess.run(
        ["sh", "-c", "setsid sleep 600 >/dev/null & echo $!"], stdout=subprocess.PIPE, text=True, check=True
    )
    announce(pid_file, child.pid, int(orphan.stdout))
    while True:
        pass


@tangram.action(cpu=1, isolate="process")
def litter() -> tuple[int, int]:
    """Leave a process behind."""
    return os.getpid(), subprocess.Popen(["sleep", "600"]).pid


def announce(pid_file: str, *others: int) -> None:
    """Tell, all at once, which processes are at work."""
    unfinished = f"{pid_file}.new"
    Path(unfinished).write_text(" ".join(map(str, (os.getpid(), *others))))
    Path(unfinished).rename(pid_file)


@tangram.action(isolate="process")
def give(value: Any) -> Any:
    return value


@tangram.action(isolate="process")
def give_made_elsewhere() -> MadeElsewhere:
    return MadeElsewhere()


@tangram.action(isolate="process")
def give_lock() -> object:
    return threading.Lock()


@tangram.action(isolate="process")
def give_large(size: int) -> bytes:
    return b"x" * size


@tangram.action(isolate="process")
def give_coroutine() -> object:
    return asyncio.sleep(0)


@tangram.action(isolate="process")
def throw(error: BaseException) -> None:
    raise error


@tangram.action(isolate="process")
def throw_of(kind: type[BaseException], *args: Any) -> None:
    raise kind(*args)


@tangram.action(isolate="process")
def throw_from() -> None:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


@tangram.action(isolate="process")
def leave(code: int) -> None:
    os._exit(code)


@tangram.action(isolate="process")
def fault() -> None:
    ctypes.string_at(0)


@tangram.action(isolate="process")
def signalled(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(600)


@tangram.action(isolate="process")
def kill_self_in_a_message() -> None:
    """Send the half of an answer, then die."""
    os.write(3, b"\x06\x00\x00\x00\x01\x00\x00")
    os.kill(os.getpid(), signal.SIGKILL)


@tangram.action(isolate="process")
def babble() -> None:
    """Write rubbish to where answers go, and run on."""
    os.write(3, b"\xff" * 64)
    time.sleep(600)


@tangram.action(isolate="process")
def fork_and_return() -> int:
    os.fork()
    return os.getpid()


@tangram.action(isolate="process", memory_gib=0.25)
def allocate(size: int) -> int:
    return len(bytearray(size))


@tangram.action(isolate="process", memory_gib=2**-30)
def allocate_with_nothing() -> int:
    return len(bytearray(1 << 20))


@tangram.action(isolate="process", memory_gib=0.25)
def killed_with_memory() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@tangram.action(isolate="process")
def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@tangram.action(isolate="process")
def call_another() -> int:
    return asyncio.run(identify())


@tangram.action(isolate="process")
def open_trajectory() -> None:
    tangram.trajectory()


@tangram.action(isolate="process")
def ask_for_quota() -> None:
    tangram.current_quota("api")


@tangram.action(isolate="process")
def ask_for_sandbox() -> None:
    tangram.current_sandbox()


@tangram.action(isolate="process")
def alarmed() -> str:
    """Limit itself as graders do, which needs the main thread."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError("rang")

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    try:
        while True:
            pass
    except TimeoutError as error:
        return str(error)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


@tangram.action(isolate="process")
def nap(for_s: float) -> None:
    time.sleep(for_s)


@tangram.action(isolate="process")
def says(text: str) -> None:
    print(text)
    print(text, file=sys.stderr)


@outer
@tangram.action(isolate="process")
def wrapped(value: int) -> int:
    return value + 1


@tangram.action(isolate="process")
@outer
def wraps(value: int) -> int:
    return value + 2


def plain(value: int) -> int:
    return value + 3


renamed = tangram.action(isolate="process")(plain)


class Scorer:
    def __init__(self, base: int) -> None:
        self.base = base

    @tangram.action(isolate="process")
    def score(self, value: int) -> int:
        return self.base + value

    @staticmethod
    @tangram.action(isolate="process")
    def static(value: int) -> int:
        return value + 4


@tangram.action(isolate="process")
def shadowed() -> None:
    raise AssertionError("it must not run")


hidden = shadowed


def shadowed() -> None:  # type: ignore[no-redef]
    raise AssertionError("it must not run either")
