"""A shared runtime over three nodes of a real Ray cluster: many clients, Docker daemons, services, and whoever dies."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import engine_keeper
import ray_cluster
from container_watch import ContainerWatch
from docker_engine import PrivateEngine, close_all
from docker_images import Images
from ray_cluster import RayCluster
from ray_killing import (
    AT_ONCE,
    GRACE_S,
    LEASE_S,
    NODES,
    OWNER_LABEL,
    SEARCHES,
    SLACK_S,
    Killing,
    containers,
    have_all_at_once,
    left_by,
    pid_of,
    program,
    until,
    used,
)
from ray_observer import Observer, listening
from ray_runs import Program


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


def closed(holder: Program) -> None:
    """Close a shared runtime in which nothing is held; no actor of it is left."""
    holder.go_on()
    assert holder.told() == {"running": 0, "waiting": 0, "trajectories": 0, "used": {}}
    assert holder.told() == {"actors": []}
    assert holder.ended() == 0


CLIENTS = 16
ROLLOUTS = 2
TURNS = 3
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


CALL_S = 80
"""The longest that a caller waits for a result or an error."""
KILLS = int(os.environ.get("ARL_KILLS", "8"))
SEED = int(os.environ.get("ARL_SEED") or secrets.randbelow(1 << 32))


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
        killing = Killing(cluster, engines, observer, holder, stack, SEED)
        for _ in range(AT_ONCE):
            killing.new_client()
        while killing.killed.total() < KILLS:
            killing.next()
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
