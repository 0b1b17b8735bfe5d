"""How much is done, fixed before anything is. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MOST_CORES = 8
"""Cores of the pool, where there are so many: each change is to another number of them, or to none."""

MANY_WORKERS = 8
"""Workers that share one core, against one worker."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything.

    Attributes:
        resizes: random changes of the cores of programs that check their own work.
        pause_s: least and most seconds between two of them.
        items: what one such program hashes, in pieces.
        turns: hashes of one piece, which take about a millisecond on one core.
        timeouts: commands that are suspended before their time is up.
        kills: sandboxes that are cleaned up while they are suspended.
        trainers: trainers that are killed while something is suspended.
        pairs: pairs of runs with one worker and with many on one core.
        long_items: what is hashed in each of these: so much that the start of the workers is a small part of it.
        switches: changes that are timed.
        suspensions: suspensions whose effect is timed.
        seed: of what is random.
    """

    resizes: int = 1000
    pause_s: tuple[float, float] = (0.005, 0.05)
    items: int = 800
    turns: int = 2000
    timeouts: int = 5
    kills: int = 5
    trainers: int = 3
    pairs: int = 5
    long_items: int = 3200
    switches: int = 200
    suspensions: int = 20
    seed: int = 0

    @property
    def about_s(self) -> float:
        """About how long all of it takes, on one quiet core."""
        work_s = self.long_items * self.turns * 0.5e-6
        changing_s = 2 * self.resizes * sum(self.pause_s) / 2
        return changing_s + 3 * self.timeouts + self.kills + 3 * self.trainers + 2 * self.pairs * work_s + 20


FULL = Plan()
QUICK = Plan(
    resizes=30, items=200, timeouts=1, kills=1, trainers=1, pairs=1, long_items=200, switches=10, suspensions=2
)
"""Little of everything: it judges nothing."""
