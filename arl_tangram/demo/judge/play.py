"""Play the scripts of `demo --judge`: all trajectories at once, with one way of placing the services."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import arl_tangram as tangram
from arl_tangram.demo import actions
from arl_tangram.demo.agents import Search, Shell
from arl_tangram.demo.judge.answers import JudgedAnswer, Score
from arl_tangram.demo.judge.catalogue import ServiceName
from arl_tangram.demo.judge.scripts import JudgedScript, Scored, Text
from arl_tangram.demo.rollout import Watcher
from arl_tangram.demo.search_api import SearchApi
from arl_tangram.demo.thinking import Thinking

_T = TypeVar("_T")


class Placement(Protocol):
    """The services, however they are placed."""

    async def score(self, service: ServiceName, text: Text) -> Score:
        """Score a text with a service."""
        ...


@dataclass(slots=True)
class Stage:
    """What all trajectories share.

    Attributes:
        folders: what is copied into the sandboxes.
        api: the search API.
        placement: the services.
        watcher: who watches.
        tools_s: how long each call of a tool took, as its trajectory saw it.
        scores_s: how long each score took.
    """

    folders: tuple[Path, ...]
    api: SearchApi
    placement: Placement
    watcher: Watcher
    tools_s: list[float] = field(default_factory=list[float])
    scores_s: list[float] = field(default_factory=list[float])


async def play_all(
    stage: Stage, scripts: Sequence[JudgedScript], thinking: Thinking
) -> tuple[tuple[JudgedAnswer, ...], float]:
    """Play all scripts at once.

    Returns:
        The answers in the order of the scripts, and the seconds until the last trajectory ended.
    """
    began_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_play(stage, s, t)) for s, t in zip(scripts, thinking, strict=True)]
    return tuple(task.result() for task in tasks), time.perf_counter() - began_s


async def _play(stage: Stage, script: JudgedScript, pauses: tuple[float, ...]) -> JudgedAnswer:
    try:
        async with tangram.trajectory():
            answer = await _take_turns(stage, script, pauses)
    except Exception as error:  # noqa: BLE001 - a broken trajectory is an answer, too: the others go on, the demo fails
        answer = JudgedAnswer(script.index, error=f"{type(error).__name__}: {error}")
    stage.watcher.trajectory_ended()
    return answer


async def _take_turns(stage: Stage, script: JudgedScript, pauses: tuple[float, ...]) -> JudgedAnswer:
    results: list[int] = []
    scores: list[Score] = []
    await _timed(stage, stage.tools_s, tangram.run(actions.check_out, stage.folders))
    for turn, pause_s in zip(script.turns, pauses, strict=True):
        await asyncio.sleep(pause_s)  # the model thinks
        results.append(await _perform(stage, turn.tool))
        scores += await _score(stage, turn.scored)
    scores += await _score(stage, script.last)
    return JudgedAnswer(script.index, tuple(results), tuple(scores))


async def _perform(stage: Stage, tool: Shell | Search) -> int:
    if isinstance(tool, Shell):
        return await _timed(stage, stage.tools_s, tangram.run(actions.shell, tool.kind, tool.command))
    while True:
        hits = await _timed(stage, stage.tools_s, tangram.run(actions.search, stage.api, tool.query))
        if hits is not None:
            return hits


async def _score(stage: Stage, scored: Scored) -> list[Score]:
    calls = (_timed(stage, stage.scores_s, stage.placement.score(name, scored.text)) for name in scored.services)
    return await asyncio.gather(*calls)


async def _timed(stage: Stage, times_s: list[float], call: Awaitable[_T]) -> _T:
    began_s = time.perf_counter()
    result = await call
    times_s.append(time.perf_counter() - began_s)
    stage.watcher.call_ended()
    return result
