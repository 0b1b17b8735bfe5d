"""A creation or a start that is given up leaves no container; the daemon is a fake engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from arl_tangram.managers.docker import undo
from arl_tangram.managers.docker.engine import DaemonError, Engine
from arl_tangram.managers.docker.latency import LatencyMeter
from fake_engine import DROP, HANG, FakeEngine, Fault, response


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[FakeEngine, Engine]]:
    async with FakeEngine() as daemon:
        engine = Engine(daemon.url, LatencyMeter())
        await engine.open()
        try:
            yield daemon, engine
        finally:
            await engine.aclose()


async def gone(daemon: FakeEngine) -> None:
    await daemon.wait_until(lambda: not daemon.containers)


async def test_a_cancelled_creation_ends_when_its_container_is_gone() -> None:
    async with opened() as (daemon, engine):
        held = asyncio.Event()
        daemon.fault("POST containers/create", Fault(after=held))
        creating = asyncio.create_task(engine.create({}, "c1"))
        await daemon.wait_for("POST containers/create")
        creating.cancel()
        await asyncio.sleep(0)
        creating.cancel()  # impatience changes nothing
        held.set()
        with pytest.raises(asyncio.CancelledError):
            await creating
        assert daemon.containers == {}
        assert daemon.count("DELETE containers/c1") == 1


async def test_a_cancelled_creation_that_was_refused_removes_nothing() -> None:
    async with opened() as (daemon, engine):
        theirs = daemon.run("c1")
        held = asyncio.Event()
        daemon.fault("POST containers/create", Fault(after=held))
        creating = asyncio.create_task(engine.create({}, "c1"))
        await daemon.wait_for("POST containers/create")
        creating.cancel()
        held.set()
        with pytest.raises(asyncio.CancelledError):
            await creating
        assert list(daemon.containers) == [theirs.id]


async def test_a_creation_that_waits_for_its_turn_is_cancelled_at_once() -> None:
    async with opened() as (daemon, engine):
        held = asyncio.Event()
        daemon.fault("POST containers/create", Fault(after=held), times=4)
        first = [asyncio.create_task(engine.create({}, f"c{n}")) for n in range(4)]
        await daemon.wait_for("POST containers/create", 4)
        waiting = asyncio.create_task(engine.create({}, "late"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        held.set()
        await asyncio.gather(*first)
        assert daemon.count("DELETE containers/late") == 0


@pytest.mark.parametrize("answer", [HANG, DROP, response(500, b"{}"), response(201, b"{}"), response(201, b"{")])
async def test_a_creation_whose_outcome_is_unknown_is_followed_by_a_removal(answer: object) -> None:
    async with opened() as (daemon, engine):
        daemon.fault("POST containers/create", Fault(answer, does=True))
        with pytest.raises(DaemonError):
            await engine.create({}, "c1", timeout_s=0.1)
        await gone(daemon)


async def test_a_creation_that_is_late_by_far_is_removed_when_it_appears() -> None:
    async with opened() as (daemon, engine):
        daemon.fault("POST containers/create", Fault(HANG, does=False))
        with pytest.raises(DaemonError):
            await engine.create({}, "c1", timeout_s=0.05)
        await daemon.wait_for("DELETE containers/c1", 2)  # not there yet
        daemon.run("c1")
        await gone(daemon)


@pytest.mark.parametrize("answer", [HANG, DROP, response(500, b"{}")])
async def test_a_start_whose_outcome_is_unknown_is_followed_by_a_removal(answer: object) -> None:
    async with opened() as (daemon, engine):
        container = await engine.create({}, "c1")
        daemon.fault(f"POST containers/{container}/start", Fault(answer))
        with pytest.raises(DaemonError):
            await engine.start(container, timeout_s=0.1)
        await gone(daemon)


async def test_a_refused_start_leaves_the_container_to_who_created_it() -> None:
    async with opened() as (daemon, engine):
        container = await engine.create({}, "c1")
        daemon.fault(f"POST containers/{container}/start", Fault(response(400, b'{"message": "no such cpu"}')))
        with pytest.raises(DaemonError, match="no such cpu"):
            await engine.start(container)
    assert len(daemon.containers) == 1


async def test_a_cancelled_start_ends_when_its_container_is_gone() -> None:
    async with opened() as (daemon, engine):
        container = await engine.create({}, "c1")
        held = asyncio.Event()
        daemon.fault(f"POST containers/{container}/start", Fault(after=held))
        starting = asyncio.create_task(engine.start(container))
        await daemon.wait_for(f"POST containers/{container}/start")
        starting.cancel()
        held.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert daemon.containers == {}


async def test_a_removal_that_fails_is_repeated() -> None:
    async with opened() as (daemon, engine):
        daemon.fault("POST containers/create", Fault(DROP))
        daemon.fault("DELETE containers/c1", Fault(response(500, b'{"message": "device busy"}'), does=False), times=2)
        with pytest.raises(DaemonError):
            await engine.create({}, "c1")
        await gone(daemon)
        assert daemon.count("DELETE containers/c1") == 3


async def test_closing_tries_once_more_and_says_what_may_be_left(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as (daemon, engine):
        daemon.fault("POST containers/create", Fault(DROP))
        daemon.fault("DELETE containers/c1", Fault(response(500, b'{"message": "device busy"}'), does=False), times=99)
        with pytest.raises(DaemonError):
            await engine.create({}, "c1")
        await daemon.wait_for("DELETE containers/c1", 2)
        with caplog.at_level(logging.WARNING):
            await engine.aclose()
        assert "container c1, which was given up, may be left behind: device busy" in caplog.text


async def test_closing_does_not_wait_for_a_daemon_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arl_tangram.managers.docker.engine.CLOSE_S", 0.1)
    async with opened() as (daemon, engine):
        daemon.fault("POST containers/create", Fault(DROP))
        daemon.fault("DELETE containers/c1", Fault(HANG, does=False), times=99)
        with pytest.raises(DaemonError):
            await engine.create({}, "c1")
        await daemon.wait_for("DELETE containers/c1")
        async with asyncio.timeout(5):
            await engine.aclose()


async def test_a_cancelled_caller_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo, "FOREGROUND_S", 0.05)
    async with opened() as (daemon, engine):
        daemon.fault("POST containers/create", Fault(HANG))
        creating = asyncio.create_task(engine.create({}, "c1", timeout_s=0.5))
        await daemon.wait_for("POST containers/create")
        creating.cancel()
        async with asyncio.timeout(0.4):
            with pytest.raises(asyncio.CancelledError):
                await creating
        assert len(daemon.containers) == 1
        await gone(daemon)  # behind its back


def test_the_end_of_the_loop_waits_for_what_was_given_up() -> None:
    """`asyncio.run` cancels all tasks at its end: the removal goes on."""

    left: list[str] = []

    async def main() -> None:
        async with FakeEngine() as daemon:
            engine = Engine(daemon.url, LatencyMeter())
            await engine.open()
            held = asyncio.Event()
            daemon.fault("POST containers/create", Fault(after=held))

            async def hold() -> None:
                creating = asyncio.create_task(engine.create({}, "c1"))
                await daemon.wait_for("POST containers/create")
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    if "_serve" not in repr(task):
                        task.cancel()  # what asyncio.run does
                held.set()
                await asyncio.wait([creating])

            await hold()
            left.extend(daemon.containers)
            await engine.aclose()

    asyncio.run(main())
    assert left == []


async def test_two_that_wait_for_the_same_outcome_are_no_business_of_each_other() -> None:
    """A creation that fails after another one was refused its name removes only its own."""
    async with opened() as (daemon, engine):
        first = await engine.create({}, "c1")
        with pytest.raises(DaemonError, match="already in use"):
            await engine.create({}, "c1")
        assert list(daemon.containers) == [first]


async def test_what_is_not_the_daemons_fault_is_raised_and_undone() -> None:
    async def explode() -> None:
        raise RuntimeError("boom")

    removed: list[str] = []

    def remove(name: str) -> Coroutine[Any, Any, bool]:
        async def work() -> bool:
            removed.append(name)
            return True

        return work()

    steps = undo.Undo(remove)
    with pytest.raises(RuntimeError, match="boom"):
        await steps.all_or_nothing("c1", explode())
    await steps.aclose(1)
    assert removed == ["c1"]
