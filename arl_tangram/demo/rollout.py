"""One trajectory of the demo: a coding agent by its script, turn by turn, and its rewards."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import arl_tangram as tangram
from arl_tangram.demo import actions
from arl_tangram.demo.agents import CheckOut, Course, Edit, Script, Search, Shell, Step
from arl_tangram.demo.playing import Watcher, in_trajectory
from arl_tangram.demo.search_api import SearchApi


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


@dataclass(frozen=True, slots=True)
class Stage:
    """What all trajectories share: the source tree, the search API and who watches."""

    folders: tuple[Path, ...]
    api: SearchApi
    watcher: Watcher


async def play(stage: Stage, script: Script, pauses: tuple[float, ...]) -> Answer:
    """Play one script in a trajectory of its own; what breaks it is part of the answer."""
    return await in_trajectory(
        lambda: _take_turns(stage, script, pauses), lambda error: Answer(script.index, error=error), stage.watcher
    )


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
