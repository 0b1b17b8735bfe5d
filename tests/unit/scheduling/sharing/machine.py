"""A core object whose running actions share their cores, for tests that say what happens one step after the other."""

from __future__ import annotations

from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.quantities import GIB
from arl_tangram.model.sharing import SharePolicy, Sharing
from arl_tangram.model.topology import CPU, MEMORY, THREADS, Dimension, Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.decisions import Decisions
from arl_tangram.scheduling.feasibility import trajectory_demand
from arl_tangram.scheduling.policies import Policy, elastic, equal_shares
from property.worlds import make_demand


class Machine:
    """A core object with trajectories that are open, in which actions are called."""

    def __init__(
        self,
        cores: float = 4,
        sharing: SharePolicy | None = None,
        switch_s: float = 0.0,
        policy: Policy | None = None,
    ) -> None:
        self.topology = Topology(
            [Dimension(CPU, round(cores * 1000), 1000), Dimension(MEMORY, 16 * GIB, GIB), Dimension(THREADS, 4)]
        )
        shared = Sharing(sharing or equal_shares(), switch_s)
        self.core = SchedulerCore(self.topology, policy or elastic(), record=True, sharing=shared)
        self.now_s = 0.0
        self.units: dict[int, int] = {}
        self.resizes = 0
        self._last = 0

    def demand(self, cpu: float | Elastic = 1, *, name: str = "act", **more: object) -> Demand:
        return make_demand(self.topology, name, cpu=cpu, node=0, **more)  # type: ignore[arg-type]

    def open(self) -> int:
        self._last += 1
        held = trajectory_demand(self.topology, memory_bytes=0, reserved=0)
        self.core.open(PendingAction(self._last, held, self.now_s))
        self.decide()
        return self._last

    def submit(self, cpu: float | Elastic = 1, *, parent: int | None = None, **more: object) -> int:
        """Submit an action of a new trajectory, or of the one of `parent`."""
        trajectory = self.open()
        self._last += 1
        demand = self.demand(cpu, **more)
        self.core.submit(PendingAction(self._last, demand, self.now_s, trajectory=trajectory, turn=True, parent=parent))
        return self._last

    def submit_only(self, cpu: float | Elastic = 1, *, parent: int | None = None, **more: object) -> int:
        """Submit an action outside of any trajectory, and decide nothing."""
        self._last += 1
        self.core.submit(PendingAction(self._last, self.demand(cpu, **more), self.now_s, parent=parent))
        return self._last

    def decide(self, at_s: float | None = None) -> Decisions:
        """Decide until nothing more is to be decided; return the last that did anything."""
        self.now_s = self.now_s if at_s is None else at_s
        did = Decisions()
        for _ in range(20):
            decisions = self.core.decide(self.now_s)
            did = decisions if decisions.any or decisions.refused_share else did
            for running in (*decisions.resized, *decisions.resumed, *decisions.started):
                self.units[running.pending.id] = running.units // 1000
            self.resizes += len(decisions.resized)
            if not decisions.more:
                return did
        raise AssertionError("it does not come to rest")

    def finish(self, action_id: int, duration_s: float | None = None) -> None:
        del self.units[action_id]
        self.core.finish(action_id, self.now_s, duration_s)
