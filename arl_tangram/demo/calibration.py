"""How long the tools of a lone trajectory take on this machine; pure, from the events of a few lone trajectories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from arl_tangram.model.events import ActionEnded, Event
from arl_tangram.model.lifecycle import FinishedAction


@dataclass(frozen=True, slots=True)
class Calibration:
    """What trajectories took that ran one after another, without thinking.

    Attributes:
        trajectories: how many were measured.
        calls: actions per trajectory, mean.
        tools_s: execution and overhead of all actions of a trajectory on one core, mean.
        suite_s: of the test suite alone on one core, mean.
        suite_two_cores_s: of the test suite on two cores.
    """

    trajectories: int
    calls: float
    tools_s: float
    suite_s: float
    suite_two_cores_s: float

    @property
    def suite_speedup(self) -> float:
        """How many times faster the suite is on two cores."""
        return self.suite_s / self.suite_two_cores_s


def calibration_of(
    one_core: Iterable[Event], two_cores: Iterable[Event], *, trajectories: int, suite: str
) -> Calibration:
    """Return the calibration from the events of lone trajectories on one core and on two.

    Args:
        one_core: events of `trajectories` trajectories under `reserved(1)`.
        two_cores: events of trajectories under `reserved(2)`.
        trajectories: how many were measured on one core.
        suite: name of the suite's action.

    Raises:
        ValueError: a suite has not run.
    """
    alone, wide = _ended(one_core), _ended(two_cores)
    return Calibration(
        trajectories=trajectories,
        calls=len(alone) / trajectories,
        tools_s=sum(_busy_s(action) for action in alone) / trajectories,
        suite_s=_mean_of(suite, alone),
        suite_two_cores_s=_mean_of(suite, wide),
    )


def _ended(events: Iterable[Event]) -> list[FinishedAction]:
    return [event.action for event in events if isinstance(event, ActionEnded)]


def _busy_s(action: FinishedAction) -> float:
    return action.execution_s + action.overhead_s


def _mean_of(name: str, actions: Sequence[FinishedAction]) -> float:
    times = [_busy_s(action) for action in actions if action.name == name]
    if not times:
        raise ValueError(f"no {name} has ended: there is nothing to calibrate with")
    return sum(times) / len(times)
