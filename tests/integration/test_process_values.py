"""What goes into worker processes and comes out of them, what bodies find there, and whole programs with workers."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import (
    ArgumentsError,
    DefinitionError,
    NestedActionError,
    NoSandboxError,
    Quota,
    RemoteError,
    ResultError,
    RunTimeout,
    Tangram,
    UsageError,
)
from arl_tangram.model.events import ActionEnded
from arl_tangram.testing import assert_idle
from arl_tangram.trace.sink import MemorySink
from integration import process_bodies as bodies
from integration.process_bodies import is_gone


@pytest.mark.parametrize("value", [None, 1, "text", {"a": [1, (2, 3)]}, b"x" * (3 << 20), bodies.Scorer], ids=type)
async def test_values_travel_both_ways(value: Any) -> None:
    async with Tangram() as tg:
        assert await bodies.give(value) == value
        assert_idle(tg)


async def test_making_a_result_again_does_not_hold_up_the_loop() -> None:
    """Its class has code of its own, which runs on a thread."""
    async with Tangram() as tg:
        assert (await bodies.give_made_elsewhere()).made_on != threading.get_ident()
        assert_idle(tg)


async def test_a_result_of_a_gibibyte_arrives_while_the_loop_goes_on() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    async with Tangram() as tg:
        counter = asyncio.create_task(count())
        result = await bodies.give_large(1 << 30)
        counter.cancel()
        assert len(result) == 1 << 30
        assert turns > 100
        assert_idle(tg)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("own"), "own"),
        (KeyError("key"), "'key'"),
        (tangram.QueueTimeout("mine"), "mine"),
        (OSError(2, "no"), "no"),
    ],
    ids=repr,
)
async def test_what_a_body_raises_arrives_as_itself_with_its_traceback(error: Exception, text: str) -> None:
    async with Tangram() as tg:
        with pytest.raises(type(error), match=text) as caught:
            await bodies.throw(error)
        assert caught.value.args == error.args
        assert "in throw" in str(caught.value.__cause__)
        assert_idle(tg)


async def test_the_cause_of_an_error_is_told() -> None:
    async with Tangram():
        with pytest.raises(ValueError, match="second") as caught:
            await bodies.throw_from()
        assert "KeyError: 'first'" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("kind", "args", "text"),
    [
        (bodies.Unmade, ("one", "two"), "why"),
        (bodies.Unpicklable, ("why",), "why"),
        (bodies.Untold, (), "its text cannot be told"),
        (SystemExit, (3,), "3"),
        (KeyboardInterrupt, (), ""),
        (GeneratorExit, (), ""),
        (StopIteration, (1,), "1"),
        (asyncio.CancelledError, (), ""),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_case_28_what_cannot_be_raised_here_arrives_as_text(
    kind: type[BaseException], args: tuple[Any, ...], text: str
) -> None:
    async with Tangram() as tg:
        pid = await bodies.identify()
        with pytest.raises((RemoteError, bodies.Untold)) as caught:
            await bodies.throw_of(kind, *args)
        if isinstance(caught.value, RemoteError):
            assert (caught.value.error, caught.value.text) == (kind.__name__, text)
            assert "in throw_of" in caught.value.traceback
            assert str(caught.value) == f"{kind.__name__}: {text}"
            assert pickle.loads(pickle.dumps(caught.value)).traceback == caught.value.traceback
        assert "in throw_of" in str(caught.value.__cause__)
        assert await bodies.identify() == pid, "the worker is as good as before"
        assert_idle(tg)


async def test_a_result_that_cannot_be_sent_or_made_again_is_a_typed_error() -> None:
    async with Tangram() as tg:
        with pytest.raises(ResultError, match=r"give_lock.*lock"):
            await bodies.give_lock()
        with pytest.raises(ResultError, match="LookupError: not here"):
            await bodies.give(bodies.RemadeOnlyOnce(os.getpid()))
        with pytest.raises(DefinitionError, match="awaitable"):
            await bodies.give_coroutine()
        assert_idle(tg)


async def test_an_argument_that_cannot_be_sent_is_told_at_the_call() -> None:
    async with Tangram() as tg:
        with pytest.raises(ArgumentsError, match=r"'value'.*lock"):
            bodies.give(value=threading.Lock()).send(None)  # before anything is queued
        assert tg.statistics().waiting == 0
        with pytest.raises(ArgumentsError, match="'_'"):
            await bodies.identify(lambda: None)
        with pytest.raises(ArgumentsError, match="LookupError: not here"):
            await bodies.give(bodies.RemadeOnlyOnce(0))
        assert_idle(tg)


async def test_arguments_are_those_of_the_moment_of_the_call() -> None:
    async with Tangram():
        items = [1]
        call = asyncio.create_task(bodies.give(items))
        await asyncio.sleep(0)
        items.append(2)
        assert await call == [1]


async def test_bodies_are_found_behind_decorators_in_classes_and_under_other_names() -> None:
    async with Tangram():
        assert await bodies.wrapped(1) == 2
        assert await bodies.wraps(1) == 3
        assert await bodies.renamed(1) == 4
        assert await bodies.Scorer(10).score(1) == 11
        assert await bodies.Scorer.static(1) == 5
        assert await bodies.identify.with_options(priority=-1)()


async def test_a_body_that_a_worker_would_not_find_is_refused() -> None:
    for function in (lambda: None, is_gone_somewhere()):
        with pytest.raises(DefinitionError, match="at the top of a module"):
            tangram.action(isolate="process")(function)
    async with Tangram() as tg:
        with pytest.raises(DefinitionError, match="its name now means"):
            await bodies.hidden()
        assert_idle(tg)


def is_gone_somewhere() -> Callable[[], None]:
    def inner() -> None:
        pass

    return inner


# Inside a body.


async def test_what_a_body_cannot_do_in_a_worker_is_told() -> None:
    async with Tangram(Quota("api", concurrency=1)) as tg:
        with pytest.raises(NestedActionError, match=r"call_another → .*identify"):
            await bodies.call_another()
        with pytest.raises(NestedActionError, match="trajectory"):
            await bodies.open_trajectory()
        with pytest.raises(UsageError, match="current_quota"):
            await bodies.ask_for_quota()
        with pytest.raises(NoSandboxError, match="no sandbox: its body runs in a worker process"):
            await bodies.ask_for_sandbox()
        assert_idle(tg)


async def test_a_grader_can_limit_itself_by_an_alarm() -> None:
    async with Tangram():
        assert [await bodies.alarmed() for _ in range(2)] == ["rang", "rang"]


async def test_what_a_body_prints_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    async with Tangram():
        await bodies.says("hello")
    assert capfd.readouterr() == ("hello\n", "hello\n")


async def test_execution_is_the_time_of_the_body_and_the_rest_is_overhead() -> None:
    sink = MemorySink()
    async with Tangram(trace=sink):
        await bodies.nap(0.1)
        with pytest.raises(RunTimeout):
            await bodies.nap.with_options(timeout=0.1)(600)
    first, second = [event.action for event in sink.events if isinstance(event, ActionEnded)]
    assert 0.1 <= first.execution_s < first.act_s
    assert first.overhead_s > 0.01, "an interpreter was started"
    assert second.execution_s >= 0.1


# Whole programs.

PROGRAM = """
import asyncio, os, signal, sys, time
import arl_tangram as tangram
from arl_tangram import Tangram

