"""Play the scripts: all trajectories at once on one runtime, under one policy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import arl_tangram as tangram
from arl_tangram.demo import actions
from arl_tangram.demo.agents import CheckOut, Course, Edit, Script, Search, Shell, Step
from arl_tangram.demo.search_api import SearchApi
from arl_tangram.demo.thinking import Thinking


@dataclass(frozen=True, slots=True)
class Answer:
    """What a trajectory came to; the same under every policy, or the demo has failed.

    Attributes:
        index: the trajectory's number.
        results: what each of its calls returned, in order: exit codes and numbers of hits.
        similarity: the first reward, 0 to 1.
        passed: the last reward, the share of test files that passed.
        error: the error that ended it early, or None.
    """

    index: int
    results: tuple[int, ...] = ()
    similarity: float = 0.0
    passed: float = 0.0
    error: str | None = None


class Watcher(Protocol):
    """Who wants to see the rollout while it goes on."""

    def call_ended(self) -> None:
        """One more call has its answer."""
        ...

    def trajectory_ended(self) -> None:
        """One more trajectory has its rewards."""
        ...


@dataclass(frozen=True, slots=True)
class Stage:
    """What all trajectories share: the source tree, the search API and who watches."""

    folders: tuple[Path, ...]
    api: SearchApi
    watcher: Watcher


async def play_all(stage: Stage, scripts: Sequence[Script], thinking: Thinking) -> tuple[tuple[Answer, ...], float]:
    """Play all scripts at once on the current runtime.

    Returns:
        The answers in the order of the scripts, and the seconds until the last trajectory ended.
    """
    began_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_play(stage, s, t)) for s, t in zip(scripts, thinking, strict=True)]
    return tuple(task.result() for task in tasks), time.perf_counter() - began_s


async def play_in_turn(stage: Stage, scripts: Sequence[Script], thinking: Thinking) -> tuple[tuple[Answer, ...], float]:
    """Play the scripts one after another, each alone; returns the same as `play_all`."""
    began_s = time.perf_counter()
    answers = [await _play(stage, s, t) for s, t in zip(scripts, thinking, strict=True)]
    return tuple(answers), time.perf_counter() - began_s


async def _play(stage: Stage, script: Script, pauses: tuple[float, ...]) -> Answer:
    try:
        async with tangram.trajectory():
            answer = await _take_turns(stage, script, pauses)
    except Exception as error:  # noqa: BLE001 - a broken trajectory is an answer, too: the others go on, the demo fails
        answer = Answer(script.index, error=f"{type(error).__name__}: {error}")
    stage.watcher.trajectory_ended()
    return answer


async def _take_turns(stage: Stage, script: Script, pauses: tuple[float, ...]) -> Answer:
    results: list[int] = []
    for turn, pause_s in zip(script.turns, pauses, strict=True):
        await asyncio.sleep(pause_s)  # the model thinks
        for step in turn.steps:
            results.append(await _perform(stage, step))
            stage.watcher.call_ended()
    similarity = await tangram.run(actions.similarity, script.patch, script.reference)
    stage.watcher.call_ended()
    passed = await tangram.run(actions.run_suite, script.suite)
    stage.watcher.call_ended()
    return Answer(script.index, tuple(results), similarity, passed)


async def _perform(stage: Stage, step: Step) -> int:
    match step:
        case CheckOut():
            await tangram.run(actions.check_out, stage.folders)
            return 0
        case Shell():
            return await tangram.run(actions.shell, step.kind, step.command)
        case Edit():
            return await tangram.run(actions.edit, step.path, step.old, step.new)
        case Search():
            return await _search(stage.api, step.query)


async def _search(api: SearchApi, query: str) -> int:
    while True:
        hits = await tangram.run(actions.search, api, query)
        if hits is not None:
            return hits


def faults_of(script: Script, answer: Answer) -> str | None:
    """Say what is wrong with an answer by itself, or None: a right patch passes all tests, a wrong one does not."""
    if answer.error is not None:
        return f"trajectory {script.index} broke: {answer.error}"
    if (answer.passed == 1) != (script.course is not Course.WRONG):
        return (
            f"trajectory {script.index} ({script.function}, {script.course}): {answer.passed:.0%} of "
            f"{', '.join(script.suite)} passed; do numpy's own tests pass here?"
        )
    return None
