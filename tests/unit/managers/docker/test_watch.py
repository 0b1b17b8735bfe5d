"""Deaths of containers and of the daemon are told, once each and none is missed; the daemon is a fake engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.docker import watch as module
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.managers.docker.watch import Death, Watch
from fake_engine import DROP, HANG, FakeEngine, Fault, response


class Told:
    """Collects what a watch tells, in order."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.what: list[object] = []
        self.on_death: Callable[[str, Death], None] = self.die
        self._news = asyncio.Event()

    def tell(self, *what: object) -> None:
        self.what.append(what[0] if len(what) == 1 else what)
        self._news.set()

    def watch(self, engine: Engine) -> Watch:
        return Watch(
            engine, {"o": "me"}, running=lambda: self.running, on_death=self.hear,
            on_oom=lambda each: self.tell("oom", each), on_gone=lambda reason: self.tell("gone"),
            on_back=lambda: self.tell("back"),
        )  # fmt: skip

    def hear(self, container: str, death: Death) -> None:
        self.on_death(container, death)

    def die(self, container: str, death: Death) -> None:
        self.running.remove(container)
        self.tell(container, death)

    async def wait(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def watching(daemon: FakeEngine) -> AsyncIterator[Told]:
    engine = Engine(daemon.url, LatencyMeter())
    await engine.open()
    told = Told()
    watch = told.watch(engine)
    running = asyncio.create_task(watch.run())
    try:
        async with asyncio.timeout(10):
            await watch.wait_ready()
        yield told
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await engine.aclose()


async def test_a_death_is_told_with_its_reason() -> None:
    async with FakeEngine() as daemon, watching(daemon) as told:
        for name, code, oom in (("a", 0, False), ("b", 137, False), ("c", 137, True)):
            container = daemon.run(name, o="me")
            told.running.append(container.id)
            container.state, container.exit_code, container.oom_killed = "exited", code, oom
            await daemon.emit("die", container.id, exitCode=str(code))
            await daemon.emit("destroy", container.id)
            await told.wait(lambda: not told.running)
        assert [each[1] for each in told.what if isinstance(each, tuple)] == [
            Death(0, False, "ended with exit code 0"),
            Death(137, False, "was killed (exit code 137)"),
            Death(137, True, "ran out of memory (exit code 137)"),
        ]


async def test_what_the_daemon_learns_of_memory_after_it_has_told_the_death() -> None:
    async with FakeEngine() as daemon, watching(daemon) as told:
        container = daemon.run("a", o="me")
        told.running.append(container.id)
        container.state, container.exit_code = "exited", 137
        await daemon.emit("die", container.id, exitCode="137")
        await daemon.wait_for("GET containers/ID/json".replace("ID", container.id))
        container.oom_killed = True
        await told.wait(lambda: not told.running)
        assert [each[1] for each in told.what] == [Death(137, True, "ran out of memory (exit code 137)")]


async def test_something_in_a_container_that_lives_on_ran_out_of_memory() -> None:
    async with FakeEngine() as daemon, watching(daemon) as told:
        container = daemon.run("a", o="me")
        told.running.append(container.id)
        await daemon.emit("oom", container.id)
        await daemon.emit("oom", "a stranger")
        await told.wait(lambda: bool(told.what))
        assert told.what == [("oom", container.id)]


async def test_a_container_that_was_removed() -> None:
    async with FakeEngine() as daemon, watching(daemon) as told:
        told.running.append("gone already")
        await daemon.emit("destroy", "gone already")
        await told.wait(lambda: not told.running)
        assert told.what == [("gone already", Death(None, False, "was removed"))]


async def test_a_death_is_told_though_the_daemon_does_not_say_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INSPECT_LIMIT_S", 0.05)
    async with FakeEngine() as daemon, watching(daemon) as told:
        container = daemon.run("a", o="me")
        told.running.append(container.id)
        daemon.fault(f"GET containers/{container.id}/json", Fault(HANG))
        await daemon.emit("die", container.id, exitCode="3")
        await told.wait(lambda: not told.running)
        assert told.what == [(container.id, Death(3, False, "ended with exit code 3"))]


@pytest.mark.parametrize("how", ["cleanly", "brutally", "with nonsense"])
async def test_a_stream_that_ends_is_taken_up_again_and_no_death_in_between_is_missed(how: str) -> None:
    async with FakeEngine() as daemon, watching(daemon) as told:
        dying, living = daemon.run("a", o="me"), daemon.run("b", o="me")
        told.running += [dying.id, living.id]
        dying.state, dying.exit_code = "exited", 1
        if how == "with nonsense":
            await daemon.emit_raw(b"{what\n")
        else:
            daemon.end_events(cleanly=how == "cleanly")
        await told.wait(lambda: told.running == [living.id])
        await daemon.wait_for("GET events", 2)
        await daemon.wait_subscribed()
        living.state = "exited"
        await daemon.emit("die", living.id, exitCode="0")
        await told.wait(lambda: told.running == [])
        assert told.what == [  # and the daemon was never gone
            (dying.id, Death(1, False, "ended with exit code 1")),
            (living.id, Death(0, False, "ended with exit code 0")),
        ]  # fmt: skip


async def test_a_death_is_told_once_however_long_the_container_counts_as_running() -> None:
    async with FakeEngine() as daemon, watching(daemon) as told:
        container = daemon.run("a", o="me")
        told.running.append(container.id)
        told.on_death = told.tell
        container.state = "exited"
        await daemon.emit("die", container.id, exitCode="0")
        await told.wait(lambda: len(told.what) == 1)
        await daemon.emit("destroy", container.id)
        daemon.end_events()
        await daemon.wait_for("GET events", 2)
        await daemon.wait_for("GET containers/json", 2)
        daemon.end_events()
        await daemon.wait_for("GET containers/json", 3)
        assert len(told.what) == 1


async def test_a_defect_in_what_is_called_does_not_make_it_deaf(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeEngine() as daemon, watching(daemon) as told:
        containers = [daemon.run(name, o="me") for name in "ab"]
        told.running += [container.id for container in containers]

        def fail(container: str, death: Death) -> None:
            told.on_death = told.die
            told.running.remove(container)
            raise ValueError("a defect")

        told.on_death = fail
        await daemon.emit("die", containers[0].id, exitCode="0")
        await daemon.wait_for("GET events", 2)
        await daemon.wait_subscribed()
        await daemon.emit("die", containers[1].id, exitCode="0")
        await told.wait(lambda: not told.running)
        assert "the watch of the Docker daemon" in caplog.text


async def test_a_daemon_that_is_restarted() -> None:
    async with FakeEngine() as daemon, watching(daemon) as told:
        container = daemon.run("a", o="me")
        told.running.append(container.id)
        await daemon.down()
        await told.wait(lambda: told.what == ["gone"])
        daemon.containers.clear()
        await daemon.up()
        await told.wait(lambda: len(told.what) == 3)
        assert told.what[0] == "gone"
        assert set(told.what[1:]) == {"back", (container.id, Death(None, False, "was removed"))}


async def test_a_daemon_that_hangs_is_told_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(module, "HEARTBEAT_LIMIT_S", 0.05)
    async with FakeEngine() as daemon, watching(daemon) as told:
        daemon.fault("GET version", Fault(HANG))
        daemon.fault("GET info", Fault(HANG))
        await told.wait(lambda: "gone" in told.what)
        await told.wait(lambda: "back" in told.what)


async def test_a_daemon_that_tells_no_events_is_told_at_once() -> None:
    async with FakeEngine() as daemon:
        daemon.fault("GET events", Fault(response(403, b'{"message": "not for you"}')))
        with pytest.raises(ConfigurationError, match=r"at unix://.* tells no events: not for you"):
            async with watching(daemon):
                pass


async def test_it_goes_on_after_a_bad_beginning() -> None:
    async with FakeEngine() as daemon:
        engine = Engine(daemon.url, LatencyMeter())
        await engine.open()
        daemon.fault("GET events", Fault(DROP, does=False), times=4)
        told = Told()
        watch = told.watch(engine)
        running = asyncio.create_task(watch.run())
        await told.wait(lambda: told.what == ["gone", "back"])
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await engine.aclose()


async def test_what_happened_before_the_answer_of_the_daemon_is_asked_for_again() -> None:
    async with FakeEngine() as daemon, watching(daemon):
        subscribed = next(request for request in daemon.requests if request.path.endswith("/events"))
        assert subscribed.query["since"] == "1796007600"
