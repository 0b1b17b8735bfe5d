"""Programs that run in the sandbox while their cores change, and check their own work; of the standard library only.

Usage, as the file that it is there:
  program.py work SEED ITEMS TURNS WORKERS   hash, and print what came of it in order; exit code 7 if all of it is right
  program.py spread                          leave busy processes in the background, each detached in another way
  program.py spin                            be busy for ever
  program.py marked WORD                     print how many other processes have WORD in their environment
  program.py tick SECONDS                    print when it ran, by the clock of this machine
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedRWPair
from typing import NoReturn

DONE = 7
"""Exit code of work that is right: no other program ends with it by accident."""

ERRORS = b"half of it is done\n"
"""What work prints to standard error."""

SPREAD = 3
"""Processes that `spread` leaves."""

GAP_S = 0.0005
"""Between two looks at the clock: what is longer counts as not running."""

_CHILD_EVERY = 50


def work_lines(seed: int, items: int, turns: int) -> Iterator[bytes]:
    """Yield the lines that work prints: a chain of hashes for each item, and the hash of all of them."""
    whole = hashlib.sha256()
    for item in range(items):
        line = _line(seed, item, turns)
        whole.update(line)
        yield line
    yield f"all {whole.hexdigest()}\n".encode()


def _line(seed: int, item: int, turns: int) -> bytes:
    digest = f"{seed}/{item}".encode()
    for _ in range(turns):
        digest = hashlib.sha256(digest).digest()
    return f"{item} {digest.hex()}\n".encode()


def work(seed: int, items: int, turns: int, workers: int) -> int:
    """Let worker processes hash and send what they have over a socket; print it in order and return the exit code."""
    server = socket.create_server(("127.0.0.1", 0), backlog=workers)
    pids = [_fork_worker(server, seed, range(first, items, workers), turns) for first in range(workers)]
    doors = dict(_greeted(server.accept()[0]) for _ in range(workers))
    whole = hashlib.sha256()
    for item in range(items):
        door = doors[item % workers]
        line = door.readline()
        whole.update(line)
        door.write(hashlib.sha256(line).hexdigest().encode() + b"\n")
        door.flush()
        if item % _CHILD_EVERY == 0 and _said(str(item)) != f"{item}\n".encode():
            raise RuntimeError(f"a child did not say {item}")
        sys.stdout.buffer.write(line)
        if item == items // 2:
            sys.stderr.buffer.write(ERRORS)
            sys.stderr.buffer.flush()
    sys.stdout.buffer.write(f"all {whole.hexdigest()}\n".encode())
    sys.stdout.buffer.flush()
    codes = {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids}
    return DONE if codes == {DONE} else 1


def _fork_worker(server: socket.socket, seed: int, items: range, turns: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    with socket.create_connection(server.getsockname()) as connection, connection.makefile("rwb") as door:
        door.write(f"{items.start}\n".encode())
        for item in items:
            line = _line(seed, item, turns)
            door.write(line)
            door.flush()
            if door.readline().strip() != hashlib.sha256(line).hexdigest().encode():
                os._exit(1)
    os._exit(DONE)


def _greeted(connection: socket.socket) -> tuple[int, BufferedRWPair]:
    door = connection.makefile("rwb")
    return int(door.readline()), door


def _said(text: str) -> bytes:
    return subprocess.run(["sh", "-c", 'echo "$1"', "say", text], stdout=subprocess.PIPE, check=True).stdout


def spread() -> None:
    """Leave busy processes behind: in this session, in one of its own, and the child of one that has ended."""
    reading, writing = os.pipe()
    _leave(writing)
    _leave(writing, session=True)
    _leave(writing, orphan=True)
    os.close(writing)
    told = b""
    while len(told) < SPREAD:
        told += os.read(reading, SPREAD)


def _leave(writing: int, *, session: bool = False, orphan: bool = False) -> None:
    if os.fork():
        return
    if session:
        os.setsid()
    if orphan and os.fork():
        os._exit(0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.write(writing, b".")
    spin()


def spin() -> NoReturn:
    """Be busy for ever."""
    while True:
        pass


def marked(word: str) -> int:
    """Return how many other processes have a word in their environment."""
    found = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as environment:
                found += word.encode() in environment.read().split(b"\0")
    return found


def tick(seconds: float) -> dict[str, object]:
    """Look at the clock for so long; return when that began and ended, and between which times it did not run."""
    began_s = last_s = time.monotonic()
    gaps: list[tuple[float, float]] = []
    while last_s < began_s + seconds:
        now_s = time.monotonic()
        if now_s - last_s > GAP_S:
            gaps.append((last_s, now_s))
        last_s = now_s
    return {"began_s": began_s, "ended_s": last_s, "gaps": gaps}


def main(mode: str, *rest: str) -> int:
    """Run one of the programs; return the exit code."""
    if mode == "work":
        seed, items, turns, workers = map(int, rest)
        return work(seed, items, turns, workers)
    if mode == "spread":
        spread()
    elif mode == "spin":
        spin()
    elif mode == "marked":
        print(marked(*rest))
    else:
        print(json.dumps(tick(float(*rest))))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
