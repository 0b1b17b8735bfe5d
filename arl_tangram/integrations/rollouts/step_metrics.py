"""What one step of a trainer used of the pools, as numbers for its log. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from arl_tangram.trace.figures import ActionFigures, DimensionFigures, Figures


class StepMetrics:
    """Takes the figures of a run at the end of each step, and tells of that step.

    Args:
        prefix: begins the name of each number.
    """

    def __init__(self, prefix: str = "tangram") -> None:
        self._prefix = prefix
        self._actions: dict[str, ActionFigures] = {}
        self._dimensions: dict[str, DimensionFigures] = {}
        self._elapsed_s = 0.0

    def since(self, figures: Figures) -> dict[str, float]:
        """Return what happened since the last time, or since the runtime was opened.

        For each action: `calls` and `failures`, and the means in seconds `act_s`, `queueing_s` and `execution_s` where
        it was called; for each dimension: `held_share`, from 0 to 1. A `:` in a name is told as a dot. After an owner
        has been lost, figures begin anew.

        Args:
            figures: of `Tangram.figures()` or `Shared.figures()`.
        """
        if self._are_new(figures):
            self._actions, self._dimensions, self._elapsed_s = {}, {}, 0.0
        found: dict[str, float] = {}
        for action in figures.actions:
            name = action.name.replace(":", ".")
            for key, value in _of_action(action, self._actions.get(action.name)):
                found[f"{self._prefix}/{name}/{key}"] = value
        for dimension in figures.dimensions:
            share = self._share(dimension, figures.elapsed_s)
            if share is not None:
                found[f"{self._prefix}/{dimension.name.replace(':', '.')}/held_share"] = share
        self._actions = {action.name: action for action in figures.actions}
        self._dimensions = {dimension.name: dimension for dimension in figures.dimensions}
        self._elapsed_s = figures.elapsed_s
        return found

    def _are_new(self, figures: Figures) -> bool:
        """Return whether these are of another owner, which may be older by now than the one before was."""
        calls = {action.name: action.calls for action in figures.actions}
        fewer = any(calls.get(name, 0) < action.calls for name, action in self._actions.items())
        return fewer or figures.elapsed_s < self._elapsed_s

    def _share(self, dimension: DimensionFigures, elapsed_s: float) -> float | None:
        before = self._dimensions.get(dimension.name)
        offered = (dimension.mean_capacity or 0.0) * elapsed_s
        held = dimension.held_unit_s
        if before is not None:
            offered -= (before.mean_capacity or 0.0) * self._elapsed_s
            held -= before.held_unit_s
        return held / offered if offered > 0 else None


def _of_action(now: ActionFigures, before: ActionFigures | None) -> Iterator[tuple[str, float]]:
    """Return the numbers of one action."""
    calls_before = 0 if before is None else before.calls
    calls = now.calls - calls_before
    failures = sum(now.failures.values()) - (0 if before is None else sum(before.failures.values()))
    yield "calls", float(calls)
    yield "failures", float(failures)
    if not calls:
        return
    for key, mean, mean_before in (
        ("act_s", now.act_mean_s, before and before.act_mean_s),
        ("queueing_s", now.queueing_mean_s, before and before.queueing_mean_s),
        ("execution_s", now.execution_mean_s, before and before.execution_mean_s),
    ):
        yield key, max(((mean or 0.0) * now.calls - (mean_before or 0.0) * calls_before) / calls, 0.0)
