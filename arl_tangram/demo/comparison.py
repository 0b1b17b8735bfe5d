"""Run the same work under one policy after another, and check that it was the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import arl_tangram as tangram
from arl_tangram.demo import actions
from arl_tangram.demo.agents import Script
from arl_tangram.demo.calibration import Calibration, calibration_of
from arl_tangram.demo.measure import Figures, figures_of
from arl_tangram.demo.playing import Watcher, at_once, in_turn
from arl_tangram.demo.rollout import Answer, Stage, faults_of, play
from arl_tangram.demo.search_api import CALLS, CONCURRENCY, PERIOD_S, search_api
from arl_tangram.demo.suite import SourceTree
from arl_tangram.demo.switching import time_switches
from arl_tangram.demo.thinking import Thinking
from arl_tangram.errors import ConfigurationError
from arl_tangram.model.events import Event
from arl_tangram.scheduling.policy import Policy
from arl_tangram.trace.reader import read_trace
from arl_tangram.trace.sink import MemorySink

CORES = 2
"""Cores that all policies share."""
SCHEDULER = "scheduler"
"""The name of the default policy in the demo."""
RESIZE = "resize"
"""The name of the default policy in the demo where the cores of running actions change, too."""
POLICIES = ("reserved(1)", "reserved(2)", SCHEDULER)
"""What is compared unless asked otherwise."""


class Progress(Protocol):
    """Shows how a run goes on."""

    def watch(self, label: str, trajectories: int, calls: int) -> AbstractContextManager[Watcher]:
        """Show one run of so many trajectories and calls, from its start to its end."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """One policy's run.

    Attributes:
        policy: its name.
        figures: what was measured.
        refused: calls that the search API answered with 429.
        answers: what each trajectory came to.
        switch_s: seconds that one change of the cores of a running action takes; None where they do not change.
    """

    policy: str
    figures: Figures
    refused: int
    answers: tuple[Answer, ...]
    switch_s: float | None = None


@dataclass(frozen=True, slots=True)
class Bench:
    """What all runs share.

    Attributes:
        tree: the source tree that the agents work on.
        address: of the search API.
        progress: where to show how it goes on.
        pool: the cores, and what the sandboxes are.
    """

    tree: SourceTree
    address: str
    progress: Progress
    pool: tangram.LocalPool | tangram.DockerPool

    def pool_for(self, policy: str) -> tangram.LocalPool | tangram.DockerPool:
        """Return the pool for the policy of that name: whether its cores are shared by running actions."""
        return replace(self.pool, share="resize") if policy == RESIZE else self.pool


def policy_named(name: str) -> Policy | None:
    """Return the policy of that name, or None for the scheduler's default.

    Raises:
        ConfigurationError: there is no such policy, or it wants more cores than there are.
    """
    if name in {SCHEDULER, RESIZE}:
        return None
    found = re.fullmatch(r"(reserved|fixed)\((\d+)\)", name)
    if found is None or not 1 <= int(found[2]) <= CORES:
        raise ConfigurationError(
            f"unknown policy {name!r}: there are {', '.join(POLICIES)}, {RESIZE} and fixed(1), fixed(2)"
        )
    kind, cores = found[1], int(found[2])
    return tangram.policies.reserved(cores) if kind == "reserved" else tangram.policies.fixed(cores)


async def calibrate(bench: Bench, scripts: Sequence[Script]) -> Calibration:
    """Measure the scripts one after another without thinking; a first run of the first one warms up.

    Raises:
        ConfigurationError: a trajectory did not come to what its script says.
    """
    await _record_alone(bench, "reserved(1)", scripts[:1], label="warming up")
    narrow = await _record_alone(bench, "reserved(1)", scripts, label="calibration, 1 core")
    wide = await _record_alone(bench, "reserved(2)", scripts[:1], label="calibration, 2 cores")
    return calibration_of(narrow.events, wide.events, trajectories=len(scripts), suite=actions.run_suite.spec.name)


async def compare(
    bench: Bench, policies: Sequence[str], scripts: Sequence[Script], thinking: Thinking, *, trace: Path | None = None
) -> tuple[Run, ...]:
    """Run the scripts under each policy, one after another.

    Args:
        bench: what the runs share.
        policies: names of the policies, in order.
        scripts: what the trajectories do.
        thinking: seconds before each turn, the same for each policy.
        trace: where to write the traces; each policy's name is put before the suffix.
    """
    runs: list[Run] = []
    for name in policies:
        path = None if trace is None else trace_path(trace, name)
        record = await _record(bench, name, scripts, thinking, label=name, trace=path)
        switch_s = await time_switches(bench.pool_for(name)) if name == RESIZE else None
        runs.append(Run(name, figures_of(record.events, record.step_s), record.refused, record.answers, switch_s))
    return tuple(runs)


def trace_path(trace: Path, policy: str) -> Path:
    """Return the file for one policy's trace: `run.jsonl` becomes `run.reserved-1.jsonl`."""
    name = policy.replace("(", "-").rstrip(")")
    return trace.with_name(f"{trace.stem}.{name}{trace.suffix}")


def faults_in(scripts: Sequence[Script], answers: Sequence[Answer]) -> list[str]:
    """Say what is wrong with single answers."""
    return [fault for s, a in zip(scripts, answers, strict=True) if (fault := faults_of(s, a)) is not None]


def differences(runs: Sequence[Run]) -> list[str]:
    """Say where trajectories came to other answers than under the first policy."""
    first, *others = runs
    return [
        f"trajectory {expected.index} came to {got} under {run.policy}, but to {expected} under {first.policy}"
        for run in others
        for expected, got in zip(first.answers, run.answers, strict=True)
        if expected != got
    ]


@dataclass(frozen=True, slots=True)
class _Record:
    events: Sequence[Event]
    answers: tuple[Answer, ...]
    step_s: float
    refused: int


async def _record_alone(bench: Bench, policy: str, scripts: Sequence[Script], *, label: str) -> _Record:
    no_pauses = tuple(tuple(0.0 for _ in script.turns) for script in scripts)
    record = await _record(bench, policy, scripts, no_pauses, label=label, alone=True)
    faults = faults_in(scripts, record.answers)
    if faults:
        raise ConfigurationError("; ".join(faults))
    return record


async def _record(
    bench: Bench,
    policy: str,
    scripts: Sequence[Script],
    thinking: Thinking,
    *,
    label: str,
    alone: bool = False,
    trace: Path | None = None,
) -> _Record:
    memory = MemorySink()
    play_all = in_turn if alone else at_once
    with bench.progress.watch(label, len(scripts), sum(s.calls for s in scripts)) as watcher:
        async with search_api(bench.address) as api:
            refused_before = await api.refused()
            async with _runtime(bench.pool_for(policy), policy, memory if trace is None else trace):
                stage = Stage(bench.tree.folders, api, watcher)
                answers, step_s = await play_all(partial(play, stage), scripts, thinking)
            refused = await api.refused() - refused_before
    events = memory.events if trace is None else read_trace(trace).events
    return _Record(events, answers, step_s, refused)


def _runtime(pool: tangram.LocalPool | tangram.DockerPool, policy: str, trace: Path | MemorySink) -> tangram.Tangram:
    return tangram.Tangram(
        pool,
        tangram.Quota("search", calls=CALLS, period_s=PERIOD_S, concurrency=CONCURRENCY),
        policy=policy_named(policy),
        trace=trace,
    )
