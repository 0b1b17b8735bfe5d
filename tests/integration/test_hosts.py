"""The runtime in the programs that people have: servers, notebooks, tests, threads, scripts, and forked children."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

import arl_tangram as tangram
from arl_tangram import NestedActionError, Tangram
from arl_tangram.testing import assert_idle

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


class InUse:
    """Counts the bodies that run at once, whatever thread they run on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0
        self.calls = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self._now += 1
            self.calls += 1
            self.most = max(self.most, self._now)
        try:
            yield
        finally:
            with self._lock:
                self._now -= 1


def run(script: str, *arguments: str, folder: Path, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    return subprocess.run(
        [sys.executable, script, *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def program(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "program.py"
    script.write_text(text)
    return run(str(script), folder=tmp_path)


# Threads and loops.


@pytest.mark.parametrize("owner", ["async with", "with"])
def test_case_41_two_loops_in_two_threads_share_one_pool(owner: str) -> None:
    used = InUse()

    @tangram.action(cpu=1)
    async def act(x: int) -> int:
        with used.counted():
            await asyncio.sleep(0.0002)
        return x

    async def calls() -> list[int]:
        return await asyncio.gather(*(tangram.run(act, x) for x in range(200)))

    def both() -> None:
        with ThreadPoolExecutor(2) as threads:
            results = list(threads.map(lambda _: asyncio.run(calls()), range(2)))
        assert results == [list(range(200))] * 2

    async def main() -> None:
        async with Tangram(tangram.LocalPool(cores=2)) as tg:
            await asyncio.to_thread(both)
            assert_idle(tg)

    if owner == "async with":
        asyncio.run(main())
    else:
        with Tangram(tangram.LocalPool(cores=2)) as tg:
            both()
            assert_idle(tg)
    assert used.calls == 400
    assert used.most == 2


def test_case_41_callers_without_a_loop_share_it_too() -> None:
    used = InUse()

    @tangram.action(cpu=1)
    def on_thread(x: int) -> int:
        with used.counted():
            time.sleep(0.005)
        return 2 * x

    @tangram.action(cpu=1)
    async def on_loop(x: int) -> int:
        with used.counted():
            await asyncio.sleep(0.005)
        return 2 * x

    def rollout(x: int) -> int:
        with tangram.trajectory():
            return tangram.run_sync(on_thread, tangram.run_sync(on_loop, x))

    with ThreadPoolExecutor(8) as threads, Tangram(tangram.LocalPool(cores=2)) as tg:
        assert list(threads.map(rollout, range(40))) == [4 * x for x in range(40)]
        assert_idle(tg)
    assert used.calls == 80
    assert used.most == 2


def test_case_47_each_call_is_one_of_its_own() -> None:
    """The same task, the same arguments, one action in another: nothing is identified by who asks."""

    @tangram.action(cpu=1)
    async def child(x: int) -> int:
        return x + 1

    @tangram.action(cpu=1)
    async def parent(x: int) -> int:
        return await child(x) + await child(x)

    @tangram.action(cpu=1)
    def on_thread(x: int) -> int:
        return tangram.run_sync(child, x) + tangram.run_sync(child, x)

    async def same_task() -> list[int]:
        first, second = child(1), child(1)
        return [await second, await first, *(await asyncio.gather(child(1), child(1), parent(1), on_thread(1)))]

    with Tangram(tangram.LocalPool(cores=1)) as tg:
        assert tg.wait(same_task()) == [2, 2, 2, 2, 4, 4]
        assert asyncio.run(same_task()) == [2, 2, 2, 2, 4, 4]
        assert tangram.run_sync(on_thread, 1) == 4
        assert_idle(tg)


def test_a_call_from_a_thread_body_is_nested() -> None:
    """The body of a thread calls through another thread's loop, and is still its action."""

    @tangram.action(memory_gib=1)
    def child() -> str:
        return "had"

    @tangram.action(memory_gib=1)
    def parent() -> str:
        return tangram.run_sync(child)

    with Tangram(tangram.LocalPool(cores=1, memory_gib=1)) as tg:
        with pytest.raises(NestedActionError, match=r"parent → .*child"):
            tangram.run_sync(parent)
        assert_idle(tg)


FORK = """
import asyncio, os, sys, time
import arl_tangram as tangram

@tangram.action(cpu=1)
async def act(x):
    return x

def in_child(tg):
    began_s = time.monotonic()
    for call in (
        lambda: tangram.run_sync(act, 1), lambda: tg.run_sync(act, 1), lambda: asyncio.run(tangram.run(act, 1)),
        lambda: asyncio.run(tg.run(act, 1)), lambda: tg.wait(act(1)), lambda: tg.trajectory(), tg.statistics, tg.pause,
    ):
        try:
            call()
        except tangram.ForkedRuntimeError:
            pass
        else:
            return 1
    asyncio.run(tg.aclose())
    with tangram.Tangram(tangram.LocalPool(cores=1)) as own:
        assert own.run_sync(act, 7) == 7
    return 0 if time.monotonic() - began_s < 5 else 2

with tangram.Tangram(tangram.LocalPool(cores=2)) as tg:
    with tangram.trajectory():
        assert tangram.run_sync(act, 1) == 1
        pid = os.fork()
        if pid == 0:
            sys.exit(in_child(tg))  # leaves both blocks
        assert os.waitpid(pid, 0)[1] == 0
        assert tangram.run_sync(act, 2) == 2
    assert tg.statistics().trajectories == 0
    assert all(d.used == 0 for d in tg.statistics().dimensions.values())
print("parent done")
"""


def test_case_43_a_forked_child_is_refused_at_once_and_the_parent_goes_on(tmp_path: Path) -> None:
    done = program(tmp_path, FORK)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "parent done\n")


def test_a_synchronous_script(tmp_path: Path) -> None:
    script = """
import arl_tangram as tangram

@tangram.action(cpu=1)
async def python(program):
    done = await tangram.current_sandbox().exec(["python3", "-c", program])
    return done.stdout.decode().strip()

@tangram.action(cpu=1, isolate="process")
def score(text):
    return float(text == "42")

if __name__ == "__main__":
    with tangram.Tangram(tangram.LocalPool(cores=2)) as tg:
        with tangram.trajectory():
            print(score.body("42"), tangram.run_sync(score, tangram.run_sync(python, "print(6 * 7)")))
        print(tg.wait(tangram.map(score, ["42", "43"])))
"""
    done = program(tmp_path, script)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "1.0 1.0\n[1.0, 0.0]\n")


# A web server.


def test_a_fastapi_application_opens_it_in_its_lifespan() -> None:
    used = InUse()
    begun = threading.Event()
    seen: Counter[str] = Counter()

    @tangram.action(cpu=1)
    async def on_loop(x: int) -> int:
        with used.counted():
            await asyncio.sleep(0.01)
        return 2 * x

    @tangram.action(cpu=1)
    def on_thread(x: int) -> int:
        with used.counted():
            return 2 * x

    @tangram.action()
    async def long() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            seen["ended"] += 1

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with Tangram(tangram.LocalPool(cores=2)) as tg:
            app.state.tg = tg
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/await/{x}")
    async def awaited(x: int) -> int:
        return await on_loop(x)

    @app.get("/block/{x}")
    def blocking(x: int) -> int:  # on a thread of the server
        with tangram.trajectory():
            return tangram.run_sync(on_thread, x) + tangram.run_sync(on_loop, x)

    @app.get("/statistics")
    def statistics() -> dict[str, float]:
        return {name: d.used for name, d in app.state.tg.statistics().dimensions.items()}

    @app.get("/long")
    async def start() -> None:
        app.state.long = asyncio.create_task(long())

    with TestClient(app) as client, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda x: client.get(f"/await/{x}").json(), range(20)))
        assert answers == [2 * x for x in range(20)]
        answers = list(threads.map(lambda x: client.get(f"/block/{x}").json(), range(20)))
        assert answers == [4 * x for x in range(20)]
        assert client.get("/statistics").json()["cpu"] == 0
        client.get("/long")
        assert begun.wait(10)
    assert seen == {"ended": 1}
    assert used.most == 2
    assert not app.state.tg.is_open
    assert isinstance(app.state.long.exception(), tangram.ShutdownError)


