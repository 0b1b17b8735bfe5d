"""A program that test_interrupts.py interrupts: `python interrupted.py HOST KIND GRACE_S MOMENT MARK BEGUN`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from pathlib import Path

import anyio

import arl_tangram as tangram
from arl_tangram.managers.manager import CpuManager


@tangram.action()
def thread(begun: str) -> None:
    Path(begun).touch()
    time.sleep(600)


@tangram.action(isolate="process")
def process(begun: str) -> None:
    Path(begun).touch()
    time.sleep(600)


@tangram.action(cpu=0.25)
async def command(begun: str) -> None:
    Path(begun).touch()  # noqa: ASYNC240
    await tangram.current_sandbox().exec(["sh", "-c", f"setsid sleep {sys.argv[5]} & sleep {sys.argv[5]}"])


@tangram.action()
async def deaf(begun: str) -> None:
    Path(begun).touch()  # noqa: ASYNC240
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)


class Pool:
    """A LocalPool that says when it is being opened and closed, and takes a while for it."""

    def manager(self) -> CpuManager:
        manager = tangram.LocalPool(cores=2).manager()
        start, aclose = manager.start, manager.aclose

        async def slow_start() -> None:
            print("opening", flush=True)
            await start()
            await asyncio.sleep(0.5 if sys.argv[4] == "opening" else 0)

        async def slow_aclose() -> None:
            print("closing", flush=True)
            try:
                await asyncio.sleep(0.5 if sys.argv[4] == "closing" else 0)
            finally:
                await aclose()

        manager.start, manager.aclose = slow_start, slow_aclose  # type: ignore[method-assign]
        return manager


def runtime() -> tangram.Tangram:
    return tangram.Tangram(Pool(), kill_grace_s=float(sys.argv[3]))


async def calls() -> None:
    kind, begun = sys.argv[2], Path(sys.argv[6])
    action = {"thread": thread, "process": process, "command": command, "deaf": deaf}.get(kind)
    if action is not None:

        async def rollout(number: int) -> None:
            async with tangram.trajectory():
                await action(str(begun / str(number)))

        await asyncio.gather(*map(rollout, range(4)))


async def main() -> None:
    async with runtime():
        await calls()


def with_() -> None:
    with runtime() as tg:
        tg.wait(calls())


def run_sync() -> None:
    action = {"thread": thread, "process": process, "deaf": deaf}[sys.argv[2]]
    with runtime():
        tangram.run_sync(action, str(Path(sys.argv[6]) / "0"))


HOSTS = {
    "asyncio": lambda: asyncio.run(main()),
    "anyio": lambda: anyio.run(main),
    "with": with_,
    "run_sync": run_sync,
}

if __name__ == "__main__":
    if sys.argv[4] == "terminated":
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    HOSTS[sys.argv[1]]()
