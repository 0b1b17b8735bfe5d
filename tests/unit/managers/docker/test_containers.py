"""What becomes of containers when a daemon fails, hangs or goes away: with a fake engine, for the faults."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from arl_tangram.errors import SandboxStartError
from arl_tangram.managers.docker import DockerPool
from arl_tangram.managers.docker.answers import ContainerState, DaemonError, ImageConfig, Listed
from arl_tangram.managers.docker.containers import DISTRUST_S, REMOVE_LIMIT_S, SLOW_RETRIES_S, Containers
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.manager import DockerManager

pytestmark = pytest.mark.looptime

IMAGE = ImageConfig({"PATH": "/bin"}, "", "")


class FakeEngine:
    """A daemon whose removals and starts go wrong as told."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.errors: list[DaemonError] = []
        self.hangs = False
        self.removals = 0
        self.lifted: list[str] = []
        self.state = ContainerState(running=True, pid=7, exit_code=0, oom_killed=False, error="")
        self.body: Mapping[str, Any] = {}
        self.start_error: DaemonError | None = None

    async def create(self, body: Mapping[str, Any], name: str, *, timeout_s: float) -> str:
        self.body = body
        self.there.add(f"id of {name}")
        return f"id of {name}"

    async def start(self, container_id: str, *, timeout_s: float) -> None:
        if self.start_error is not None:
            raise self.start_error

    async def inspect(self, container_id: str) -> ContainerState:
        return self.state

    async def remove(self, container_id: str, *, timeout_s: float) -> None:
        self.removals += 1
        if self.hangs:
            await asyncio.sleep(timeout_s)
            raise DaemonError("late", 0, "no answer")
        if self.errors:
            raise self.errors.pop()
        self.there.discard(container_id)

    async def update(self, container_id: str, *, quota_us: int, **_: object) -> None:
        if self.hangs:
            await asyncio.sleep(30)
            raise DaemonError("late", 0, "no answer")
        if quota_us == -1:
            self.lifted.append(container_id)

    async def list(self, labels: Mapping[str, str], *, timeout_s: float) -> list[Listed]:
        return [Listed(each, {}, "running", 0.0) for each in sorted(self.there)]


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


def containers(engine: FakeEngine, **options: Any) -> Containers:
    manager = DockerPool(**options).manager()
    assert isinstance(manager, DockerManager)
    idle = {"CpuQuota": 10_000}
    return Containers(cast(Engine, engine), manager._settings, node="the host", width=2, idle=lambda: idle)


async def test_a_container_has_what_was_declared_and_no_more(engine: FakeEngine) -> None:
    plain = containers(engine)
    container = await plain.start("i", IMAGE, name="n", labels={"a": "b"}, memory_bytes=1 << 26)
    assert (container.id, container.pid, container.workdir) == ("id of n", 7, "/workspace")
    host = engine.body["HostConfig"]
    assert (host["NetworkMode"], host["CapDrop"], host["CapAdd"]) == ("none", ["ALL"], [])
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["Memory"] == host["MemorySwap"] == 1 << 26
    assert (host["PidsLimit"], host["CpuQuota"], host["AutoRemove"], host["Init"]) == (4096, 10_000, False, False)
    assert "User" not in engine.body
    told = containers(engine, user="1000", workdir="/w", network="bridge", capabilities=["NET_RAW"], pids_limit=99)
    container = await told.start("i", IMAGE, name="n", labels={}, memory_bytes=0)
    host = engine.body["HostConfig"]
    assert (container.workdir, engine.body["User"], host["NetworkMode"]) == ("/w", "1000", "bridge")
    assert (host["CapAdd"], host["PidsLimit"]) == (["NET_RAW"], 99)
    assert "Memory" not in host


@pytest.mark.parametrize(("of_image", "folder"), [("/app", "/app"), ("/", "/workspace"), ("", "/workspace")])
async def test_the_working_folder_is_that_of_the_image_but_never_the_root(
    engine: FakeEngine, of_image: str, folder: str
) -> None:
    image = ImageConfig({}, of_image, "")
    container = await containers(engine).start("i", image, name="n", labels={}, memory_bytes=0)
    assert (container.workdir, engine.body["WorkingDir"]) == (folder, folder)


