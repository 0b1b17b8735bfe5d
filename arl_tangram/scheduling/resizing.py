"""Change capacities while a core runs, and find who can never run any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.lifecycle import Demand, PendingAction
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.blocking import Blocking
from arl_tangram.scheduling.feasibility import check_beside, check_capacity
from arl_tangram.scheduling.ledger import Ledger
from arl_tangram.scheduling.planning import Planning
from arl_tangram.scheduling.queue import WaitingQueue
from arl_tangram.scheduling.turns import Trajectories


class Resizing:
    """The capacities of one core.

    Args:
        topology: the dimensions, as they are at first.
        ledger: what there is.
        queue: who waits.
        blocking: what those who wait block.
        planning: what is expected to end.
        trajectories: who waits for a turn.
        check_seat: raises InfeasibleError if there can be no seat for a demand; None if there is no pool of GPUs.

    Attributes:
        topology: the dimensions, with the capacities that were set last.
        happened: whether any was ever set, so that demands may have been resolved against others.
        less: whether there is less of something since `exceeding` was asked.
    """

    def __init__(  # noqa: PLR0917 - the parts of one core
        self,
        topology: Topology,
        ledger: Ledger,
        queue: WaitingQueue,
        blocking: Blocking,
        planning: Planning,
        trajectories: Trajectories,
        check_seat: Callable[[Demand], None] | None,
    ) -> None:
        self.topology = topology
        self.happened = False
        self.less = False
        self._ledger = ledger
        self._queue = queue
        self._blocking = blocking
        self._planning = planning
        self._trajectories = trajectories
        self._check_seat = check_seat

    def resize(self, dimension: int, units: int) -> None:
        """Let a dimension have so many integer units."""
        more = units - self._ledger.target[dimension]
        self.topology = self.topology.with_capacity(dimension, units)
        self._ledger.resize(dimension, units)
        self._blocking.resize(dimension, more)
        self._planning.resize()
        self.happened = True
        self.less |= more < 0

    def check(self, demand: Demand) -> None:
        """Check that there is enough for a demand, which may have been resolved when there was more.

        Raises:
            InfeasibleError: there is not.
        """
        if self.happened:
            check_capacity(demand, self.topology)
            if self._check_seat is not None:  # there may be as many devices, and too few of them together
                self._check_seat(demand)

    def exceeding(self) -> Iterator[tuple[PendingAction, InfeasibleError]]:
        """Yield those who wait for more than there is, each with the error that says so."""
        self.less = False
        for action in [*self._queue, *self._trajectories.waiting_actions()]:
            try:
                self.check(action.demand)
                state = None if action.trajectory is None else self._trajectories[action.trajectory]
                if state is not None and state.held is not None:
                    check_beside(action.demand, state.held.demand, self.topology)
            except InfeasibleError as error:
                yield action, error
