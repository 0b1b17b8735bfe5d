"""What is measured, fixed before anything is: modes, numbers of containers, lengths of commands, repetitions. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

GrantKind = Literal["direct", "api"]
ChannelKind = Literal["session", "exec"]

SHORT_S = 0.1
MEDIUM_S = 1.0
LONG_S = 10.0


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to apply a grant, and one way to run a command."""

    grants: GrantKind
    channel: ChannelKind

    @property
    def name(self) -> str:
        """As the tables say it; the second word as users know it."""
        return f"{self.grants} + {'session' if self.channel == 'session' else 'gated exec'}"


MODES = (Mode("direct", "session"), Mode("direct", "exec"), Mode("api", "session"), Mode("api", "exec"))
DEFAULT = MODES[0]


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of live containers and one length of commands, in one mode."""

    mode: Mode
    live: int
    command_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything.

    Attributes:
        lives: numbers of live containers, ascending.
        rounds: in each of them, every mode has its turn, begun by another one each time.
        repeats: pairs of the seconds that commands last, and how many of them a worker runs in a round.
        long_rounds: in so many rounds the longest commands take part.
        crowd: numbers of live containers whose cost is compared, ascending.
        crowd_actions: actions per comparison.
        grants: grants of each kind that are timed by themselves.
        pairs: pairs of runs on one core and on two.
    """

    lives: tuple[int, ...] = (1, 8, 32)
    rounds: int = 3
    repeats: tuple[tuple[float, int], ...] = ((SHORT_S, 20), (MEDIUM_S, 3), (LONG_S, 1))
    long_rounds: int = 1
    crowd: tuple[int, int] = (10, 200)
    crowd_actions: int = 200
    grants: int = 100
    pairs: int = 5

    def orders(self) -> Iterator[tuple[int, tuple[Mode, ...]]]:
        """Yield each round with the order of the modes in it: noise hits all alike."""
        for round_ in range(self.rounds):
            first = round_ % len(MODES)
            yield round_, MODES[first:] + MODES[:first]

    def repeats_in(self, round_: int) -> tuple[tuple[float, int], ...]:
        """Return which commands are run in a round, and how often."""
        return tuple((s, n) for s, n in self.repeats if s < LONG_S or round_ < self.long_rounds)

    def about_s(self, cores: int) -> float:
        """Return about how long all of it takes, where creating and removing a container takes 0.4 s."""
        creating_s = 0.4 * (self.rounds * len(MODES) * self.lives[-1] + 2 * self.crowd[1])
        each_s = [s + 0.15 for r in range(self.rounds) for s, n in self.repeats_in(r) for _ in range(n)]
        crowd_s = 6 * self.crowd_actions * SHORT_S / cores
        return creating_s + len(MODES) * len(self.lives) * sum(each_s) + crowd_s + 60


FULL = Plan()
QUICK = Plan(
    lives=(1, 4),
    rounds=1,
    repeats=((SHORT_S, 3), (MEDIUM_S, 1)),
    long_rounds=0,
    crowd=(2, 6),
    crowd_actions=12,
    grants=5,
    pairs=1,
)
"""Few of everything: it judges nothing."""
