"""What the trajectories of `demo --judge` came to, and whether it is the same everywhere. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arl_tangram.demo.judge.catalogue import WayName
from arl_tangram.demo.judge.figures import JudgedFigures


@dataclass(frozen=True, slots=True)
class Score:
    """What a service makes of a text.

    Attributes:
        reward: the mean log-probability of its tokens.
        digest: of all bits of what the model returned.
    """

    reward: float
    digest: str


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """What a trajectory came to; the same wherever the services are, or the demo has failed.

    Attributes:
        index: the trajectory's number.
        results: what each of its tool calls returned: exit codes and numbers of hits.
        scores: of all of its texts, in order.
        error: the error that ended it early, or None.
    """

    index: int
    results: tuple[int, ...] = ()
    scores: tuple[Score, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """One way's run."""

    way: WayName
    figures: JudgedFigures
    answers: tuple[JudgedAnswer, ...]


def faults_in(runs: Sequence[JudgedRun], alone: Sequence[Sequence[Score]]) -> list[str]:
    """Say where trajectories broke, got other scores than the models give by themselves, or differ between the ways."""
    return [fault for run in runs for fault in _faults(run, runs[0], alone)]


def _faults(run: JudgedRun, first: JudgedRun, alone: Sequence[Sequence[Score]]) -> list[str]:
    faults: list[str] = []
    for answer, same, scores in zip(run.answers, first.answers, alone, strict=True):
        where = f"{run.way}: trajectory {answer.index}"
        if answer.error is not None:
            faults.append(f"{where} broke: {answer.error}")
        elif answer.scores != tuple(scores):
            right = sum(got == expected for got, expected in zip(answer.scores, scores, strict=False))
            faults.append(f"{where}: only {right} of {len(scores)} scores are those of the models by themselves")
        elif same.error is None and answer.results != same.results:
            faults.append(f"{where}: its tools returned {answer.results}, but {same.results} with {first.way}")
    return faults