class Own:
    def __init__(self, number): self.number = number

@tangram.action(isolate="process")
def work(own): return Own(own.number + 1)

@tangram.action(isolate="process")
def tell_and_spin(path):
    with open(path + ".new", "w") as file: file.write(str(os.getpid()))
    os.rename(path + ".new", path)
    while True: pass
"""


def run(body: str, tmp_path: Path, *options: str, as_file: bool = True) -> subprocess.CompletedProcess[str]:
    text = PROGRAM + textwrap.dedent(body)
    (tmp_path / "program.py").write_text(text)
    what = [str(tmp_path / "program.py")] if as_file else ["-c", text]
    command = [sys.executable, "-W", "error", *options, *what]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


MAIN = """
async def main():
    async with Tangram():
        print((await work(Own(1))).number)
"""


def test_a_script_has_bodies_of_its_own(tmp_path: Path) -> None:
    done = run(MAIN + "\nif __name__ == '__main__':\n    asyncio.run(main())\n", tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("2\n", "", 0)


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    done = run(MAIN + "\nasyncio.run(main())\n", tmp_path)
    assert done.returncode == 1
    assert "UsageError: __main__:work: its worker process did not start" in done.stderr
    assert '`if __name__ == "__main__":`' in done.stderr
    assert done.stdout == ""


def test_a_script_without_a_guard_that_catches_errors_is_told_so_and_runs_once(tmp_path: Path) -> None:
    """It is the script's mistake: no sample is masked for it, and nothing runs again in the worker."""
    done = run(
        """
        @tangram.action()
        async def pay():
            print("paid")

        async def main():
            async with Tangram():
                await pay()
                (failed,) = await tangram.map(work, [Own(1)], on_error="return")
                print(type(failed.error).__name__)

        try:
            asyncio.run(main())
        except Exception:
            pass
        """,
        tmp_path,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("paid\nUsageError\n", "", 0)


def test_a_body_from_a_prompt_is_refused(tmp_path: Path) -> None:
    done = run(MAIN + "\nasyncio.run(main())\n", tmp_path, as_file=False)
    assert "DefinitionError" in done.stderr
    assert "interactively" in done.stderr


def test_a_trainer_that_is_killed_takes_its_workers_along(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    (tmp_path / "program.py").write_text(
        PROGRAM
        + textwrap.dedent(
            """
            async def main():
                async with Tangram():
                    await tell_and_spin(sys.argv[1])

            if __name__ == "__main__":
                asyncio.run(main())
            """
        )
    )
    trainer = subprocess.Popen([sys.executable, str(tmp_path / "program.py"), str(pid_file)])
    try:
        _wait_for(pid_file.exists)
        pid = int(pid_file.read_text())
        assert not is_gone(pid)
    finally:
        trainer.kill()
        trainer.wait()
    _wait_for(lambda: is_gone(pid))


def test_an_interrupted_program_leaves_in_time_and_no_worker(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    text = PROGRAM + textwrap.dedent(
        """
        async def main():
            async with Tangram():
                await asyncio.gather(*(tell_and_spin(sys.argv[1]) for _ in range(3)))

        if __name__ == "__main__":
            asyncio.run(main())
        """
    )
    (tmp_path / "program.py").write_text(text)
    trainer = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), str(pid_file)], stderr=subprocess.PIPE, start_new_session=True
    )
    _wait_for(pid_file.exists)
    pid = int(pid_file.read_text())
    os.killpg(trainer.pid, signal.SIGINT)
    _, told = trainer.communicate(timeout=20)
    assert trainer.returncode == -signal.SIGINT
    assert b"KeyboardInterrupt" in told
    assert is_gone(pid)


def _wait_for(condition: Callable[[], bool]) -> None:
    """The time limit of the test bounds it."""
    while not condition():
        time.sleep(0.005)
