"""The connection to Ray that was made for a shared runtime: it ends with the last that uses it, also if one fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from arl_tangram import ConfigurationError, NoSharedRuntimeError, Tangram
from arl_tangram.integrations.ray import connection, installed, reaching
from arl_tangram.integrations.ray.installed import connected
from arl_tangram.integrations.ray.naming import NAMESPACE
from arl_tangram.integrations.ray.placing import Node
from arl_tangram.integrations.ray.reaching import Plan, find, make
from arl_tangram.testing import FakePool


class Died(Exception):
    """What Ray says of an actor that is dead."""

    actor_init_failed = True


class Unmade:
    """An actor that cannot be made on its machine."""

    def options(self, **_: Any) -> Unmade:
        return self

    def remote(self, *_: Any) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        async def call(*_: Any) -> None:
            raise Died("because of an error raised in its \x1b[36mcreation\x1b[39m task\nNo module named 'only_here'")

        return SimpleNamespace(remote=call)


class Ray:
    """As much of Ray as is needed to join it, and to see that it is empty."""

    def __init__(self) -> None:
        self.is_up = False
        self.opening = threading.Event()
        self.opening.set()
        self.util = SimpleNamespace(list_named_actors=lambda all_namespaces: [])
        self.exceptions = SimpleNamespace(ActorDiedError=Died)
        self.killed: list[object] = []
        self.inits = 0
        self._is_opening = False
        self.fails: Exception | None = None

    def is_initialized(self) -> bool:
        return self.is_up

    def init(self, **_: Any) -> None:
        assert not self.is_up and not self._is_opening, "Perhaps you called ray.init twice by accident?"  # noqa: PT018
        self.inits += 1
        self._is_opening = True
        self.opening.wait()
        self._is_opening = False
        if self.fails is not None:
            raise self.fails
        self.is_up = True

    def shutdown(self) -> None:
        self.is_up = False

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_job_id=lambda: "01", get_node_id=lambda: "n")

    def get_actor(self, name: str, namespace: str) -> Any:
        raise ValueError(name)

    def remote(self, kind: type) -> Any:
        raise ValueError("a resource cannot be negative")

    def kill(self, actor: object, **_: Any) -> None:
        self.killed.append(actor)

    def nodes(self) -> list[Any]:
        return [{"NodeID": "n", "NodeManagerHostname": "h", "Resources": {}, "Alive": True}]


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    ray = Ray()
    monkeypatch.setattr(installed, "find_ray", lambda: ray)
    return ray


PLAN = Plan("main", Tangram, (Node("x", lambda: [FakePool()], node_id="no such machine"),), (), 30.0, 30.0)


def test_it_ends_with_the_last_that_uses_it(ray: Ray) -> None:
    first, second = connected(start=True), connected(start=False)
    first.give_up()
    first.give_up()
    assert ray.is_up
    second.give_up()
    assert not ray.is_up
    third = connected(start=True)
    assert ray.is_up
    third.give_up()
    assert not ray.is_up


def test_one_of_the_programs_own_is_left_alone(ray: Ray) -> None:
    ray.is_up = True
    connected(start=True).give_up()
    assert ray.is_up


async def test_a_runtime_that_cannot_be_made_leaves_no_connection(ray: Ray) -> None:
    with pytest.raises(ConfigurationError, match="no such machine"):
        await make(PLAN)
    assert not ray.is_up


async def test_what_ray_refuses_is_told_and_not_waited_for(ray: Ray) -> None:
    with pytest.raises(ConfigurationError, match="cannot be negative"):
        await make(replace(PLAN, nodes=None))
    assert not ray.is_up


@pytest.mark.parametrize(
    "begin",
    [lambda: find("main", None, None, 0.01), lambda: make(replace(PLAN, start_timeout_s=0.01))],
    ids=["connect", "share"],
)
async def test_a_cluster_that_does_not_answer_is_not_waited_for(
    ray: Ray, monkeypatch: pytest.MonkeyPatch, begin: Callable[[], Awaitable[object]]
) -> None:
    monkeypatch.setattr(installed, "LEAST_CONNECT_S", 0.01)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    ray.opening.clear()
    with pytest.raises(NoSharedRuntimeError, match=r"that at 10\.0\.0\.1:6379 did not answer within 0\.01 s"):
        await begin()
    monkeypatch.setattr(connection, "KEPT_S", 0.01)
    ray.opening.set()
    late().join()
    assert not ray.is_up, "nobody has asked for it since"


def late() -> threading.Thread:
    """The connection that nobody waits for."""
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "arl_tangram ray connection"]
    return thread


async def test_who_asks_again_waits_for_the_same_connection(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "LEAST_CONNECT_S", 0.01)
    ray.opening.clear()
    for _ in range(2):
        with pytest.raises(NoSharedRuntimeError, match=r"did not answer within 0\.01 s"):
            await find("main", None, None, 0.01)
    monkeypatch.setattr(installed, "LEAST_CONNECT_S", 30.0)
    ray.opening.set()
    library = await asyncio.to_thread(connected, start=False)
    assert ray.inits == 1
    assert ray.is_up
    await asyncio.to_thread(library.give_up)
    assert not ray.is_up


async def test_one_that_has_failed_meanwhile_is_begun_anew(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "LEAST_CONNECT_S", 0.01)
    ray.opening.clear()
    with pytest.raises(NoSharedRuntimeError):
        await find("main", None, None, 0.01)
    thread, ray.fails = late(), ConnectionError("no cluster")
    ray.opening.set()
    thread.join()
    ray.fails = None
    monkeypatch.setattr(installed, "LEAST_CONNECT_S", 30.0)
    await asyncio.to_thread(lambda: connected(start=True).give_up())
    assert ray.inits == 2


def test_an_address_that_is_none_is_told(ray: Ray) -> None:
    ray.fails = ValueError("not an address")
    with pytest.raises(NoSharedRuntimeError, match="cannot join a Ray cluster: not an address"):
        connected(start=False)


@pytest.mark.parametrize(
    "begin",
    [lambda: find("main", None, None, 0.01), lambda: make(replace(PLAN, start_timeout_s=0.01))],
    ids=["connect", "share"],
)
async def test_a_cluster_that_this_process_is_in_is_not_waited_for(
    ray: Ray, monkeypatch: pytest.MonkeyPatch, begin: Callable[[], Awaitable[object]]
) -> None:
    ray.is_up = True
    going_on = threading.Event()
    monkeypatch.setattr(installed, "LEAST_CONNECT_S", 0.01)
    monkeypatch.setattr(ray.util, "list_named_actors", lambda **_: going_on.wait())
    monkeypatch.setattr(ray, "get_actor", lambda *_, **__: going_on.wait())
    with pytest.raises(NoSharedRuntimeError, match=r"does not answer within 0\.01 s"):
        await begin()
    going_on.set()


async def test_what_ray_raises_when_it_does_not_answer_is_told(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise Died("the head is gone")

    monkeypatch.setattr(ray.util, "list_named_actors", fail)
    with pytest.raises(NoSharedRuntimeError, match=r"does not answer \(Died: the head is gone\)"):
        await find("main", None, None, 0.01)
    assert not ray.is_up


async def test_what_ray_cannot_send_is_told_in_one_line(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TypeError(
            "Could not serialize it\n===\n\x1b[31m!!! FAIL\x1b[39m serialization: cannot pickle 'lock'\n===\nmore"
        )

    actor = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=refuse))
    monkeypatch.setattr(ray, "remote", lambda _kind: actor)
    with pytest.raises(
        ConfigurationError, match=r"^what was declared cannot be sent .*'main@01': cannot pickle 'lock'$"
    ):
        await make(replace(PLAN, nodes=None))
    assert not ray.is_up


async def test_who_joins_is_held_to_the_nodes_and_who_connects_is_not(
    ray: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "get_actor", lambda *_, **__: SimpleNamespace())
    monkeypatch.setattr(ray.util, "list_named_actors", lambda **_: [{"name": "main@01", "namespace": NAMESPACE}])
    joined, connected_to = await make(PLAN), await find("main", None, ["order: fcfs"], 1.0)
    for found, without_nodes in ((joined, False), (connected_to, True)):
        assert (found.greeting["without_nodes"], found.greeting["made"]) == (without_nodes, False)
        await found.aclose()
    assert not ray.is_up


async def test_what_an_actor_cannot_import_is_a_fault_of_the_declaration(
    ray: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    unmade = Unmade()
    monkeypatch.setattr(ray, "remote", lambda _kind: unmade)
    with pytest.raises(ConfigurationError, match=r"cannot be made.*its creation task .*No module named 'only_here'"):
        await make(replace(PLAN, nodes=None))
    assert ray.killed == [unmade]
    assert not ray.is_up


async def test_one_that_is_not_found_leaves_no_connection(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoSharedRuntimeError):
        await find("main", None, None, 0.0)
    assert not ray.is_up
    monkeypatch.setattr(reaching, "chosen", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await find("main", None, None, 0.0)
    assert not ray.is_up


@pytest.mark.parametrize("is_early", [True, False])
async def test_one_that_is_cancelled_leaves_no_connection(ray: Ray, *, is_early: bool) -> None:
    if is_early:
        ray.opening.clear()
    finding = asyncio.ensure_future(find("main", None, None, 1000.0))
    while not is_early and not ray.is_up:  # noqa: ASYNC110 - a thread sets it
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    finding.cancel()
    await asyncio.sleep(0.01)
    ray.opening.set()
    with pytest.raises(asyncio.CancelledError):
        await finding
    assert not ray.is_up