async def test_what_does_not_start_is_removed(engine: FakeEngine) -> None:
    engine.start_error = DaemonError("refused", 400, 'exec: "/bin/sh": no such file')
    with pytest.raises(DaemonError, match="/bin/sh"):
        await containers(engine).start("i", IMAGE, name="n", labels={}, memory_bytes=0)
    assert engine.there == set()


async def test_what_ends_at_once_is_removed(engine: FakeEngine) -> None:
    engine.state = ContainerState(running=False, pid=0, exit_code=3, oom_killed=False, error="")
    with pytest.raises(SandboxStartError, match="ended with 3"):
        await containers(engine).start("i", IMAGE, name="n", labels={}, memory_bytes=0)
    assert engine.there == set()


async def test_a_removal_that_fails_is_tried_again_at_once(
    engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    own = containers(engine)
    engine.there = {"a"}
    engine.errors = [DaemonError("failed", 500, "device busy")] * 2
    await own.remove("a")
    assert (engine.there, engine.removals, list(own.left)) == (set(), 3, [])
    assert "container a is not removed yet, the host says: device busy" in caplog.text


async def test_one_that_fails_for_long_keeps_nobody_waiting_and_goes_later(engine: FakeEngine) -> None:
    own = containers(engine)
    engine.there = {"a"}
    engine.errors = [DaemonError("failed", 500, "device busy")] * 5
    started_s = asyncio.get_running_loop().time()
    await own.remove("a")
    assert asyncio.get_running_loop().time() - started_s < 5
    assert list(own.left) == ["a"]
    await asyncio.sleep(SLOW_RETRIES_S[0] + SLOW_RETRIES_S[1] + 0.1)
    assert (engine.there, list(own.left)) == (set(), [])
    await own.aclose()


async def test_a_daemon_that_hangs_is_waited_for_once_not_for_each(engine: FakeEngine) -> None:
    own = containers(engine)
    engine.there = {str(number) for number in range(50)}
    engine.hangs = True
    started_s = asyncio.get_running_loop().time()
    await asyncio.gather(*map(own.remove, sorted(engine.there)))
    assert asyncio.get_running_loop().time() - started_s < REMOVE_LIMIT_S + 1
    assert (len(own.left), engine.removals) == (50, 2)
    assert len(await own.remove_all({})) == 50
    engine.hangs = False
    await asyncio.sleep(DISTRUST_S + sum(SLOW_RETRIES_S))
    assert (engine.there, list(own.left)) == (set(), [])
    await own.aclose()


async def test_what_could_not_be_removed_goes_when_the_daemon_is_back(engine: FakeEngine) -> None:
    own = containers(engine)
    engine.there = {"a"}
    engine.errors = [DaemonError("gone", 0, "connection refused")]
    await own.remove("a")
    assert list(own.left) == ["a"]
    own.daemon_is_back()
    await asyncio.sleep(0.01)
    assert (engine.there, list(own.left)) == (set(), [])
    await own.aclose()


async def test_cancelling_a_removal_waits_for_it(engine: FakeEngine) -> None:
    own = containers(engine)
    engine.there = {"a"}
    engine.errors = [DaemonError("failed", 500, "device busy")]
    removing = asyncio.create_task(own.remove("a"))
    await asyncio.sleep(0)
    removing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await removing
    assert engine.there == set()


async def test_all_of_an_owner_are_removed_and_those_left_are_told(engine: FakeEngine) -> None:
    own = containers(engine)
    engine.there = {"a", "b", "c"}
    engine.errors = [DaemonError("failed", 500, "device busy")]
    assert len(await own.remove_all({"owner": "me"})) == 1
    assert sorted(engine.lifted) == ["a", "b", "c"], "they may be suspended"
    assert await own.remove_all({"owner": "me"}) == []
    assert engine.there == set()
