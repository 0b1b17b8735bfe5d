"""Add up what the calls of one action name took."""

from __future__ import annotations

import numpy as np

from arl_tangram.model.lifecycle import FinishedAction, Outcome
from arl_tangram.trace.figures import ActionFigures
from arl_tangram.trace.histogram import Histogram

# Longer than any run; what is not below it (or is NaN) is a broken measurement and counts as nothing.
LONGEST_S = 1e12
# Numbers that are gathered before they are counted: so many for each call.
_EACH = 4
_BATCH = _EACH * 128


class Tally:
    """The sums of one action name.

    Calls are gathered, and counted 128 at once: that costs a third of counting each as it comes.
    """

    __slots__ = (
        "_gathered",
        "act",
        "calls",
        "core_s",
        "cpu_s",
        "execution",
        "execution_s",
        "failures",
        "name",
        "overhead",
        "overhead_s",
        "queueing",
        "queueing_s",
        "resized",
        "retries",
        "suspended_s",
        "switches",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        self.retries = 0
        self.failures: dict[Outcome, int] = {}
        self.queueing_s = 0.0
        self.execution_s = 0.0
        self.overhead_s = 0.0
        self.suspended_s = 0.0
        self.resized = 0
        self.switches = 0
        self.cpu_s = 0.0
        self.core_s = 0.0
        self._gathered: list[float] = []
        self.act = Histogram()
        self.queueing = Histogram()
        self.execution = Histogram()
        self.overhead = Histogram()

    def add(self, action: FinishedAction) -> None:
        """Add one call that has ended."""
        self.calls += 1
        self._gathered.extend((action.queueing_s, action.execution_s, action.overhead_s, action.suspended_s))
        if len(self._gathered) >= _BATCH:
            self.count()
        if 0 < action.cpu_s < LONGEST_S:
            self.cpu_s += action.cpu_s
        if action.switches:
            self.resized += 1
            self.switches += action.switches
        if action.outcome is not Outcome.OK:
            self.failures[action.outcome] = self.failures.get(action.outcome, 0) + 1

    def count(self) -> None:
        """Count what was gathered; to be called before anything else is read."""
        parts = np.array(self._gathered).reshape(-1, _EACH)
        self._gathered.clear()
        parts[~((parts >= 0) & (parts < LONGEST_S))] = 0
        queueing_s, execution_s, overhead_s, suspended_s = parts.sum(axis=0).tolist()
        self.queueing_s += queueing_s
        self.execution_s += execution_s
        self.overhead_s += overhead_s
        self.suspended_s += suspended_s
        self.act.add_all(parts.sum(axis=1))
        self.queueing.add_all(parts[:, 0])
        self.execution.add_all(parts[:, 1])
        self.overhead.add_all(parts[:, 2])

    @property
    def act_s(self) -> float:
        """Sum of the completion times."""
        return self.queueing_s + self.execution_s + self.overhead_s + self.suspended_s

    def merge(self, other: Tally) -> None:
        """Add the sums of another name."""
        self.calls += other.calls
        self.retries += other.retries
        for outcome, count in other.failures.items():
            self.failures[outcome] = self.failures.get(outcome, 0) + count
        self.queueing_s += other.queueing_s
        self.execution_s += other.execution_s
        self.overhead_s += other.overhead_s
        self.suspended_s += other.suspended_s
        self.resized += other.resized
        self.switches += other.switches
        self.cpu_s += other.cpu_s
        self.core_s += other.core_s
        self.act.merge(other.act)
        self.queueing.merge(other.queueing)
        self.execution.merge(other.execution)
        self.overhead.merge(other.overhead)

    def figures(self, running_core_s: float = 0.0) -> ActionFigures:
        """Return what the sums amount to, with the core-seconds of calls that still run."""
        calls = self.calls
        busy_s = self.execution_s + self.overhead_s
        return ActionFigures(
            name=self.name,
            calls=calls,
            retries=self.retries,
            failures={outcome.value: self.failures[outcome] for outcome in Outcome if outcome in self.failures},
            act_mean_s=ratio(self.act_s, calls),
            act_p50_s=self.act.quantile(0.5),
            act_p99_s=self.act.quantile(0.99),
            queueing_mean_s=ratio(self.queueing_s, calls),
            execution_mean_s=ratio(self.execution_s, calls),
            overhead_mean_s=ratio(self.overhead_s, calls),
            queueing_p50_s=self.queueing.quantile(0.5),
            queueing_p99_s=self.queueing.quantile(0.99),
            execution_p50_s=self.execution.quantile(0.5),
            execution_p99_s=self.execution.quantile(0.99),
            overhead_p50_s=self.overhead.quantile(0.5),
            overhead_p99_s=self.overhead.quantile(0.99),
            overhead_share=ratio(self.overhead_s, busy_s),
            cpu_s=self.cpu_s,
            core_s=self.core_s + running_core_s,
            resized=self.resized,
            switches=self.switches,
            suspended_s=self.suspended_s,
        )


def ratio(amount: float, of: float) -> float | None:
    """Return a quotient, or None where there is nothing to divide by."""
    return amount / of if of > 0 else None


def sane(seconds: float) -> float:
    """Return a measured duration, or nothing for one that cannot be."""
    return seconds if 0 <= seconds < LONGEST_S else 0.0
