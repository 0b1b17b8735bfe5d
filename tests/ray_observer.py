"""Count what lives at once in several places, by connections: also of what is killed, and in networks of containers.

Whoever is to be counted connects, says in one line who it is, goes on when it is answered with a line, and stays
connected for as long as it lives.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import selectors
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1


@dataclass(frozen=True, slots=True)
class Event:
    """Something has begun to live, or has ended.

    Attributes:
        place: where.
        step: 1 or -1.
        who: the words that it has said.
    """

    place: str
    step: int
    who: tuple[str, ...]


class Observer:
    """Counts those who live at once in each place.

    One thread looks at all connections, and at those that end before those that begin, one of these at a time: of two
    in a row in one place, the first has ended before the second began.

    Args:
        places: the socket that listens in each place; they are closed with this.
    """

    def __init__(self, places: Mapping[str, socket.socket]) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()
        self._servers = {server: place for place, server in places.items()}
        self._said: dict[socket.socket, tuple[str, bytes]] = {}
        self._alive: dict[socket.socket, Event] = {}
        self._holds: frozenset[str] = frozenset()
        self._held: list[socket.socket] = []
        self._stop, self._stopped = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for one in (*self._servers, self._stopped):
            self._selector.register(one, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="observer")
        self._thread.start()

    def close(self) -> None:
        self._stop.close()
        self._thread.join(30)
        self._selector.close()
        for one in (self._stopped, *self._servers, *self._said, *self._alive):
            one.close()

    def port(self, place: str) -> int:
        """Return the port of a place."""
        return next(int(server.getsockname()[1]) for server, name in self._servers.items() if name == place)

    def peak(self, *places: str) -> int:
        """Return how many have lived at once in some places taken together."""
        now = most = 0
        for event in self._so_far():
            now += event.step * (event.place in places)
            most = max(most, now)
        return most

    def begun(self) -> Counter[str]:
        """Return how many have begun in each place."""
        return Counter(event.place for event in self._so_far() if event.step > 0)

    def alive(self) -> list[Event]:
        """Return those who live now, as they began."""
        with self._changed:
            return list(self._alive.values())

    def who(self, place: str) -> list[tuple[str, ...]]:
        """Return what all have said who have begun in a place."""
        return [event.who for event in self._so_far() if event.place == place and event.step > 0]

    def wait(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait until something holds, looking whenever one begins or ends; return whether it came in time."""
        with self._changed:
            return self._changed.wait_for(condition, limit_s)

    def hold(self, *places: str) -> None:
        """Let nobody go on who begins in some places from now on."""
        with self._changed:
            self._holds |= set(places)

    def let_go(self) -> None:
        """Let all go on, also those who begin later."""
        with self._changed:
            self._holds = frozenset()
            while self._held:
                _answer(self._held.pop())

    def _so_far(self) -> Sequence[Event]:
        with self._changed:
            return list(self.events)

    def _run(self) -> None:
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if self._stopped in ready:
                return
            with self._changed:
                for connection in [one for one in self._alive if one in ready]:
                    self._watch(connection)
                for connection in [one for one in self._said if one in ready]:
                    self._read(connection)
                for server in [one for one in self._servers if one in ready]:
                    connection, _ = server.accept()
                    self._said[connection] = (self._servers[server], b"")
                    self._selector.register(connection, selectors.EVENT_READ)
                self._changed.notify_all()

    def _watch(self, connection: socket.socket) -> None:
        if not _received(connection):
            begun = self._alive.pop(connection)
            self.events.append(Event(begun.place, -1, begun.who))
            self._forget(connection)

    def _read(self, connection: socket.socket) -> None:
        place, said = self._said.pop(connection)
        said += (more := _received(connection))
        if not more:  # it was killed before it could say who it is
            self._forget(connection)
        elif b"\n" not in said:
            self._said[connection] = (place, said)
        else:
            self._alive[connection] = event = Event(place, 1, tuple(said.decode().split()))
            self.events.append(event)
            if place in self._holds:
                self._held.append(connection)
            else:
                _answer(connection)

    def _forget(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()


def listening(port: int = 0, *, network_of: int | None = None) -> socket.socket:
    """Return a socket that listens on loopback, of this network or of that of a process, whose loopback is set up."""
    if network_of is None:
        return socket.create_server(("127.0.0.1", port))
    made: Future[socket.socket] = Future()

    def make() -> None:  # a thread of its own, which never comes back from there
        try:
            _enter_network(network_of)
            made.set_result(socket.create_server(("127.0.0.1", port)))
        except BaseException as error:  # noqa: BLE001 - raised where it was asked for
            made.set_exception(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made.result()


def _enter_network(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        if libc.setns(descriptor, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(descriptor)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))


def _answer(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it was killed, and may be closed
        connection.sendall(b"go\n")


def _received(connection: socket.socket) -> bytes:
    with contextlib.suppress(OSError):
        return connection.recv(4096)
    return b""
