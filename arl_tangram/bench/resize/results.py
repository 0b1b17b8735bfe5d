"""All that one run of `bench resize` has found."""

from __future__ import annotations

from dataclasses import dataclass

from arl_tangram.bench.resize.changing import Changed
from arl_tangram.bench.resize.costs import Switches, Workers
from arl_tangram.bench.resize.ending import Kill, Timeout, TrainerKill


@dataclass(frozen=True, slots=True)
class Results:
    """All that was found.

    Attributes:
        grants: what enforces grants here.
        changed: programs whose cores were changed at random.
        timeouts: commands that were suspended for longer than their timeout.
        kills: clean-ups of suspended sandboxes.
        trainers: those that were killed while a sandbox was suspended.
        switches: what a change costs.
        workers: what many workers on one core cost.
    """

    grants: str
    changed: Changed
    timeouts: tuple[Timeout, ...]
    kills: tuple[Kill, ...]
    trainers: tuple[TrainerKill, ...]
    switches: Switches
    workers: Workers
