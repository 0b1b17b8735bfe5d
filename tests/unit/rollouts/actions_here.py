"""Actions that tests of rollouts find by their addresses."""

from __future__ import annotations

import asyncio
import time

import arl_tangram as tangram
from arl_tangram import SandboxLostError, current_sandbox


@tangram.action(cpu=1, timeout=5)
async def write(text: str) -> str:
    """Append a text to a file, and return which sandbox has it.

    Args:
        text: what to append.
    """
    box = current_sandbox()
    try:
        before = await box.read_file("notes")
    except FileNotFoundError:
        before = b""
    await box.write_file("notes", before + text.encode())
    return f"{box.id}:{(await box.read_file('notes')).decode()}"


@tangram.action(cpu=1, timeout=60)
async def hang(for_s: float = 1000.0) -> str:
    """Sleep."""
    await asyncio.sleep(for_s)
    return "slept"


@tangram.action(timeout=600, isolate="process")
def hang_in_a_process() -> None:
    """Sleep."""
    time.sleep(1000)


@tangram.action(cpu=1, timeout=60, queue_timeout=50)
async def lose() -> None:
    """Lose the sandbox."""
    raise SandboxLostError("the container is gone")


@tangram.action(cpu=1, timeout=60)
async def grade(answer: str, truth: str, weight: float = 1.0) -> float:
    """Compare an answer.

    Args:
        answer: what was said.
    """
    return weight * (answer == truth)


@tangram.action(cpu=1, timeout=60)
async def fail(text: str) -> None:
    """Raise an error."""
    raise KeyError(text)


@tangram.action(cpu=1)
async def endless() -> None:
    """Run without a bound."""


@tangram.action(cpu=100, timeout=1)
async def too_wide() -> None:
    """Ask for more than there is."""


class Holder:
    """Has an action."""

    def __init__(self, word: str) -> None:
        self.word = word

    @tangram.action(cpu=1, timeout=5)
    async def say(self, more: str) -> str:
        """Say a word."""
        return self.word + more


holder = Holder("hello ")
number = 7


def plain(answer: str) -> float:
    """Return nothing."""
    return 0.0
