"""Add up the events of a run as they come, live or from a file, in memory that does not grow with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from arl_tangram.model.events import (
    ActionEnded,
    ActionLent,
    ActionResized,
    ActionResumed,
    ActionStarted,
    CapacityChanged,
    Event,
    Paused,
    PolicyRefused,
    RestoreFailed,
    ServiceEvicted,
    ServiceLost,
    ServiceRestored,
    TrajectoryClosed,
    TrajectoryOpened,
    UnitsReturned,
    UnitsSettled,
)
from arl_tangram.model.gpu import ServiceStatistics
from arl_tangram.model.lifecycle import FinishedAction
from arl_tangram.model.topology import Topology
from arl_tangram.trace.figures import DimensionFigures, Figures, TrajectoryFigures
from arl_tangram.trace.histogram import Histogram
from arl_tangram.trace.holding import Holding
from arl_tangram.trace.offered import Offered
from arl_tangram.trace.swaps import Swaps
from arl_tangram.trace.tally import Tally, ratio, sane

OTHER = "other"
TOTAL = "all"


class Summary:
    """The sums over the events of one run; `figures` tells what they amount to.

    Memory: one row per action name, at most `max_names` (further names share the row `other`), and
    what `Holding` remembers of the calls and trajectories that hold something.

    Args:
        topology: the dimensions of the runtime.
        max_names: the most action names that get a row of their own.
    """

    def __init__(self, topology: Topology, *, max_names: int = 128) -> None:
        self._max_names = max_names
        self._first_s: float | None = None
        self._last_s = float("-inf")
        self._rows: dict[str, Tally] = {}
        self._topology = topology
        self._holding = Holding(topology)
        self._cpu_s = [0.0] * len(topology.nodes)
        self._offered = Offered(topology)
        self._swaps = Swaps()
        self._pauses = 0
        self._paused_s = 0.0
        self._paused_since_s: float | None = None
        self._trajectories_opened = 0
        self._trajectories_closed = 0
        self._waits = Histogram()
        self._waited_s = 0.0
        # Waits for admission, by trajectory, that no action is charged with yet.
        self._uncharged: dict[int, float] = {}
        self._charged_s = 0.0
        self._charged = Histogram()
        self._refused: dict[bool, PolicyRefused] = {}  # by whether it is about shared cores
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            ActionStarted: self._started,
            ActionEnded: self._ended,
            UnitsReturned: self._returned,
            TrajectoryOpened: self._trajectory_opened,
            TrajectoryClosed: self._trajectory_closed,
            PolicyRefused: self._policy_refused,
            ActionResized: lambda event: self._holding.resize(event.id, event.units, event.at_s),
            ActionLent: lambda event: self._holding.lend(event.id, event.units, event.at_s),
            ActionResumed: lambda event: self._holding.resume(event.id, event.at_s),
            UnitsSettled: lambda event: self._holding.settle(event.id, event.dimension, event.units, event.at_s),
            CapacityChanged: self._capacity_changed,
            ServiceEvicted: self._swaps.evicted,
            ServiceRestored: self._swaps.restored,
            RestoreFailed: self._swaps.failed,
            ServiceLost: self._swaps.lost,
            Paused: self._paused,
        }

    def opened(self, at_s: float) -> None:
        """Let the observed time begin here; without it, it begins at the first event."""
        self._first_s = at_s
        self._last_s = max(self._last_s, at_s)

    def add(self, event: Event) -> None:
        """Add one event."""
        self.add_all((event,))

    def add_all(self, events: Iterable[Event]) -> None:
        """Add events in their order; less than a microsecond each."""
        for event in events:
            at_s = event.at_s
            if at_s > self._last_s:
                self._last_s = at_s
                if self._first_s is None:
                    self._first_s = at_s
            handler = self._handlers.get(type(event))
            if handler is not None:
                handler(event)

    def figures(self, now_s: float | None = None) -> Figures:
        """Return what the events so far amount to.

        Args:
            now_s: until when what is held counts, on the clock of the events; with None, until the last event.
        """
        until_s = self._last_s if now_s is None else max(now_s, self._last_s)
        elapsed_s = 0.0 if self._first_s is None else until_s - self._first_s
        for row in self._rows.values():
            row.count()
        running_core_s: dict[str, float] = {}
        for name, core_s in self._holding.running_core_s(until_s):
            row = self._row(name)
            running_core_s[row.name] = running_core_s.get(row.name, 0.0) + core_s
        total = Tally(TOTAL)
        for row in self._rows.values():
            total.merge(row)
        admitted = Histogram()
        admitted.merge(total.act)
        admitted.merge(self._charged)
        ranked = sorted(self._rows.values(), key=lambda row: (-row.act_s, row.name))
        return Figures(
            elapsed_s=elapsed_s,
            actions=tuple(row.figures(running_core_s.get(row.name, 0.0)) for row in ranked),
            total=total.figures(sum(running_core_s.values())),
            admitted_act_mean_s=ratio(total.act_s + self._charged_s, total.calls),
            admitted_act_p99_s=admitted.quantile(0.99),
            dimensions=self._dimensions(until_s, total.cpu_s),
            trajectories=TrajectoryFigures(
                opened=self._trajectories_opened,
                closed=self._trajectories_closed,
                waited_mean_s=ratio(self._waited_s, self._trajectories_opened),
                waited_p99_s=self._waits.quantile(0.99),
            ),
            holding=len(self._holding),
            refused=self.why_refused(shares=False),
            refused_share=self.why_refused(shares=True),
            pauses=self._pauses,
            paused_s=self._paused_s
            + (0.0 if self._paused_since_s is None else max(0.0, until_s - self._paused_since_s)),
            services=self._swaps.figures(),
        )

    def services(self) -> dict[str, ServiceStatistics]:
        """Return what each service that was used has cost, by its name; its moves are not known from events."""
        return self._swaps.statistics()

    def why_refused(self, *, shares: bool) -> str | None:
        """Say why a policy (`shares`: of shared cores) is not asked any more, and since when; None if it is."""
        refused = self._refused.get(shares)
        if refused is None:
            return None
        after_s = refused.at_s - (self._first_s or 0.0)
        return f"{refused.policy} was refused after {after_s:.3f} s: {refused.reason}"

    def _dimensions(self, until_s: float, cpu_s: float) -> tuple[DimensionFigures, ...]:
        """Return how much of each dimension was in use, where all commands took `cpu_s` of the processors."""
        held = self._holding.unit_s(until_s)
        first_s = until_s if self._first_s is None else self._first_s
        several = len(self._topology.nodes) > 1
        used_s = {
            node.cpu: self._cpu_s[number] if several else cpu_s for number, node in enumerate(self._topology.nodes)
        }
        figures: list[DimensionFigures] = []
        for index, dimension in enumerate(self._topology.dimensions):
            offered = self._offered.unit_s(index, until_s, first_s)
            figures.append(
                DimensionFigures(
                    name=dimension.name,
                    capacity=self._offered.capacity[index] / dimension.scale,
                    mean_capacity=ratio(offered / dimension.scale, until_s - first_s),
                    window_s=dimension.window_s,
                    held_unit_s=held[index] / dimension.scale,
                    held_share=ratio(held[index], offered),
                    used_share=ratio(used_s[index] * dimension.scale, offered) if index in used_s else None,
                )
            )
        return tuple(figures)

    def _capacity_changed(self, event: CapacityChanged) -> None:
        first_s = event.at_s if self._first_s is None else self._first_s
        self._offered.change(event.dimension, event.capacity, event.at_s, first_s)

    def _paused(self, event: Paused) -> None:
        if self._paused_since_s is not None:
            self._paused_s += event.at_s - self._paused_since_s
            self._paused_since_s = None
        elif event.paused:
            self._pauses += 1
        if event.paused:
            self._paused_since_s = event.at_s

    def _policy_refused(self, event: PolicyRefused) -> None:
        self._refused[event.shares] = event

    def _row(self, name: str) -> Tally:
        row = self._rows.get(name)
        if row is None:
            if len(self._rows) >= self._max_names:
                name = OTHER
            row = self._rows.setdefault(name, Tally(name))
        return row

    def _started(self, event: ActionStarted) -> None:
        action = event.action
        self._holding.start(action)
        if action.seat is not None:
            self._swaps.started(event)
        if action.pending.since_s is not None:
            self._row(action.pending.demand.name).retries += 1

    def _ended(self, event: ActionEnded) -> None:
        action = event.action
        row = self._rows.get(action.name) or self._row(action.name)
        row.add(action)
        if action.node is not None:
            self._cpu_s[action.node] += sane(action.cpu_s)
        if self._uncharged and action.trajectory in self._uncharged:
            self._charge(action, self._uncharged.pop(action.trajectory))

    def _charge(self, action: FinishedAction, waited_s: float) -> None:
        """Count a trajectory's wait for admission to the first of its actions that ends."""
        act_s = sane(action.queueing_s) + sane(action.execution_s) + sane(action.overhead_s) + sane(action.suspended_s)
        self._charged_s += waited_s
        # Corrects the histograms of the rows, where the action stands without the wait.
        self._charged.count(act_s, -1)
        self._charged.count(act_s + waited_s, 1)

    def _returned(self, event: UnitsReturned) -> None:
        stopped = self._holding.stop(event.id, event.at_s)
        if stopped is not None:
            name, core_s = stopped
            row = self._rows.get(name) or self._row(name)
            row.core_s += core_s

    def _trajectory_opened(self, event: TrajectoryOpened) -> None:
        waited_s = sane(event.waited_s)
        self._trajectories_opened += 1
        self._waited_s += waited_s
        self._waits.add(waited_s)
        self._holding.open(event)
        if waited_s:
            self._uncharged[event.id] = waited_s

    def _trajectory_closed(self, event: TrajectoryClosed) -> None:
        self._uncharged.pop(event.id, None)
        if self._holding.close(event.id, event.at_s):
            self._trajectories_closed += 1
