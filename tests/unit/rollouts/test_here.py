"""The runtime of a process is opened once, on a loop of its own, and again when its owner is lost; without Ray here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from arl_tangram import ConfigurationError, NoRuntimeError, NoSharedRuntimeError, Tangram
from arl_tangram.closing import Opened
from arl_tangram.doorway import Doorway
from arl_tangram.integrations.ray import Shared
from arl_tangram.integrations.rollouts import Rollout, close_here, here, open_here, runtime_here
from arl_tangram.opening import opened
from arl_tangram.testing import FakePool
from unit.rollouts import actions_here


async def unreached() -> None:
    raise AssertionError("its parts are those of a Tangram")


class Alone(Shared):
    """A shared runtime whose scheduler is in this process; `lose` makes it one that has lost its owner."""

    def __init__(self, name: str, *, wait: threading.Event | None = None, error: Exception | None = None) -> None:
        super().__init__(unreached, name=name, timeout_s=1)  # type: ignore[arg-type]
        self.lost = False
        self._wait = wait
        self._error = error

    async def _open(self, doorway: Doorway) -> Opened:
        if self._wait is not None:
            await asyncio.to_thread(self._wait.wait)
        if self._error is not None:
            raise self._error
        return await opened(Tangram(FakePool()).setup, doorway, self._set_closed)

    @property
    def is_over(self) -> bool:
        return self.lost


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Alone]]:
    """Let `connect` return runtimes of this process; they are listed."""
    made: list[Alone] = []

    def connect(name: str, *, timeout: float) -> Alone:
        if name == "nowhere":
            return Alone(name, error=NoSharedRuntimeError(f"none of the name {name!r} within {timeout:g} s"))
        made.append(Alone(name))
        return made[-1]

    monkeypatch.setattr(here, "connect", connect)
    yield made
    close_here()
    assert not any(one.is_open for one in made)


async def test_it_is_opened_once_whoever_asks(connections: list[Alone]) -> None:
    found = await asyncio.gather(*(runtime_here() for _ in range(5)))
    found += await asyncio.to_thread(lambda: asyncio.run(_gathered(3)))
    assert len(connections) == 1
    assert set(found) == {connections[0]}
    async with Rollout(found[0]) as rollout:
        assert await rollout.call(actions_here.write, "a") == "fake-1:a"


async def _gathered(count: int) -> list[object]:
    return list(await asyncio.gather(*(runtime_here() for _ in range(count))))


async def test_it_lives_on_a_loop_of_its_own(connections: list[Alone]) -> None:
    await runtime_here()
    assert connections[0].open_on is not None
    assert connections[0].open_on is not asyncio.get_running_loop()


async def test_who_asks_may_be_cancelled_and_others_have_it_all_the_same(
    connections: list[Alone], monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled = threading.Event()

    def connect(name: str, *, timeout: float) -> Alone:
        connections.append(Alone(name, wait=cancelled))
        return connections[-1]

    monkeypatch.setattr(here, "connect", connect)
    first = asyncio.ensure_future(runtime_here())
    await asyncio.sleep(0)
    second = asyncio.ensure_future(runtime_here())
    await asyncio.sleep(0)
    first.cancel()
    cancelled.set()
    assert await second is connections[0]
    assert first.cancelled()


async def test_one_whose_owner_is_lost_is_opened_again(connections: list[Alone]) -> None:
    await runtime_here()
    connections[0].lost = True
    assert await runtime_here() is connections[1]
    assert not connections[0].is_open
    assert await runtime_here() is connections[1]


async def test_one_that_was_closed_is_opened_again(connections: list[Alone]) -> None:
    await runtime_here()
    await asyncio.to_thread(close_here)
    close_here()
    assert await runtime_here() is connections[1]


async def test_what_cannot_be_opened_is_tried_again(connections: list[Alone], monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(here, "time", SimpleNamespace(monotonic=lambda: now_s))
    for now_s, tried_s in ((0, 3), (2, 3), (4, 5)):  # who asks soon after is told at once of what was found
        with pytest.raises(NoSharedRuntimeError, match=f"'nowhere' within {tried_s} s"):
            await runtime_here("nowhere", timeout_s=3 + now_s // 2)
    assert (await runtime_here()) is connections[0]
    with pytest.raises(ConfigurationError, match="'tangram' open, and was asked for 'other'"):
        await runtime_here("other")


async def test_the_one_that_the_program_has_open_is_taken(connections: list[Alone]) -> None:
    async with Tangram(FakePool()) as tg:
        assert await runtime_here() is tg
        assert await asyncio.to_thread(lambda: asyncio.run(runtime_here())) is tg
        async with Tangram(FakePool()) as inner:
            assert await runtime_here() is inner
            with pytest.raises(NoRuntimeError, match="several"):
                await asyncio.to_thread(_without_context)
    assert connections == []
    async with Alone("tangram") as shared:
        assert await runtime_here() is shared
        assert connections == []
        assert await runtime_here("other") is connections[0]


def _without_context() -> None:
    done: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(runtime_here())
        except NoRuntimeError as error:
            done.append(error)

    thread = threading.Thread(target=run)  # with an empty context
    thread.start()
    thread.join()
    raise done[0]


async def test_in_a_worker_of_ray_one_that_is_not_shared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "in_worker", lambda: True)
    async with Tangram(FakePool()):
        with pytest.raises(ConfigurationError, match="its limits hold in this process only"):
            await runtime_here()
    async with Alone("tangram") as shared:
        assert await runtime_here() is shared


async def test_it_can_be_opened_where_an_event_loop_runs(connections: list[Alone]) -> None:
    made = Alone("tangram")
    assert open_here(lambda: made) is made
    assert await runtime_here() is made
    assert open_here(lambda: Alone("tangram")) is made
    with pytest.raises(ConfigurationError, match="has the shared runtime 'tangram' open, and can have no 'b' beside"):
        open_here(lambda: Alone("b"))
    assert connections == []
    close_here()
    assert not made.is_open
    with pytest.raises(ValueError, match="broken"):
        open_here(lambda: Alone("tangram", error=ValueError("broken")))


def test_what_is_not_shared_is_not_opened_here() -> None:
    alone = Tangram(FakePool())
    with pytest.raises(ConfigurationError, match=r"takes what share\(\) or connect\(\) returns, .*by `with`"):
        open_here(lambda: alone)  # type: ignore[arg-type, return-value]
    assert not alone.is_open


async def test_closing_waits_until_it_is_open() -> None:
    go = threading.Event()
    made = Alone("tangram", wait=go)
    opening = asyncio.ensure_future(asyncio.to_thread(open_here, lambda: made))
    while here._here.opening is None:  # noqa: ASYNC110 - a thread sets no event of the loop
        await asyncio.sleep(0.001)
    closing = asyncio.ensure_future(asyncio.to_thread(close_here))
    await asyncio.sleep(0.01)
    assert not closing.done()
    go.set()
    await closing
    assert await opening is made
    assert not made.is_open
