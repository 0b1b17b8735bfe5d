"""One trajectory of `demo --judge`: a tool in each turn, and then scores by services, however these are placed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import arl_tangram as tangram
from arl_tangram.demo import actions
from arl_tangram.demo.agents import Search, Shell
from arl_tangram.demo.judge.answers import JudgedAnswer, Score
from arl_tangram.demo.judge.catalogue import ServiceName
from arl_tangram.demo.judge.scripts import JudgedScript, Scored, Text
from arl_tangram.demo.playing import Watcher, in_trajectory
from arl_tangram.demo.search_api import SearchApi

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


async def play(stage: Stage, script: JudgedScript, pauses: tuple[float, ...]) -> JudgedAnswer:
    """Play one script in a trajectory of its own; what breaks it is part of the answer."""
    return await in_trajectory(
        lambda: _take_turns(stage, script, pauses), lambda error: JudgedAnswer(script.index, error=error), stage.watcher
    )


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
