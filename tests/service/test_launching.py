"""A server process: what it gets, what is kept of what it prints, and that nothing of it outlives its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread
import pytest
import pytest_asyncio

from arl_tangram.managers.host.owner import left_behind, started, sweep
from arl_tangram.services.servers.launching import KEPT_BYTES, Server

PYTHON = sys.executable


def program(text: str) -> list[str]:
    return [PYTHON, "-I", "-S", "-u", "-c", textwrap.dedent(text)]


async def until_printed(server: Server, words: str, times: int = 1) -> str:
    async with asyncio.timeout(20):
        while server.tail().count(words) < times:  # noqa: ASYNC110 - a foreign program
            await asyncio.sleep(0.01)
    return server.tail()


async def are_alive(*pids: int) -> list[bool]:
    return await anyio.to_thread.run_sync(lambda: [started(pid) >= 0 for pid in pids])


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[Callable[..., Server]]:
    """Return a function that makes a server, which is ended with the test."""
    made: list[Server] = []

    def make(argv: list[str], **env: str) -> Server:
        made.append(Server("judge", argv, env))
        return made[-1]

    yield make
    for server in made:
        await server.stop(0)


async def test_the_end_of_a_server_and_what_it_printed_are_told(serve: Callable[..., Server]) -> None:
    server = serve(program("import sys; print('loading'); print('no room', file=sys.stderr); sys.exit(7)"))
    await server.start()
    async with asyncio.timeout(20):
        assert await asyncio.shield(server.ended) == 7
    await server.stop(1)
    assert server.tail() == "loading\nno room"
    assert not server.is_alive
    assert server.is_gone


async def test_only_the_end_of_what_it_prints_is_kept(serve: Callable[..., Server]) -> None:
    server = serve(program("for n in range(200_000): print('line', n)\nprint('done')"))
    await server.start()
    async with asyncio.timeout(60):
        await asyncio.shield(server.ended)
    await server.stop(0)
    assert server.tail().endswith("line 199999\ndone")
    assert len(server.tail()) < KEPT_BYTES


async def test_a_server_that_ends_when_asked_is_not_killed(serve: Callable[..., Server]) -> None:
    server = serve(
        program("""
            import signal, sys, time
            signal.signal(signal.SIGTERM, lambda *_: (print('bye'), sys.exit(0)))
            print('up')
            while True: time.sleep(60)
        """)
    )
    await server.start()
    await until_printed(server, "up")
    await server.stop(20)
    assert server.ended.result() == 0
    assert server.tail().endswith("bye")


async def test_one_that_does_not_end_is_killed_with_what_has_left_its_group(serve: Callable[..., Server]) -> None:
    server = serve(
        program("""
            import os, signal, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if os.fork() == 0:
                os.setsid()
                if os.fork(): os._exit(0)
            print('pid', os.getpid())
            while True: time.sleep(60)
        """)
    )
    await server.start()
    pids = [int(line.split()[1]) for line in (await until_printed(server, "pid", times=2)).splitlines()]
    assert all(await are_alive(*pids))
    await server.stop(0.2)
    assert not any(await are_alive(*pids))
    assert server.is_gone


async def test_what_a_server_leaves_behind_when_it_ends_is_killed(serve: Callable[..., Server]) -> None:
    server = serve(
        program("""
            import os, time
            if os.fork() == 0:
                os.setsid()
                print('pid', os.getpid())
                while True: time.sleep(60)
            time.sleep(0.5)
        """)
    )
    await server.start()
    pid = int((await until_printed(server, "pid")).split()[1])
    async with asyncio.timeout(20):
        await asyncio.shield(server.ended)
    await server.stop(0)
    assert await are_alive(pid) == [False]


async def test_it_can_be_started_again_after_its_end(serve: Callable[..., Server]) -> None:
    server = serve(program("print('life'); import time; time.sleep(60)"))
    assert not server.is_alive
    await server.stop(1)  # nothing to stop
    with pytest.raises(RuntimeError, match="never started"):
        _ = server.ended
    for _ in range(2):
        await server.start()
        await server.start()  # it runs: nothing to start
        assert server.is_alive
        assert await until_printed(server, "life") == "life"
        await server.stop(0)
        assert not server.is_alive


async def test_a_program_that_is_not_there_is_told(serve: Callable[..., Server]) -> None:
    server = serve(["/no/such/program"])
    await server.start()
    async with asyncio.timeout(20):
        assert await asyncio.shield(server.ended) is None
    assert server.tail() == "'/no/such/program': No such file or directory"
    await server.stop(0)


async def test_its_environment_is_ours_without_what_is_the_trainers_own(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", "/models")
    shown = "import os; print({n: os.environ.get(n) for n in ('RANK', 'MASTER_PORT', 'TORCHELASTIC_RUN_ID', 'HF_HOME', "
    server = serve(program(shown + "'CUDA_VISIBLE_DEVICES')})"), CUDA_VISIBLE_DEVICES="GPU-1")
    await server.start()
    async with asyncio.timeout(20):
        await asyncio.shield(server.ended)
    await server.stop(0)
    told: dict[str, str | None] = eval(server.tail())
    kept = {name: value for name, value in told.items() if value is not None}
    assert kept == {"HF_HOME": "/models", "CUDA_VISIBLE_DEVICES": "GPU-1"}


async def test_a_stop_that_is_cancelled_is_finished_first(serve: Callable[..., Server]) -> None:
    server = serve(
        program("""
            import signal, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print('up')
            time.sleep(60)
        """)
    )
    await server.start()
    await until_printed(server, "up")
    stopping = asyncio.create_task(server.stop(0.3))
    await asyncio.sleep(0.05)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert server.is_gone


async def test_a_start_that_is_cancelled_leaves_nothing(serve: Callable[..., Server]) -> None:
    server = serve(program("import time; time.sleep(60)"))
    starting = asyncio.create_task(server.start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert server.is_gone
    assert not server.is_alive


async def test_a_keeper_that_is_killed_leaves_nothing(serve: Callable[..., Server]) -> None:
    server = serve(program("import os, time; print('pids', os.getpid(), os.getppid()); time.sleep(60)"))
    await server.start()
    pid, keeper = map(int, (await until_printed(server, "pids")).split()[1:])
    os.kill(keeper, signal.SIGKILL)
    async with asyncio.timeout(20):
        assert await asyncio.shield(server.ended) is None
    assert await are_alive(pid) == [False]
    await server.stop(0)


class Trainer(NamedTuple):
    """A program that has a server: the numbers of its processes."""

    program: subprocess.Popen[str]
    server: int
    keeper: int


def start_trainer(folder: Path) -> Trainer:
    script = folder / "trainer.py"
    script.write_text(
        textwrap.dedent("""
        import asyncio, sys
        from arl_tangram.services.servers.launching import Server

        async def main():
            body = "import os, time; print(f'{os.getpid()} {os.getppid()}'); time.sleep(99)"  # in one piece
            server = Server("judge", [sys.executable, "-u", "-c", body], {})
            await server.start()
            while not server.tail(): await asyncio.sleep(0.01)
            print(server.tail(), flush=True)
            await asyncio.sleep(99)

        asyncio.run(main())
        """)
    )
    program = subprocess.Popen([PYTHON, str(script)], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    server, keeper = map(int, program.stdout.readline().split())
    return Trainer(program, server, keeper)


def end(trainer: Trainer) -> None:
    trainer.program.kill()
    trainer.program.communicate()


def kill_both(trainer: Trainer) -> None:
    """Kill a trainer and the keeper, which gets no time to do its work."""
    os.kill(trainer.keeper, signal.SIGSTOP)
    end(trainer)
    os.kill(trainer.keeper, signal.SIGKILL)


def test_a_server_dies_with_its_trainer(tmp_path: Path) -> None:
    trainer = start_trainer(tmp_path)
    process = os.pidfd_open(trainer.server)
    try:
        end(trainer)
        ready, _, _ = select.select([process], [], [], 20)
        assert ready
    finally:
        os.close(process)


async def test_what_a_trainer_and_its_keeper_leave_when_both_are_killed_is_found_by_the_next_start(
    tmp_path: Path,
) -> None:
    trainer = await anyio.to_thread.run_sync(start_trainer, tmp_path)
    try:
        await anyio.to_thread.run_sync(kill_both, trainer)
        assert await are_alive(trainer.server) == [True]
        left = await anyio.to_thread.run_sync(left_behind, str(tmp_path), {})
        assert trainer.server in left.processes
        await anyio.to_thread.run_sync(sweep, str(tmp_path), {})
        assert await are_alive(trainer.server) == [False]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(trainer.server, signal.SIGKILL)
