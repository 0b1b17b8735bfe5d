"""One action that has, or wants, cores of one node: what it can have, what it had, and how much it has done."""

from __future__ import annotations

from math import inf

from arl_tangram.model.lifecycle import PendingAction, RunningAction
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.sharing.works import Remaining

SLACK = 100.0
"""How many times as long as its work, as far as that is known, one may be here before it comes before the others."""
LEAST_SLACK_S = 10.0
_HURRY = 2.0
"""How many times the work that is known of an overdue one it may do before it is no longer in a hurry."""
_BETTER = 1.1

GOING_ON, NEW, STAYING = range(3)
"""Who has no cores: those that may have some in any case, new ones, and those of them that could not be suspended."""

Place = tuple[int, float, int, int]
"""What idle sharers are ordered by: (priority, rank, order, id)."""


class CoreSharer:
    """A `Sharer`, with its account.

    Args:
        action: the call.
        options: integer units that it can have.
        scale: integer units in a core.
        rates: how fast it is expected to be on each of `options`.
        remaining: what is expected of its work.
        at_s: when it joined.

    Attributes:
        action: the call.
        id: of the call.
        running: the call as it runs; None while it waits.
        priority: lower first.
        order: see `Sharer`.
        admitted: cores that it can have; once it runs and cannot be resized, those that it started with.
        sizes: those of them that it can have now.
        rates: how fast it is expected to be on each of `sizes`.
        least: cores that it must keep now, or is to get now.
        cores: cores that it has.
        attained_s: work done, as of `counted_at_s`.
        rank: what the policy said last; of one that runs, the lower the better it holds its place.
        ask_at_s: the work done at which the rank is to be asked for again.
        joined_at_s: when it joined.
        bars_until_s: while it runs, until when others are barred that came after it.
        is_overdue: whether it has been here so long that it comes before the others.
        hurries_to_s: the work done with which it is not overdue any more.
        changed_at_s: when its cores were changed last.
        ready_at_s: when it runs after that.
        counted_at_s: up to when its work is counted.
        spent_s: seconds for which it ran, by cores.
        held_s: seconds for which it had any.
        switched: whether its cores were ever changed.
        away: whether it has lent its cores, and takes no part.
    """

    __slots__ = (
        "_expected_s",
        "_remaining",
        "_speeds",
        "action",
        "admitted",
        "ask_at_s",
        "attained_s",
        "away",
        "bars_until_s",
        "changed_at_s",
        "cores",
        "counted_at_s",
        "held_s",
        "hurries_to_s",
        "id",
        "is_overdue",
        "joined_at_s",
        "least",
        "order",
        "priority",
        "rank",
        "rates",
        "ready_at_s",
        "running",
        "sizes",
        "spent_s",
        "switched",
    )

    def __init__(
        self,
        action: PendingAction,
        scale: int,
        rates: tuple[float, ...],
        remaining: Remaining,
        at_s: float,
    ) -> None:
        self.action = action
        self.id = action.id
        self.running: RunningAction | None = None
        place = action.inherited
        self.priority = action.demand.priority if place is None else place[0]
        self.order = action.id if place is None else place[2]
        self.admitted = tuple([units // scale for units in action.demand.options])
        self._speeds = dict(zip(self.admitted, rates, strict=True))
        self.sizes = self.admitted
        self.rates = rates
        self.least = 0
        self.cores = 0
        self.attained_s = 0.0
        self._remaining = remaining
        self.rank = 0.0
        self.ask_at_s = inf
        self._expected_s = remaining.remaining_s(0.0)
        self.bars_until_s = at_s
        self.is_overdue = False
        self.hurries_to_s = inf
        self.joined_at_s = at_s
        self.changed_at_s = self.ready_at_s = self.counted_at_s = at_s
        self.spent_s: dict[int, float] = {}
        self.held_s = 0.0
        self.switched = False
        self.away = False

    @property
    def resizable(self) -> bool:
        """See `Sharer`."""
        return self.action.demand.resizable

    @property
    def remaining_s(self) -> float:
        """See `Sharer`."""
        return self._remaining.remaining_s(self.attained_s)

    @property
    def next_s(self) -> float:
        """See `Sharer`."""
        return self._remaining.next_s(self.attained_s)

    @property
    def overdue_at_s(self) -> float:
        """When it has been here so long that it comes before the others: the later, the more work it has done."""
        return self.joined_at_s + max(SLACK * self._known_s, LEAST_SLACK_S)

    @property
    def _known_s(self) -> float:
        return max(self._expected_s, self.attained_s)

    def hurry(self) -> None:
        """It is overdue from now on, until it has done a good deal of work."""
        self.is_overdue = True
        self.hurries_to_s = _HURRY * self._known_s

    @property
    def kind(self) -> int:
        """Of one that has no cores: `GOING_ON` if it is suspended or called by one that runs, `NEW`, or `STAYING`."""
        if self.running is not None or self.action.inherited is not None:
            return GOING_ON
        return NEW if self.action.demand.preemptible else STAYING

    @property
    def place(self) -> Place:
        """Where it stands among the idle ones."""
        return self.priority, self.rank, self.order, self.id

    @property
    def held_rank(self) -> float:
        """Its rank, somewhat better while it runs."""
        if not self.cores:
            return self.rank
        return self.rank / _BETTER if self.rank > 0 else self.rank * _BETTER

    @property
    def must_keep(self) -> int:
        """The least cores that it can have now without being suspended, if it must not be; else 0."""
        return 0 if self.action.demand.preemptible or not self.cores else min(self.cores, self.admitted[0])

    def rate_at(self, cores: int) -> float:
        """Return how fast it is expected to be on so many cores; on fewer than it admits, slower in proportion."""
        rate = self._speeds.get(cores)
        if rate is not None:
            return rate
        least = next(iter(self._speeds))
        return self._speeds[least] * cores / least

    def start(self, running: RunningAction, cores: int) -> None:
        """It runs from now on."""
        self.running = running
        self.cores = cores
        self.changed_at_s = self.ready_at_s = self.counted_at_s = running.started_at_s
        self.ask_at_s = self.attained_s
        if not self.action.demand.resizable:
            self.admitted = (cores,)
            self._show(self.admitted)

    def show(self, most: int) -> None:
        """Show a policy all that it can have; one that runs, and for which there can be too few, what there can be.

        Args:
            most: cores that there can be.
        """
        self.least = self.must_keep
        if self.running is not None and not self.least and 0 < most < self.admitted[0]:
            self._show((most,))
        elif self.cores and self.cores not in self._speeds:
            self._show((self.cores, *[size for size in self.admitted if size > self.cores]))
        else:
            self._show(self.admitted)

    def show_nothing_else(self) -> None:
        """Show a policy what it has, and nothing else."""
        self.least = self.cores
        self._show((self.cores,))

    def show_more(self) -> None:
        """Show a policy what it has, and what is more."""
        self.least = self.cores
        self._show((self.cores, *[size for size in self.admitted if size > self.cores]))

    def _show(self, sizes: tuple[int, ...]) -> None:
        if sizes != self.sizes:
            self.sizes = sizes
            self.rates = tuple([self.rate_at(size) for size in sizes])

    def count(self, now_s: float) -> None:
        """Count the work that it was expected to do since that was last counted."""
        if self.cores and not self.away:
            ran_s = now_s - max(self.counted_at_s, min(self.ready_at_s, now_s))
            self.held_s += now_s - self.counted_at_s
            self.attained_s += ran_s * self.rate_at(self.cores)
            self.spent_s[self.cores] = self.spent_s.get(self.cores, 0.0) + ran_s
        self.counted_at_s = now_s

    def change(self, running: RunningAction, cores: int, now_s: float, switch_s: float) -> None:
        """It has other cores from now on, and does not run for `switch_s`; its work is counted up to now."""
        self.running = running
        if not self.cores:
            self.ask_at_s = self.attained_s
        self.cores = cores
        self.changed_at_s = now_s
        self.ready_at_s = now_s + switch_s
        self.switched = True

    def reaches_s(self, attained_s: float, now_s: float) -> float:
        """Return when it is to have done so much work, if it keeps its cores; its work is counted up to now."""
        return max(now_s, self.ready_at_s) + (attained_s - self.attained_s) / self.rate_at(self.cores)

    def learned(self, duration_s: float) -> tuple[int, float, float]:
        """Return what there is to learn from its end.

        Args:
            duration_s: for how long it held cores, as was measured.

        Returns:
            The cores that it ran on longest, how long it would have run on them alone, and its work.
        """
        cores = max(self.spent_s, key=lambda cores: self.spent_s[cores], default=self.admitted[0])
        if cores not in self._speeds:
            cores = self.admitted[0]
        if not self.switched:
            return cores, duration_s, duration_s * self.rate_at(cores)
        work_s = self.attained_s * (duration_s / self.held_s if self.held_s > 0 else 1.0)
        return cores, work_s / self.rate_at(cores), work_s


def rates_of(durations: Durations, action: PendingAction) -> tuple[float, ...]:
    """Return how fast an action is expected to be at each of its options, relative to one core: not falling."""
    demand = action.demand
    if demand.learns:
        one_s = durations.expected_s(demand, action.key)
        speeds = [one_s / at_s for at_s in durations.expected_curve(demand, action.key)]
    else:
        speeds = [1 / relative for relative in demand.relative]
    for at in range(1, len(speeds)):
        speeds[at] = max(speeds[at], speeds[at - 1])
    return tuple(speeds)
