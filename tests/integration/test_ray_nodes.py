"""A shared runtime over three nodes of a real Ray cluster: many clients, and whoever dies."""

from __future__ import annotations

import contextlib
import json
import os
import random
import selectors
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import ray_cluster
from ray_cluster import RayCluster
from ray_runs import Program, peak, program

CLIENTS = 16
ROLLOUTS = 4
LEASE_S = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster.started(3) as cluster:
        yield cluster


@pytest.fixture
def roots() -> Iterator[list[str]]:
    """Folders of the pools of the nodes, which are empty at the end."""
    with tempfile.TemporaryDirectory(prefix="arl-nodes-") as folder:
        yield [f"{folder}/{name}" for name in ("a", "b", "c")]
        left = [str(path) for path in Path(folder).glob("*/*")]
        assert left == []


def closed(holder: Program) -> None:
    holder.go_on()
    assert holder.told() == {"running": 0, "waiting": 0, "trajectories": 0, "used": {}}
    assert holder.ended() == 0


@pytest.mark.timeout(200)
def test_sixteen_clients_never_use_more_than_there_is_on_any_node(cluster: RayCluster, roots: list[str]) -> None:
    with program(cluster, "share_nodes", "nodes", "30", *roots) as holder, ExitStack() as stack:
        assert {"cpu@n0", "cpu@n1", "cpu@n2", "quota:search/concurrency"} <= set(holder.told()["dimensions"])
        clients = [stack.enter_context(program(cluster, "work", "nodes", str(ROLLOUTS))) for _ in range(CLIENTS)]
        found = [client.told() for client in clients]
        assert [client.ended() for client in clients] == [0] * CLIENTS
        assert all(kept for told in found for kept in told["kept"])
        commands = [command for told in found for command in told["commands"]]
        assert len(commands) == CLIENTS * ROLLOUTS * 3
        for root in roots:
            spans = [(begun, ended) for folder, begun, ended in commands if folder.startswith(f"{root}/")]
            assert spans
            assert peak(spans) == 1
        assert peak([tuple(span) for told in found for span in told["searches"]]) == 2
        closed(holder)


def used(holder: Program) -> dict[str, float]:
    holder.go_on("used")
    found: dict[str, float] = holder.told()["used"]
    return found


class Observer:
    """Counts the commands that live at once on each node, as long as they are connected.

    One thread looks at all connections, and at those that end before those that begin: of two in a row on one core, the
    first has ended before the second began.
    """

    def __init__(self, roots: list[str]) -> None:
        self._roots = roots
        self.now = dict.fromkeys(roots, 0)
        self.most = dict.fromkeys(roots, 0)
        self.seen = dict.fromkeys(roots, 0)
        self._said: dict[socket.socket, bytes] = {}
        self._where: dict[socket.socket, str] = {}
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._stop, self._stopped = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for one in (self._server, self._stopped):
            self._selector.register(one, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._stop.close()
        self._thread.join(30)
        for one in (self._selector, self._server, self._stopped, *self._said, *self._where):
            one.close()

    def _run(self) -> None:
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if self._stopped in ready:
                return
            for connection in [one for one in self._where if one in ready]:
                self._watch(connection)
            for connection in [one for one in self._said if one in ready]:
                self._read(connection)
            if self._server in ready:
                connection, _ = self._server.accept()
                self._said[connection] = b""
                self._selector.register(connection, selectors.EVENT_READ)

    def _watch(self, connection: socket.socket) -> None:
        if not _received(connection):
            self.now[self._where.pop(connection)] -= 1
            self._forget(connection)

    def _read(self, connection: socket.socket) -> None:
        said = self._said[connection] = self._said[connection] + (more := _received(connection))
        if not more:  # it was killed before it could say where it is
            del self._said[connection]
            self._forget(connection)
        elif b"\n" in said:
            del self._said[connection]
            (root,) = [root for root in self._roots if said.decode().startswith(f"{root}/")]
            self._where[connection] = root
            self.now[root] += 1
            self.seen[root] += 1
            self.most[root] = max(self.most[root], self.now[root])

    def _forget(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()


def _received(connection: socket.socket) -> bytes:
    with contextlib.suppress(OSError):
        return connection.recv(4096)
    return b""


def until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Wait for something; return whether it came in time."""
    deadline_s = time.monotonic() + limit_s
    while not (met := condition()) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return met


class Client:
    """A program that calls again and again, and what it has told."""

    def __init__(self, running: Program) -> None:
        self.running = running
        self.told: list[dict[str, Any]] = []
        self.pid = int(running.told()["pid"])
        self.killed = False
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.running.process.stdout is not None
        for line in self.running.process.stdout:
            if line.startswith("{") and line.endswith("}\n"):
                self.told.append(json.loads(line))

    def kill(self) -> None:
        self.killed = True
        self.running.process.kill()

    def end(self) -> None:
        if not self.killed:
            self.running.go_on()
        code = self.running.process.wait(120)
        self._thread.join()
        assert code == (-signal.SIGKILL if self.killed else 0), self.told[-3:]


KILLS = int(os.environ.get("ARL_KILLS", "8"))
AT_ONCE = 5


@pytest.mark.timeout(120 + 20 * KILLS)
def test_whoever_is_killed_nothing_is_lost_or_granted_twice(cluster: RayCluster, roots: list[str]) -> None:
    chance = random.Random(7)
    victims = ["owner", "n0", "n1", "n2", *["client"] * 4]
    killed: Counter[str] = Counter()
    observer = Observer(roots)
    with program(cluster, "share_nodes", "killed", str(LEASE_S), *roots) as holder, ExitStack() as stack:
        stack.callback(observer.close)
        assert holder.told()["dimensions"]

        def new_client() -> Client:
            return Client(stack.enter_context(program(cluster, "until_told", "killed", str(observer.port))))

        clients = [new_client() for _ in range(AT_ONCE)]
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.2, 4))
            victim = chance.choice(victims)
            if victim == "client":
                alive = [client for client in clients if not client.killed]
                chance.choice(alive).kill()
                clients.append(new_client())
            else:
                holder.go_on(victim)
                if (pid := holder.told()["pid"]) is None:
                    continue  # it is being started again just now
                os.kill(pid, signal.SIGKILL)
            killed[victim] += 1
        before = dict(observer.seen)
        all_work = until(lambda: all(observer.seen[root] > before[root] + AT_ONCE for root in roots), 60)
        assert all_work, (before, observer.seen)
        for client in clients:
            client.end()
        told = [each for client in clients for each in client.told]
        print(killed, Counter(each["error"] for each in told), max(each["took_s"] for each in told), observer.seen)
        assert max(each["took_s"] for each in told) < 80
        assert observer.most == dict.fromkeys(roots, 1)
        assert observer.now == dict.fromkeys(roots, 0)
        assert until(lambda: used(holder) == {}, LEASE_S + 30)
        closed(holder)
