"""What `decide` returns, and what it keeps in mind while it decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from arl_tangram.model.lifecycle import RunningAction


@dataclass(slots=True)
class Decisions:
    """What is to be carried out now.

    Attributes:
        started: actions whose units are promised.
        opened: ids of trajectories that were admitted.
        expired: ids of actions that waited longer than their `queue_timeout`.
        more: whether `decide` stopped at its bound and should be called again soon.
    """

    started: list[RunningAction] = field(default_factory=list[RunningAction])
    opened: list[int] = field(default_factory=list[int])
    expired: list[int] = field(default_factory=list[int])
    more: bool = False


@dataclass(slots=True)
class Round:
    """One call of `decide`: its answer so far, and who is deferred, with the dimension that each then blocks."""

    now_s: float
    decisions: Decisions = field(default_factory=Decisions)
    deferred: dict[int, int] = field(default_factory=dict[int, int])
