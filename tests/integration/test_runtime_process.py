"""Programs that end, are interrupted or fork while actions run: exit in time, with nothing but what is documented."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

HEAD = """
import asyncio, contextvars, os, sys, threading, time
import arl_tangram as tangram
from arl_tangram import Tangram
from arl_tangram.testing import FakePool, assert_idle

# With -X dev, asyncio would tell of turns that take long, as they do on a busy machine.
asyncio.BaseEventLoop.slow_callback_duration = property(lambda loop: 60, lambda loop, value: None)

@tangram.action(cpu=1)
def stuck():
    time.sleep(600)

@tangram.action(cpu=1)
async def work(for_s=0.0):
    await asyncio.sleep(for_s)
    return "done"

async def started(tg, number):
    while tg.statistics().running < number:
        await asyncio.sleep(0.001)
"""


def program(body: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(HEAD + textwrap.dedent(body))
    return [sys.executable, "-X", "dev", "-W", "error", str(path)]


def run(body: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(program(body, tmp_path), capture_output=True, text=True, timeout=20, check=False)


def test_case_49_a_stuck_thread_does_not_block_the_exit(tmp_path: Path) -> None:
    done = run(
        """
        async def main():
            async with Tangram(FakePool()) as tg:
                calls = [asyncio.create_task(stuck()) for _ in range(2)]
                await started(tg, 2)
                global left_at_s
                left_at_s = time.monotonic()
            print([type(r).__name__ for r in await asyncio.gather(*calls, return_exceptions=True)])

        asyncio.run(main())
        print(time.monotonic() - left_at_s < 2)
        sys.stdout.flush()
        """,
        tmp_path,
    )
    assert done.returncode == 0
    assert done.stdout.split("\n")[:2] == ["['ShutdownError', 'ShutdownError']", "True"]
    assert done.stderr.splitlines() == ["__main__:stuck outlives the runtime; what it runs was not ended"] * 2


def test_case_49_a_thread_that_ends_after_the_loop_says_nothing(tmp_path: Path) -> None:
    done = run(
        """
        ended = threading.Event()

        @tangram.action()
        def late():
            time.sleep(0.3)
            ended.set()

        async def main():
            async with Tangram() as tg:
                call = asyncio.create_task(late())
                await started(tg, 1)
            await asyncio.gather(call, return_exceptions=True)

        asyncio.run(main())
        assert not ended.is_set()
        assert ended.wait(10)
        time.sleep(0.1)
        """,
        tmp_path,
    )
    assert done.returncode == 0
    assert done.stderr.splitlines() == ["__main__:late outlives the runtime; what it runs was not ended"]


def test_a_program_without_leftovers_says_nothing(tmp_path: Path) -> None:
    done = run(
        """
        async def main():
            async with Tangram(FakePool()) as tg:
                async with tangram.trajectory():
                    assert await tangram.map(work, [0, 0.01, 0.02]) == ["done"] * 3
                assert_idle(tg)

        asyncio.run(main())
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("kind", ["stuck()", "work(600)"])
def test_case_30_the_first_interrupt_ends_the_program(kind: str, tmp_path: Path) -> None:
    """Ctrl-C in `asyncio.run` while four actions run and two wait."""
    body = f"""
    async def main():
        async with Tangram(FakePool(cores=4), kill_grace_s=1) as tg:
            calls = [asyncio.create_task({kind}) for _ in range(6)]
            try:
                await started(tg, 4)
                print("ready", flush=True)
                await asyncio.gather(*calls)
            finally:
                print("leaving", flush=True)
        print("not reached")

    try:
        asyncio.run(main())
    finally:
        print("out", flush=True)
    """
    process = subprocess.Popen(program(body, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        begun_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert time.monotonic() - begun_s < 10
    assert process.returncode == -signal.SIGINT, "as a shell sees it: 130"
    assert output == "leaving\nout\n"
    assert "KeyboardInterrupt" in errors
    assert "Task was destroyed" not in errors
    assert "loop is closed" not in errors


def test_case_43_a_forked_child_is_refused_and_its_parent_is_not_disturbed(tmp_path: Path) -> None:
    """The child must not end what belongs to its parent, and may open a runtime of its own."""
    done = run(
        """
        from arl_tangram import ForkedRuntimeError

        def attempt(call):
            try:
                asyncio.run(call())
            except ForkedRuntimeError as error:
                return "ForkedRuntimeError"
            return "no error"

        async def own():
            async with Tangram(FakePool()):
                assert await work() == "done"
                assert await asyncio.get_running_loop().create_task(work(), context=contextvars.Context()) == "done"

        def in_child(tg):
            async def explicit():
                await tg.run(work)
            async def implicit():
                await work()
            async def lost_context():
                await asyncio.get_running_loop().create_task(work(), context=contextvars.Context())
            said = [attempt(call) for call in (explicit, implicit, lost_context)]
            asyncio.run(own())
            asyncio.run(tg.aclose())
            return said

        async def main():
            async with Tangram(FakePool()) as tg:
                async with tangram.trajectory():
                    running = asyncio.create_task(work(0.2))
                    await started(tg, 1)
                    read, write = os.pipe()
                    pid = os.fork()
                    if pid == 0:
                        code = 1
                        try:
                            os.write(write, repr(in_child(tg)).encode())
                            code = 0
                        finally:
                            os._exit(code)
                    os.close(write)
                    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
                    print(os.waitstatus_to_exitcode(status), os.read(read, 1000).decode())
                    os.close(read)
                    assert await running == "done"
                    assert await work() == "done"
                assert_idle(tg)

        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # fork in a process that has threads
        asyncio.run(main())
        """,
        tmp_path,
    )
    assert done.stderr == ""
    assert done.stdout == "0 ['ForkedRuntimeError', 'ForkedRuntimeError', 'ForkedRuntimeError']\n"
    assert done.returncode == 0


def test_a_program_that_forgets_to_close_ends_all_the_same(tmp_path: Path) -> None:
    """`asyncio.run` cancels what is left; a stuck thread must not hold that up."""
    done = run(
        """
        async def main():
            tg = await Tangram(FakePool()).__aenter__()
            asyncio.create_task(work(600))
            asyncio.create_task(stuck())
            await started(tg, 2)

        asyncio.run(main())
        print("out")
        """,
        tmp_path,
    )
    assert done.stdout == "out\n"
    assert done.returncode == 0
    assert "loop is closed" not in done.stderr
    assert "Task was destroyed" not in done.stderr


def test_the_environment_of_these_tests_is_the_package_under_test() -> None:
    import arl_tangram

    code = "import arl_tangram; print(arl_tangram.__file__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert os.path.samefile(done.stdout.strip(), arl_tangram.__file__)
