"""Hold every test to the same rules: it is deterministic, does not block the loop and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

import engine_keeper
import machine
from blocking import no_blocking
from distribution import FilesInOrder
from docker_engine import EngineApi, NoEngineError, PrivateEngine, close_all, find_engine
from docker_images import Images
from leftovers import Snapshot, pending_tasks

pytest_plugins = ["pytester"]

HERE = Path(__file__).parent
# Tests that work with real files, processes and sockets: there, a file descriptor is a thing that can be lost.
WITH_DESCRIPTORS = ("cases", "contract", "integration", "service")

# deadline=None: a slow machine is no failure. The others are chosen with --hypothesis-profile=light, or nightly.
_SLOW = [HealthCheck.too_slow]
settings.register_profile(
    "deterministic", derandomize=True, database=None, deadline=None, print_blob=True, suppress_health_check=_SLOW
)
settings.register_profile("light", settings.get_profile("deterministic"), max_examples=25)
settings.register_profile("nightly", max_examples=2000, deadline=None, print_blob=True, suppress_health_check=_SLOW)
settings.load_profile("deterministic")


@pytest.fixture(scope="session", autouse=True)
def _no_blocking() -> Iterator[None]:
    with no_blocking():
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_implicit_loop() -> None:
    # looptime asks the policy for a loop before every test; without this, the policy makes one that nobody closes.
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def _nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    inside = request.path.relative_to(HERE).parts if request.path.is_relative_to(HERE) else ()
    before = Snapshot.take(with_descriptors=bool(inside) and inside[0] in WITH_DESCRIPTORS)
    yield
    if found := before.leftovers():
        pytest.fail(f"the test left behind: {'; '.join(found)}", pytrace=False)


@pytest_asyncio.fixture
async def _no_task_left() -> AsyncIterator[None]:
    yield
    if found := await pending_tasks():
        pytest.fail(f"the test left behind: {'; '.join(found)}", pytrace=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesInOrder | None:
    """Distribute files as `distribution` does; other ways are those of xdist."""
    return FilesInOrder(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking through all that was imported and collected, around each test."""
    gc.collect()
    gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Put the watch over tasks around the fixtures of every coroutine test: set up first, torn down last."""
    if pytest_asyncio.is_async_test(item):
        assert isinstance(item, pytest.Function)
        names = item.fixturenames
        names.insert(names.index("_nothing_left_behind") + 1, "_no_task_left")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that skips itself: what cannot run here is deselected by a marker, in sight of who runs the tests."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which no test may do: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def bwrap() -> str:
    """Return the path of bubblewrap; without it the test fails with the command that installs it."""
    try:
        return machine.require("bwrap")
    except machine.MissingProgramError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def docker_url() -> Iterator[str]:
    """Return the URL of a Docker Engine: the one that `DOCKER_HOST` or the usual socket leads to, else one of our own.

    Where there is none and none can be started, every test that asks fails with the command to run.
    """
    if url := find_engine():
        yield url
        return
    with _started(PrivateEngine()) as engine:
        yield engine.url
    assert engine_keeper.leftovers(engine.folder) == []


@pytest.fixture(scope="session")
def images(docker_url: str) -> Iterator[Images]:
    """The images of the tests, made when they are first asked for; in an engine of others they are removed."""
    made = Images(EngineApi(docker_url), uuid.uuid4().hex[:12])
    yield made
    made.remove()


@pytest.fixture
def private_engine() -> Iterator[Callable[..., PrivateEngine]]:
    """Return a function that starts a Docker Engine that the test may kill: `private_engine(live_restore=True)`."""
    started: list[PrivateEngine] = []

    def start(*, live_restore: bool = False) -> PrivateEngine:
        started.append(_started(PrivateEngine(live_restore=live_restore)))
        return started[-1]

    yield start
    close_all(started)
    assert [each for engine in started for each in engine_keeper.leftovers(engine.folder)] == []


def _started(engine: PrivateEngine) -> PrivateEngine:
    try:
        engine.start()
    except NoEngineError as error:
        engine.close()
        pytest.fail(str(error), pytrace=False)
    except BaseException:
        engine.close()
        raise
    return engine
