"""Actions that tests of trainers name by their address, as a trainer's files do."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Literal, TypedDict

import arl_tangram as tangram

THREADS: set[str] = set()  # on which bodies ran


@dataclass(frozen=True)
class Place:
    """A place.

    Attributes:
        name: what it is called.
        tags: words for it.
    """

    name: str
    tags: list[str]


@tangram.action(cpu=1, timeout=60)
async def note(line: str) -> str:
    """Write a line down, and return all that were written.

    Args:
        line: what to write.
    """
    done = await tangram.current_sandbox().exec(["sh", "-c", 'echo "$0" >> notes; cat notes', line])
    return done.stdout.decode().strip()


@tangram.action(cpu=1, timeout=60)
async def prepare(raw_prompt: list[dict[str, str]]) -> None:
    """Write the question down, before the first turn."""
    await note.body(raw_prompt[-1]["content"])


@tangram.action(cpu=1, timeout=60)
async def count_notes(answer: str, ground_truth: str) -> dict[str, float]:
    """Score an answer in the sandbox where the notes are."""
    done = await tangram.current_sandbox().exec(["wc", "-l", "notes"])
    return {"score": float(ground_truth in answer), "lines": float(done.stdout.split()[0])}


@tangram.action(cpu=1, timeout=60)
async def run(command: str) -> str:
    """Run a command.

    Args:
        command: for the shell.
    """
    return (await tangram.current_sandbox().exec(["sh", "-c", command])).stdout.decode()


@tangram.action(cpu=1, timeout=60)
async def add(a: int, b: int = 1) -> dict[str, int]:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return {"sum": a + b}


@tangram.action(cpu=1, timeout=60)
async def told(question: str, secret: str, size: int = 3) -> str:
    """Say what was told.

    Args:
        question: from the model.
        secret: from the dataset.
        size: from the dataset, if it says so.
    """
    return f"{question} {secret} {size}"


@tangram.action(cpu=1, timeout=60)
async def perhaps_told(secret: str | None) -> str:
    """Say what was told, if anything.

    Args:
        secret: from the dataset.
    """
    return str(secret)


@tangram.action(cpu=1, timeout=60)
async def perhaps(
    text: str | None = None,
    count: int | None = None,
    sure: bool | None = None,
    kind: Literal["old", "new"] | None = None,
    either: Literal["a"] | Literal["b"] = "a",  # noqa: PYI030 - a union of one type
    number: int | str | None = None,
) -> list[str | int | bool | None]:
    """Say what was said.

    Args:
        text: any.
        count: any.
        sure: any.
        kind: which.
        either: one.
        number: any.
    """
    return [text, count, sure, kind]


@tangram.action(cpu=1, timeout=60)
async def search(places: list[Place], kind: Literal["old", "new"], near: dict[str, float] | None = None) -> int:
    """Look for places.

    Args:
        places: where to look.
        kind: which ones.
        near: how near, by name.
    """
    assert all(isinstance(place, Place) for place in places)
    return len(places)


@tangram.action(timeout=60)
def where() -> str:
    """Say where it runs."""
    THREADS.add(threading.current_thread().name)
    return "here"


@tangram.action(cpu=1)
async def endless() -> None:
    """Take any time."""


@tangram.action(cpu=1, timeout=60)
async def odd(value: object) -> None:
    """Take what no schema can express.

    Args:
        value: anything.
    """


@tangram.action(cpu=1, timeout=60)
async def fails(how: str) -> None:
    """Fail.

    Args:
        how: the name of an error.
    """
    errors = {
        "ValueError": ValueError("no such thing"),
        "OutOfMemoryError": tangram.OutOfMemoryError("the container of sandbox 7 ran out of memory"),
        "BodyExitedError": tangram.BodyExitedError("process 4242 exited with 3", exit_code=3),
        "SandboxLostError": tangram.SandboxLostError("container 0123abcd is gone"),
    }
    raise errors[how]


@tangram.action(cpu=1, timeout=60)
async def lost() -> float:
    """End as the infrastructure does."""
    raise tangram.SandboxLostError("container 0123abcd is gone")


@tangram.action(cpu=1, timeout=60)
async def scored_in_sandbox() -> float:
    """Score in a sandbox."""
    return float(bool(tangram.current_sandbox().id))


@tangram.action(cpu=1, timeout=60)
async def as_number(answer: str) -> float:
    """Score an answer by what it says."""
    return float(answer)


class Counted(TypedDict):
    """What `counted` says of an answer."""

    score: float
    acc: float


@tangram.action(cpu=1, timeout=60)
def counted(answer: str, ground_truth: str) -> Counted:
    """Compare two numbers."""
    right = float(int(answer) == int(ground_truth))
    return {"score": right, "acc": right}


begin = asyncio.Event()
gate = threading.Event()


@tangram.action(cpu=1, timeout=60)
async def wait() -> None:
    """Wait for good."""
    begin.set()
    await asyncio.Event().wait()


@tangram.action(cpu=1)
async def hold(held: asyncio.Event, end: asyncio.Event) -> None:
    """Hold a core until told."""
    held.set()
    await end.wait()


@tangram.action(timeout=60)
def block() -> str:
    """Hold a thread until told."""
    assert gate.wait(50)
    return "open"


@tangram.action(cpu=1, timeout=0.05)
async def slow() -> float:
    """Take any time."""
    await asyncio.Event().wait()
    return 1.0
