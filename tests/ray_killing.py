"""Kill one part after the other of a shared runtime over nodes that is in use, and look at what is left."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import engine_keeper
from docker_engine import PrivateEngine
from ray_cluster import RayCluster
from ray_observer import Observer
from ray_runs import Program
from ray_runs import program as started

PROGRAMS = "ray_node_programs.py"
OWNER_LABEL = "arl_tangram.owner"
NODES = ("n0", "n1", "n2")
SEARCHES = 2
LEASE_S = 5
GRACE_S = 1 + 5
"""Of bodies, as it is shared, and the owner's own: so much longer than a lease it waits for who is silent."""
SLACK_S = 10
"""For a busy machine, on which containers take seconds to be removed."""
RECOVERY_S = 100
"""Until somebody has a command on each node again, whatever was killed: processes are started again, nodes swept."""
AT_ONCE = 4
LOOPS = 2
DECK = ("client", "n0", "owner", "client", "n2", "client", "n1", "owner")
"""Who is killed in each eight kills, in another order each time."""


class Client:
    """A program that calls again and again, and what it has told."""

    def __init__(self, running: Program) -> None:
        self.running = running
        self.pid = str(running.process.pid)
        self.told: list[dict[str, Any]] = []
        self.killed_s: float | None = None
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.running.process.stdout is not None
        for line in self.running.process.stdout:
            if line.startswith("{") and line.endswith("}\n"):
                self.told.append(json.loads(line))

    def kill(self) -> None:
        self.running.process.kill()
        self.killed_s = time.monotonic()

    def end(self) -> None:
        if self.killed_s is None:
            self.running.go_on()
        code = self.running.process.wait(120)
        self._thread.join()
        assert code == (0 if self.killed_s is None else -signal.SIGKILL), self.told[-3:]


class Killing:
    """A shared runtime in use, of which one part after the other is killed."""

    def __init__(
        self,
        cluster: RayCluster,
        engines: Sequence[PrivateEngine],
        observer: Observer,
        holder: Program,
        stack: ExitStack,
        seed: int,
    ) -> None:
        self.observer = observer
        self.clients: list[Client] = []
        self.killed: Counter[str] = Counter()
        self.pids: list[int] = []
        self.gone_s: list[float] = []
        self._cluster = cluster
        self._engines = engines
        self._holder = holder
        self._stack = stack
        self._chance = random.Random(seed)
        self._order = random.Random(seed)
        self._deck: list[str] = []
        self._was_calm = True

    def new_client(self) -> None:
        doors = json.dumps({"sandboxes": self.observer.port("n2"), "search": self.observer.port("search")})
        running = program(self._cluster, "until_told", "killed", str(LOOPS), doors)
        self.clients.append(Client(self._stack.enter_context(running)))

    def next(self) -> None:
        """Kill the next when some more have begun or ended; half the time, wait for all to work again."""
        self._deck = self._deck or self._order.sample(DECK, len(DECK))
        victim = self._deck.pop()
        chance, observer = self._chance, self.observer
        due = len(observer.events) + chance.randrange(1, 12)
        assert observer.wait(lambda: len(observer.events) >= due, RECOVERY_S), f"nothing begins: {self.killed}"
        is_calm = chance.random() < 0.5
        if victim == "client":
            victim = self._kill_client()
        elif victim == "owner" and is_calm:
            self._kill_owner_of_what_is_held()
        elif not self._kill_actor(victim):
            print(f"{victim} is dead already, or being started")
            return
        self.killed[victim] += 1
        if is_calm:
            self.until_all_work()
        self._was_calm = is_calm

    def _kill_client(self) -> str:
        """Kill a client, mostly one that has a command in a container right now; return what it was."""
        if self._chance.random() < 0.8:
            assert self.observer.wait(lambda: bool(self._holding()), RECOVERY_S), "nobody has a container"
        holding = self._holding()
        alive = {client.pid: client for client in self.clients if client.killed_s is None}
        client = alive[self._chance.choice(holding or sorted(alive))]
        client.kill()
        self.new_client()
        if self._was_calm:
            are_gone = until(lambda: not self.left_of(client), LEASE_S + GRACE_S + SLACK_S)
            assert are_gone, "its containers outlive its lease"
            self.gone_s.append(time.monotonic() - (client.killed_s or 0))
        return "client with a command in a container" if holding else "client"

    def _holding(self) -> list[str]:
        alive = {client.pid for client in self.clients if client.killed_s is None}
        return sorted({event.who[0] for event in self.observer.alive() if event.place in ("n0", "n1")} & alive)

    def _kill_owner_of_what_is_held(self) -> None:
        """Kill the owner, and let nobody go on before another one decides: all searches, and what else has begun."""
        observer = self.observer
        observer.hold("search")
        all_searches = observer.wait(lambda: self._alive()["search"] == SEARCHES, RECOVERY_S)
        assert all_searches, (self.killed, self._alive())
        observer.hold(*NODES)
        assert until(lambda: self._kill_actor("owner"), RECOVERY_S)
        assert until(lambda: used(self._holder) is not None, RECOVERY_S), "it does not decide again"
        observer.let_go()

    def _alive(self) -> Counter[str]:
        return Counter(event.place for event in self.observer.alive())

    def _kill_actor(self, name: str) -> bool:
        """Kill an actor, unless it is being started again just now; return whether."""
        if (pid := pid_of(self._holder, name)) is not None:
            os.kill(pid, signal.SIGKILL)
            self.pids.append(pid)
        return pid is not None

    def until_all_work(self) -> None:
        """Wait until commands begin on each node, and searches, more than were decided before."""
        before = self.observer.begun()
        more = AT_ONCE * LOOPS + 1

        def all_work() -> bool:
            begun = self.observer.begun()
            return all(begun[place] >= before[place] + more for place in (*NODES, "search"))

        assert self.observer.wait(all_work, RECOVERY_S), (self.killed, before, self.observer.begun())

    def left_of(self, client: Client) -> set[str]:
        """Return the containers of a client that are still there."""
        there = {container for engine in self._engines for container in containers(engine)}
        return {
            container for node in NODES for pid, container, *_ in self.observer.who(node) if pid == client.pid
        } & there


def program(cluster: RayCluster, *words: str) -> Any:
    return started(cluster, *words, programs=PROGRAMS)


def containers(engine: PrivateEngine) -> list[str]:
    return [each["Id"] for each in engine.api.containers(OWNER_LABEL)]


def have_all_at_once(cluster: RayCluster, observer: Observer) -> None:
    """Nothing is lost: one client can have all of each node and of the quota at once."""
    doors = json.dumps({"sandboxes": observer.port("n2"), "search": observer.port("search")})
    observer.hold(*NODES, "search")
    with program(cluster, "all_at_once", "killed", str(len(NODES)), doors) as last:
        all_there = observer.wait(lambda: len(observer.alive()) == len(NODES) + SEARCHES, RECOVERY_S)
        assert all_there, observer.alive()
        assert Counter(event.place for event in observer.alive()) == dict.fromkeys(NODES, 1) | {"search": SEARCHES}
        observer.let_go()
        assert last.told() == {"had": True}
        assert last.ended() == 0


def left_by(pids: Sequence[int]) -> list[str]:
    """Return what there is of actors that have ended: they themselves, and cgroups of theirs."""
    groups = engine_keeper.CGROUPS.glob("**/arl_tangram-*")  # with the number of the process in the middle
    left = [str(group) for group in groups if {str(pid) for pid in pids} & set(group.name.split("-"))]
    for pid in pids:
        with suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text()
            left += [f"{pid} {name}"] if name.startswith("ray::") else []
    return left


def pid_of(holder: Program, name: str) -> int | None:
    """Return the number of the process of an actor; None if it is being started again just now."""
    holder.go_on(name)
    found: int | None = holder.told()["pid"]
    return found


def used(holder: Program) -> dict[str, float] | None:
    holder.go_on("used")
    found: dict[str, float] | None = holder.told()["used"]
    return found


def until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Wait for what nobody tells of; return whether it came in time."""
    deadline_s = time.monotonic() + limit_s
    while not (met := condition()) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return met
