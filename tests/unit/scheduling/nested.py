"""A core, driven step by step, for tests of actions that call others."""

from __future__ import annotations

from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.topology import CPU, MEMORY, THREADS, Dimension, Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.decisions import Decisions
from arl_tangram.scheduling.policies import paper
from arl_tangram.scheduling.policy import Policy

TOPOLOGY = Topology([Dimension(CPU, 4000, 1000), Dimension(MEMORY, 8), Dimension(THREADS, 2)])


def cores(units: int, *, memory: int = 0, threads: int = 0, name: str = "", priority: int = 0) -> Demand:
    """A demand for so many milli-cores: whole ones are handed out, others are fixed."""
    fixed = [(d, u) for d, u in ((1, memory), (2, threads)) if u]
    whole = units % 1000 == 0 and units > 0
    if units and not whole:
        fixed.append((0, units))
    mask = sum(1 << d for d, _ in fixed) | (1 if whole else 0)
    options, relative = ((units,), (1.0,)) if whole else ((), ())
    return Demand(
        name or f"c{units}m{memory}t{threads}",
        tuple(fixed),
        0 if whole else None,
        options,
        relative=relative,
        dimensions=mask,
        priority=priority,
        milli_cores=0 if whole else units,
    )


class Scene:
    """A core whose decisions are summed up."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.core = SchedulerCore(TOPOLOGY, policy or paper(), record=True, submissions=False)
        self.now_s = 0.0
        self._next_id = 100
        self.refused: dict[int, Exception] = {}

    def submit(
        self, demand: Demand, *, parent: int | None = None, trajectory: int | None = None, turn: bool = False
    ) -> int:
        self._next_id += 1
        action = PendingAction(self._next_id, demand, self.now_s, "", trajectory, turn, parent=parent)
        self.core.submit(action)
        return action.id

    def trajectory(self, *, memory: int = 0) -> int:
        self._next_id += 1
        fixed = ((1, memory),) if memory else ()
        self.core.open(PendingAction(self._next_id, Demand("trajectory", fixed, dimensions=2 if memory else 0), 0.0))
        assert self.decide().opened == [self._next_id]
        return self._next_id

    def decide(self) -> Decisions:
        all_ = Decisions()
        while True:
            one = self.core.decide(self.now_s)
            all_.started += one.started
            all_.resumed += one.resumed
            all_.opened += one.opened
            self.refused.update(one.impossible)
            if not one.more:
                return all_

    def started(self) -> list[int]:
        return [running.pending.id for running in self.decide().started]

    def resumed(self) -> list[int]:
        return [running.pending.id for running in self.decide().resumed]

    def run(self, demand: Demand, *, trajectory: int | None = None, turn: bool = False) -> int:
        """Submit an action that starts at once."""
        action_id = self.submit(demand, trajectory=trajectory, turn=turn)
        assert self.started() == [action_id]
        return action_id

    def lend(self, *action_ids: int, cores: bool = True) -> None:
        for action_id in action_ids:
            self.core.lend(action_id, self.now_s, cores=cores)

    def finish(self, *action_ids: int) -> None:
        for action_id in action_ids:
            self.core.finish(action_id, self.now_s, None)
