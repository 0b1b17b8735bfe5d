"""Play scripts: all at once or one after another, each in a trajectory; one that breaks is an answer, too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import arl_tangram as tangram
from arl_tangram.demo.thinking import Thinking

S = TypeVar("S")
A = TypeVar("A")
Play: TypeAlias = Callable[[S, tuple[float, ...]], Coroutine[Any, Any, A]]
"""Plays one script, with the seconds that its model thinks before each turn."""


class Watcher(Protocol):
    """Who wants to see the rollout while it goes on."""

    def call_ended(self) -> None:
        """One more call has its answer."""
        ...

    def trajectory_ended(self) -> None:
        """One more trajectory has its rewards."""
        ...


async def at_once(play: Play[S, A], scripts: Sequence[S], thinking: Thinking) -> tuple[tuple[A, ...], float]:
    """Play all scripts at once on the current runtime.

    Returns:
        The answers in the order of the scripts, and the seconds until the last trajectory ended.
    """
    began_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(play(s, t)) for s, t in zip(scripts, thinking, strict=True)]
    return tuple(task.result() for task in tasks), time.perf_counter() - began_s


async def in_turn(play: Play[S, A], scripts: Sequence[S], thinking: Thinking) -> tuple[tuple[A, ...], float]:
    """Play the scripts one after another, each alone; returns the same as `at_once`."""
    began_s = time.perf_counter()
    answers = [await play(s, t) for s, t in zip(scripts, thinking, strict=True)]
    return tuple(answers), time.perf_counter() - began_s


async def in_trajectory(
    take_turns: Callable[[], Coroutine[Any, Any, A]], broken: Callable[[str], A], watcher: Watcher
) -> A:
    """Take the turns of a script in a trajectory of its own; `broken` makes an answer of the error that ended it."""
    try:
        async with tangram.trajectory():
            answer = await take_turns()
    except Exception as error:  # noqa: BLE001 - the others go on, and the demo fails at the end
        answer = broken(f"{type(error).__name__}: {error}")
    watcher.trajectory_ended()
    return answer