# A notebook.


def test_a_notebook_opens_it_in_one_cell_and_closes_it_in_another(tmp_path: Path) -> None:
    done = run(str(HERE / "notebook_program.py"), folder=tmp_path, timeout_s=100)
    assert done.returncode == 0, done.stderr
    opened, used, inside, blocked, endless, looked, again, thread, closed, *second = json.loads(done.stdout)
    assert opened == ""
    assert used == again == "(8, 10, [2, 4])"
    assert inside == "16"
    assert "await it instead" in blocked
    assert endless in {"CancelledError", "KeyboardInterrupt"}
    assert looked == "(0, 0, True)"
    assert thread == "18"
    assert closed == "False"
    assert second == ["", "(8, 10, [2, 4])", "False"]


# Tests.

OPTIONS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""
CONFTEST = """
import pytest, pytest_asyncio
import arl_tangram as tangram
from arl_tangram.testing import FakePool, assert_idle

@pytest_asyncio.fixture
async def function_tg():
    async with tangram.Tangram(FakePool()) as tg:
        yield tg
        assert_idle(tg)

@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def session_tg():
    async with tangram.Tangram(FakePool()) as tg:
        yield tg
        assert_idle(tg)

@pytest.fixture(scope="session")
def sync_tg():
    with tangram.Tangram(FakePool()) as tg:
        yield tg
        assert_idle(tg)
"""
TESTS = """
import asyncio
import pytest
import arl_tangram as tangram

@tangram.action(cpu=1)
async def act(x):
    return x

@pytest.mark.parametrize("x", range(3))
async def test_function_scope(function_tg, x):
    assert await act(x) == x
    assert await function_tg.run(act, x) == x

@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("x", range(3))
async def test_session_scope(session_tg, x):
    assert await session_tg.run(act, x) == x

def test_synchronous(sync_tg):
    assert sync_tg.run_sync(act, 1) == 1
    with sync_tg.trajectory():
        assert sync_tg.run_sync(act, 1) == 1

async def test_from_the_loop_of_a_test(sync_tg):
    assert await sync_tg.run(act, 1) == 1
    assert await asyncio.gather(*(sync_tg.run(act, x) for x in range(5))) == list(range(5))

async def test_a_session_loop_that_stands_still_is_no_place(session_tg):
    with pytest.raises(tangram.WrongLoopError, match="does not run"):
        await session_tg.run(act, 1)
"""


def test_fixtures_of_function_and_session_scope(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(OPTIONS)
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout
