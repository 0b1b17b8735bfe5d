"""A shared runtime over three nodes of a real Ray cluster: many clients, Docker daemons, services, and whoever dies."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import engine_keeper
import ray_cluster
from container_watch import ContainerWatch
from docker_engine import PrivateEngine, close_all
from docker_images import Images
from ray_cluster import RayCluster
from ray_observer import Observer, listening
from ray_runs import Program
from ray_runs import program as started

PROGRAMS = "ray_node_programs.py"
OWNER_LABEL = "arl_tangram.owner"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster.started(3) as cluster:
        yield cluster
        assert list(Path(cluster.temporary).glob("arl_tangram-*/*")) == []


@pytest.fixture(scope="module")
def engines() -> Iterator[list[PrivateEngine]]:
    """Two Docker daemons, each for one core."""
    made = [PrivateEngine(), PrivateEngine()]
    try:
        for engine in made:
            engine.start()
        yield made
        for engine in made:
            assert containers(engine) == []
            assert [path for group in engine_keeper.cgroups(engine.folder) for path in group.glob("*/")] == []
    finally:
        close_all(made)
    assert [left for engine in made for left in engine_keeper.leftovers(engine.folder)] == []


@pytest.fixture(scope="module")
def boxes(engines: list[PrivateEngine]) -> list[dict[str, Any]]:
    """What says which core of which daemon a node has."""
    cores = sorted(os.sched_getaffinity(0))
    return [
        {"url": engine.url, "image": Images(engine.api, "nodes").bash, "core": core}
        for engine, core in zip(engines, cores, strict=False)
    ]


@contextmanager
def observed(engines: Sequence[PrivateEngine], *places: str) -> Iterator[Observer]:
    """Observe the sandboxes of n0 and n1, in the networks of their daemons, those of n2, and other places here."""
    here = listening()
    port = int(here.getsockname()[1])
    inside = {f"n{number}": listening(port, network_of=engine.pid) for number, engine in enumerate(engines)}
    with closing(Observer(inside | {"n2": here} | {place: listening() for place in places})) as observer:
        yield observer


def program(cluster: RayCluster, *words: str) -> Any:
    return started(cluster, *words, programs=PROGRAMS)


def containers(engine: PrivateEngine) -> list[str]:
    return [each["Id"] for each in engine.api.containers(OWNER_LABEL)]


def closed(holder: Program) -> None:
    """Close a shared runtime in which nothing is held; no actor of it is left."""
    holder.go_on()
    assert holder.told() == {"running": 0, "waiting": 0, "trajectories": 0, "used": {}}
    assert holder.told() == {"actors": []}
    assert holder.ended() == 0


CLIENTS = 16
ROLLOUTS = 2
TURNS = 3
SEARCHES = 2
SANDBOXES = 4
"""For as many a node has memory."""
EXAMS = 20
SEATS = 2


@pytest.mark.timeout(240)
def test_sixteen_clients_never_use_more_than_there_is_on_any_node(
    cluster: RayCluster, engines: list[PrivateEngine], boxes: list[dict[str, Any]]
) -> None:
    with ExitStack() as stack:
        watches = [stack.enter_context(ContainerWatch(engine.api, OWNER_LABEL)) for engine in engines]
        observer = stack.enter_context(observed(engines, "search", "exam", "judge", "teacher"))
        doors = json.dumps(
            {"sandboxes": observer.port("n2"), "search": observer.port("search"), "exam": observer.port("exam")}
        )
        specs = [*boxes, {"ports": [observer.port("judge"), observer.port("teacher")]}]
        holder = stack.enter_context(program(cluster, "share_nodes", "nodes", "30", json.dumps(specs)))
        assert {"cpu@n0", "cpu@n1", "quota:search/concurrency"} <= set(holder.told()["dimensions"])
        clients = [stack.enter_context(program(cluster, "work", "nodes", str(ROLLOUTS), doors)) for _ in range(CLIENTS)]
        found = [client.told() for client in clients]
        assert [client.ended() for client in clients] == [0] * CLIENTS

        rollouts = CLIENTS * ROLLOUTS
        assert [told["wrong"] for told in found] == [[]] * CLIENTS
        assert [told["torch"] for told in found] == [False] * CLIENTS
        assert [told["values"] for told in found] == [sorted([0.0, 0.5, 1.0] * ROLLOUTS)] * CLIENTS
        begun = observer.begun()
        print(begun)
        assert begun["n0"] + begun["n1"] == rollouts * (TURNS + 1)
        for box, node in zip(boxes, ("n0", "n1"), strict=True):
            assert observer.peak(node) == 1
            assert {cpus for _, _, cpus in observer.who(node)} == {str(box["core"])}
            assert len({container for _, container, _ in observer.who(node)}) > 1
        assert [watch.peak(SLACK_S) for watch in watches] == [SANDBOXES] * 2
        assert begun["search"] == rollouts * TURNS
        assert observer.peak("search") == SEARCHES
        assert begun["exam"] == EXAMS
        assert sum(told["failed"] for told in found) == 2 * CLIENTS - EXAMS
        assert begun["judge"] + begun["teacher"] == rollouts * TURNS
        assert observer.peak("judge") <= SEATS
        assert observer.peak("teacher") <= SEATS
        assert observer.peak("judge", "teacher") <= SEATS, "the device has room for one of them"
        closed(holder)


LEASE_S = 5
GRACE_S = 1 + 5
"""Of bodies, as it is shared, and the owner's own: so much longer than a lease it waits for who is silent."""
SLACK_S = 10
"""For a busy machine, on which containers take seconds to be removed."""
RECOVERY_S = 100
"""Until somebody has a command on each node again, whatever was killed: processes are started again, nodes swept."""
CALL_S = 80
"""The longest that a caller waits for a result or an error."""
KILLS = int(os.environ.get("ARL_KILLS", "8"))
SEED = int(os.environ.get("ARL_SEED") or secrets.randbelow(1 << 32))
AT_ONCE = 4
LOOPS = 2
NODES = ("n0", "n1", "n2")
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
        self, cluster: RayCluster, engines: list[PrivateEngine], observer: Observer, holder: Program, stack: ExitStack
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
        self._chance = random.Random(SEED)
        self._was_calm = True

    def new_client(self) -> None:
        doors = json.dumps({"sandboxes": self.observer.port("n2"), "search": self.observer.port("search")})
        running = program(self._cluster, "until_told", "killed", str(LOOPS), doors)
        self.clients.append(Client(self._stack.enter_context(running)))

    def next(self, victim: str) -> None:
        """Kill somebody when some more have begun or ended; half the time, wait for all to work again."""
        chance, observer = self._chance, self.observer
        due = len(observer.events) + chance.randrange(1, 12)
        assert observer.wait(lambda: len(observer.events) >= due, RECOVERY_S), f"nothing begins: {self.killed}"
        is_calm = chance.random() < 0.5
        if victim == "client":
            victim = self._kill_client()
        elif victim == "owner" and is_calm:
            self._kill_owner_of_what_is_held()
        elif not self._kill_actor(victim):
            return
        self.killed[victim] += 1
        if is_calm:
            self.until_all_work()
        self._was_calm = is_calm

    def _kill_client(self) -> str:
        """Kill a client that has a command in a container right now, if there is one; return what it was."""
        alive = {client.pid: client for client in self.clients if client.killed_s is None}
        holding = sorted(
            {event.who[0] for event in self.observer.alive() if event.place in ("n0", "n1")} & alive.keys()
        )
        client = alive[self._chance.choice(holding or sorted(alive))]
        client.kill()
        self.new_client()
        if self._was_calm:
            are_gone = until(lambda: not self.left_of(client), LEASE_S + GRACE_S + SLACK_S)
            assert are_gone, "its containers outlive its lease"
            self.gone_s.append(time.monotonic() - (client.killed_s or 0))
        return "client with a command in a container" if holding else "client"

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


@pytest.mark.timeout(240 + 20 * KILLS)
def test_whoever_is_killed_nothing_is_lost_or_granted_twice(
    cluster: RayCluster, engines: list[PrivateEngine], boxes: list[dict[str, Any]]
) -> None:
    print(f"ARL_KILLS={KILLS} ARL_SEED={SEED}")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="arl-nodes-"))
        watches = [stack.enter_context(ContainerWatch(engine.api, OWNER_LABEL)) for engine in engines]
        observer = stack.enter_context(observed(engines, "search"))
        specs = json.dumps([*boxes, {"folder": folder}])
        holder = stack.enter_context(program(cluster, "share_nodes", "killed", str(LEASE_S), specs))
        assert holder.told()["dimensions"]
        killing = Killing(cluster, engines, observer, holder, stack)
        for _ in range(AT_ONCE):
            killing.new_client()
        deck: list[str] = []
        order = random.Random(SEED)
        while killing.killed.total() < KILLS:
            deck = deck or order.sample(DECK, len(DECK))
            killing.next(deck.pop())
        killing.until_all_work()
        for client in killing.clients:
            client.end()
        told = [each for client in killing.clients for each in client.told]
        longest_s = max(each["took_s"] for each in told)
        print(killing.killed, Counter(each["error"] for each in told), longest_s, observer.begun(), killing.gone_s)
        print(*{(each["error"], each["text"]) for each in told if each["error"]}, sep="\n")
        assert longest_s < CALL_S
        assert [observer.peak(place) for place in (*NODES, "search")] == [1, 1, 1, SEARCHES]
        assert until(
            lambda: not any(killing.left_of(client) for client in killing.clients), LEASE_S + GRACE_S + SLACK_S
        )
        assert until(lambda: used(holder) == {}, LEASE_S + GRACE_S + SLACK_S)
        assert max(watch.peak(SLACK_S) for watch in watches) <= SANDBOXES
        have_all_at_once(cluster, observer)
        pids = [*killing.pids, *(pid_of(holder, name) or 0 for name in ("owner", *NODES))]
        closed(holder)
        assert left_by(pids) == []
        assert os.listdir(folder) == []


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
