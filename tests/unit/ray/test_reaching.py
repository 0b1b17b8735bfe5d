"""The connection to Ray that was made for a shared runtime: it ends with the last that uses it, also if one fails."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from arl_tangram import ConfigurationError, NoSharedRuntimeError, Tangram
from arl_tangram.integrations.ray import installed, reaching
from arl_tangram.integrations.ray.installed import connected
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

    def is_initialized(self) -> bool:
        return self.is_up

    def init(self, **_: Any) -> None:
        self.opening.wait()
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
