"""Actions that run commands in Docker containers, and what the tests see of the containers from outside."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import arl_tangram as tangram
from arl_tangram import DockerPool, ExecResult, Tangram
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.testing import assert_idle
from cases.settled import timers
from contract.sandbox_contract import mark, processes, until_there_is
from docker_engine import EngineApi
from integration.docker_managers import own_containers


@tangram.action(cpu=1)
async def command(*argv: str, **options: Any) -> ExecResult:
    """Run a command with one core."""
    return await tangram.current_sandbox().exec(argv, **options)


@tangram.action(cpu=2)
async def command_on_two(*argv: str, **options: Any) -> ExecResult:
    """Run a command with two cores."""
    return await tangram.current_sandbox().exec(argv, **options)


@tangram.action(cpu=1)
async def container() -> DockerSandbox:
    """Return the sandbox of the trajectory, to look at from outside."""
    box = tangram.current_sandbox()
    assert isinstance(box, DockerSandbox)
    return box


async def rollout(*argv: str, image: str | None = None, **options: Any) -> ExecResult:
    """Run one command in a trajectory of its own."""
    async with tangram.trajectory(image=image):
        return await command(*argv, **options)


# Processes that fork, leave their session, fork twice and clear their environment.
EVERYWHERE = "sleep {0} & setsid sleep {0} & env -i setsid sleep {0} & (setsid sleep {0} &); sleep {0}"


@dataclass
class Cancels:
    """What came of cancelling commands at random moments.

    Attributes:
        survivors: processes that were there afterwards.
        unusable: sandboxes that did not run the next command.
        containers: in which it was.
    """

    survivors: int = 0
    unusable: int = 0
    containers: list[str] = field(default_factory=list[str])


async def cancel_at_random(cancels: int, boxes: int, seed: int) -> Cancels:
    """Cancel commands at random moments, in several sandboxes side by side."""
    found, generator = Cancels(), random.Random(seed)

    async def in_one_box() -> None:
        async with tangram.trajectory():
            found.containers.append((await container()).container.id)
            for _ in range(cancels // boxes):
                mine = mark()
                running = asyncio.ensure_future(command("sh", "-c", EVERYWHERE.format(mine)))
                if generator.random() < 0.5:
                    await until_there_is(f"sleep\0{mine}")
                await asyncio.sleep(generator.random() * 0.3)
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
                found.survivors += len(processes(f"sleep\0{mine}"))
                found.unusable += (await command("echo", "on")).stdout != b"on\n"

    async with asyncio.TaskGroup() as side_by_side:
        for _ in range(boxes):
            side_by_side.create_task(in_one_box())
    return found


@asynccontextmanager
async def docker_runtime(url: str, image: str | None, **options: Any) -> AsyncIterator[Tangram]:
    """Open a runtime of two cores of an engine; at its end all must be idle, and no container or timer may be left."""
    before = set(timers())
    async with Tangram(DockerPool(**({"url": url, "image": image, "cores": 2, "memory_gib": 1} | options))) as tg:
        yield tg
        await until(lambda: tg.statistics().running == 0)
        assert_idle(tg)
    left = set(timers()) - before
    assert not left, f"timers are still set after the end: {left}"
    assert await asyncio.to_thread(own_containers, url) == [], "containers were left"


async def until(condition: Callable[[], object], limit_s: float = 60) -> float:
    """Wait until something holds that nobody announces; return how long that took."""
    started_s = time.monotonic()
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - it is the engine's, or the kernel's
            await asyncio.sleep(0.01)
    return time.monotonic() - started_s


async def cores_back_s(tg: Tangram, since_s: float) -> float:
    """Wait until all cores are free; return how long after a moment that was."""
    await until(lambda: tg.statistics().dimensions["cpu"].used == 0)
    return time.monotonic() - since_s


async def engine_call(url: str, method: str, path: str) -> bytes:
    """Ask an engine for something, beside the code that is tested."""
    return await asyncio.to_thread(EngineApi(url).call, method, path)
