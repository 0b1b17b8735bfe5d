"""What the trajectories of `demo --judge` do: drawn from a seed and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from arl_tangram.demo.agents import Search, Shell
from arl_tangram.demo.judge.catalogue import LAYERS, LENGTH, SERVICES, TEACHERS, VOCABULARY, WEIGHTS, ServiceName

Text = tuple[int, ...]
"""Tokens."""

TRAJECTORIES = 24
TURNS = 12
QUICK_TRAJECTORIES = 6
QUICK_TURNS = 3

_SEARCHES = 0.3  # of the turns
_JUDGED = 3  # every so many turns, the judge looks at them, too
_COMMANDS = (
    Shell("explore", "find . -name '*.py' -print0 | sort -z | xargs -0 wc -l | sort -n | tail -8"),
    Shell("explore", "grep -rnw --include='*.py' as_series . | sort | head -40"),
    Shell("explore", "grep -rlw --include='*.py' trimseq . | sort | xargs wc -c"),
    Shell("outline", '"$PYTHON" tools/outline.py polynomial'),
)
_QUERIES = (
    "trim trailing zeros of a coefficient series",
    "add arrays of different length",
    "domain and window of a series",
    "evaluate a series at points",
)


@dataclass(frozen=True, slots=True)
class Scored:
    """A text, and the services that score it at the same time."""

    text: Text
    services: tuple[ServiceName, ...]


@dataclass(frozen=True, slots=True)
class JudgedTurn:
    """What follows on the model's thinking: a tool call, and then scores of what the model wrote."""

    tool: Shell | Search
    scored: Scored


@dataclass(frozen=True, slots=True)
class JudgedScript:
    """One trajectory.

    Attributes:
        index: its number, from 0.
        domain: what it is about.
        turns: what it does.
        last: how it is rewarded in the end.
    """

    index: int
    domain: str
    turns: tuple[JudgedTurn, ...]
    last: Scored

    @property
    def scored(self) -> tuple[Scored, ...]:
        """Everything that is scored, in order."""
        return (*(turn.scored for turn in self.turns), self.last)

    @property
    def calls(self) -> int:
        """Actions of the whole trajectory; the first one copies files into its sandbox."""
        return 1 + len(self.turns) + sum(len(each.services) for each in self.scored)


def draw_scripts(seed: int, *, quick: bool = False) -> tuple[JudgedScript, ...]:
    """Return the scripts of all trajectories; the same for the same arguments."""
    count, turns = (QUICK_TRAJECTORIES, QUICK_TURNS) if quick else (TRAJECTORIES, TURNS)
    return tuple(_draw(random.Random(f"{seed}/judge/{index}"), index, turns) for index in range(count))


def _draw(rng: random.Random, index: int, turns: int) -> JudgedScript:
    (domain,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
    teacher = TEACHERS[domain]
    return JudgedScript(
        index=index,
        domain=domain,
        turns=tuple(
            _turn(rng, (teacher, "judge") if turn % _JUDGED == 0 else (teacher,)) for turn in range(1, turns + 1)
        ),
        last=Scored(_text(rng), ("judge", "reward")),
    )


def _turn(rng: random.Random, services: tuple[ServiceName, ...]) -> JudgedTurn:
    tool = Search(rng.choice(_QUERIES)) if rng.random() < _SEARCHES else rng.choice(_COMMANDS)
    return JudgedTurn(tool, Scored(_text(rng), services))


def _text(rng: random.Random) -> Text:
    return tuple(rng.choices(range(VOCABULARY), k=LENGTH))


def uses(scripts: Iterable[JudgedScript]) -> dict[ServiceName, int]:
    """Return how often each service is used."""
    counts = Counter(name for script in scripts for each in script.scored for name in each.services)
    return {service: counts[service] for service in SERVICES}


def split(counts: dict[ServiceName, int], slots: int) -> tuple[tuple[ServiceName, ...], ...]:
    """Share the services out to slots so that all slots compute about as much: the most work first, to the least busy.

    This is what someone would do who knew beforehand how often each service will be used.
    """
    work = {service: count * LAYERS[service] for service, count in counts.items()}
    shares: list[list[ServiceName]] = [[] for _ in range(slots)]

    def load(share: Sequence[ServiceName]) -> tuple[int, int]:
        return sum(work[service] for service in share), len(share)

    for service in sorted(SERVICES, key=lambda name: -work[name]):
        min(shares, key=load).append(service)
    return tuple(map(tuple, shares))
