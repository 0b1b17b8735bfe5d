"""Messages between the runtime and a worker: a kind, a small note of ours, and a load with the user's objects."""

from __future__ import annotations

import mmap
import os
import socket
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

LARGE_BYTES = 1 << 20
HEADER = struct.Struct("!BIQ")  # kind, length of the note, length of the load


class Kind(IntEnum):
    """What a message says."""

    PREPARE = 1  # to the worker: how to become like the program that started it
    CALL = 2  # to the worker: run this
    READY = 3
    FAILED = 4  # preparing failed; the note is a traceback, and there is a load if a runtime was to be opened
    BEGAN = 5  # what follows is the body's own time; the note is the machine's count of out-of-memory kills
    DONE = 6


class Frame(NamedTuple):
    """One message."""

    kind: Kind
    note: bytes
    load: memoryview | bytes = b""

    def parts(self) -> list[memoryview]:
        """Return what goes over the wire."""
        head = HEADER.pack(self.kind, len(self.note), len(self.load)) + self.note
        return [memoryview(head), memoryview(self.load)] if self.load else [memoryview(head)]


class Assembler:
    """Puts messages together from what arrives; a message may come in any pieces.

    Attributes:
        received: bytes so far.
    """

    def __init__(self) -> None:
        self._head = bytearray(HEADER.size)
        self._body: memoryview | None = None
        self._filled = 0
        self.received = 0

    def room(self) -> memoryview:
        """Return where the next bytes go."""
        return (memoryview(self._head) if self._body is None else self._body)[self._filled :]

    def add(self, count: int) -> Iterator[Frame]:
        """Count in the bytes that were put into the room; yield the message that they complete.

        Raises:
            ValueError: what arrives is no message.
        """
        self._filled += count
        self.received += count
        if self._body is None and self._filled == HEADER.size:
            _, note_size, load_size = HEADER.unpack(self._head)
            self._body, self._filled = _memory(note_size + load_size), 0
        if self._body is not None and self._filled == len(self._body):
            kind, note_size, _ = HEADER.unpack(self._head)
            body, self._body, self._filled = self._body, None, 0
            yield Frame(Kind(kind), bytes(body[:note_size]), body[note_size:])


def _memory(size: int) -> memoryview:
    """Return memory for a message; a large one is not filled with zeros first, which would hold up the loop."""
    try:
        return memoryview(bytearray(size) if size < LARGE_BYTES else mmap.mmap(-1, size))
    except (MemoryError, OverflowError, OSError, ValueError) as error:
        raise ValueError(f"a message of {size:,} bytes") from error


def send(channel: socket.socket, frame: Frame) -> None:
    """Send a message; blocks."""
    for part in frame.parts():
        channel.sendall(part)


def receive(channel: socket.socket) -> Frame | None:
    """Return the next message, or None at the end; blocks."""
    assembler = Assembler()
    while count := channel.recv_into(assembler.room()):
        for frame in assembler.add(count):
            return frame
    return None


def oom_kills() -> int:
    """Return how many processes the kernel has killed on this machine for lack of memory; -1 if it does not tell."""
    try:
        fd = os.open("/proc/vmstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        told = os.read(fd, 1 << 16)
    finally:
        os.close(fd)
    _, found, rest = told.partition(b"\noom_kill ")
    return int(rest.split(b"\n", 1)[0]) if found else -1
