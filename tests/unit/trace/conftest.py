"""A small made-up run: two cores, memory, a quota of calls, and one event of every kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from arl_tangram.model.elasticity import Measured
from arl_tangram.model.events import (
    ActionDeferred,
    ActionEnded,
    ActionLent,
    ActionResized,
    ActionResumed,
    ActionStarted,
    ActionSubmitted,
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
from arl_tangram.model.gpu import Chunk, Instance, Seat, SeatNeed
from arl_tangram.model.lifecycle import Demand, FinishedAction, Outcome, PendingAction, RunningAction
from arl_tangram.model.topology import Dimension, Topology

GIB = 1 << 30


@pytest.fixture
def topology() -> Topology:
    return Topology(
        [
            Dimension("cpu", 2000, 1000),
            Dimension("memory", 8 * GIB, GIB),
            Dimension("quota:search/calls", 3000, 1000, 10.0),
        ]
    )


@pytest.fixture
def tests_demand() -> Demand:
    """Elastic over one or two cores, with a GiB."""
    return Demand(
        name="agent:run_tests",
        fixed=((1, GIB),),
        elastic=0,
        options=(1000, 2000),
        speedup=Measured({1: 1.0, 2: 1.75}),
        relative=(1.0, 1 / 1.75),
        dimensions=0b011,
        priority=-1,
        queue_timeout=30.5,
        duration_s=2.25,
    )


@pytest.fixture
def search_demand() -> Demand:
    """One call of the quota."""
    return Demand(name="agent:search", fixed=((2, 1000),), dimensions=0b100)


@pytest.fixture
def finished() -> Callable[..., FinishedAction]:
    def make(number: int = 1, name: str = "agent:run_tests", **changes: object) -> FinishedAction:
        fields: dict[str, object] = {
            "key": "",
            "trajectory": None,
            "outcome": Outcome.OK,
            "error": None,
            "submitted_at_s": 0.0,
            "queueing_s": 0.5,
            "execution_s": 1.5,
            "overhead_s": 0.25,
            "cpu_s": 2.0,
            "cores": 2.0,
        }
        return FinishedAction(id=number, name=name, **(fields | changes))  # type: ignore[arg-type]

    return make


@pytest.fixture
def events(tests_demand: Demand, search_demand: Demand, finished: Callable[..., FinishedAction]) -> tuple[Event, ...]:
    """Ten seconds: a trajectory waits 2 s, runs its tests on two cores, and a search times out in the queue."""
    tests = PendingAction(1, tests_demand, 102.0, key="tests/", trajectory=7, turn=True)
    search = PendingAction(2, search_demand, 102.5, key='quo"ted\n', trajectory=7)
    late = PendingAction(3, search_demand, 104.0)
    return (
        TrajectoryOpened(102.0, 7, "group-1", 2.0, 0),
        ActionSubmitted(102.0, tests),
        ActionDeferred(102.25, 1),
        ActionSubmitted(102.5, search),
        ActionStarted(102.5, RunningAction(search, 102.5, 0, 0.1)),
        ActionStarted(103.0, RunningAction(tests, 103.0, 2000, 1.285714)),
        ActionEnded(103.5, finished(2, "agent:search", key='quo"ted\n', trajectory=7, submitted_at_s=102.5,
                                    queueing_s=0.0, execution_s=0.875, overhead_s=0.125, cpu_s=0.0, cores=0.0)),
        UnitsReturned(103.5, 2),
        PolicyRefused(103.75, "mine", 'ValueError: planned "9"'),
        ActionSubmitted(104.0, late),
        ActionEnded(104.5, finished(3, "agent:search", outcome=Outcome.QUEUE_TIMEOUT, error="QueueTimeout",
                                    submitted_at_s=104.0, queueing_s=0.5, execution_s=0.0, overhead_s=0.0,
                                    cpu_s=0.0, cores=0.0)),
        ActionEnded(106.0, finished(1, key="tests/", trajectory=7, submitted_at_s=102.0, queueing_s=1.0,
                                    execution_s=2.5, overhead_s=0.5, cpu_s=4.0)),
        UnitsReturned(107.0, 1),
        TrajectoryClosed(112.0, 7),
    )  # fmt: skip


@pytest.fixture
def resized_events(tests_demand: Demand, finished: Callable[..., FinishedAction]) -> tuple[Event, ...]:
    """Ten seconds: tests on two cores are cut to one, suspended, and go on with one."""
    tests = PendingAction(1, replace(tests_demand, preemptible=True, resizable=True), 100.0)
    return (
        ActionSubmitted(100.0, tests),
        ActionStarted(100.0, RunningAction(tests, 100.0, 2000, 1.0)),
        ActionResized(102.0, 1, 1000),
        ActionResized(103.0, 1, 0),
        ActionResized(107.0, 1, 1000),
        PolicyRefused(108.0, "mine", "ValueError: 9 cores", shares=True),
        ActionEnded(109.5, finished(1, submitted_at_s=100.0, queueing_s=0.0, execution_s=5.0, overhead_s=0.5,
                                    suspended_s=4.0, switches=3)),
        UnitsReturned(110.0, 1),
    )  # fmt: skip


@pytest.fixture
def later_events(search_demand: Demand) -> tuple[Event, ...]:
    """What happens in some runs only: lending, settling, another capacity, a pause, and a call within a call."""
    child = PendingAction(12, search_demand, 2.0, trajectory=7, parent=11, since_s=1.5)
    judge = Demand(name="agent:judge", fixed=((2, 1000),), dimensions=0b100, seat=SeatNeed("judge", (1, 2)))
    judged, alone = PendingAction(13, judge, 2.0), PendingAction(14, replace(judge, seat=SeatNeed(None, (2,))), 2.0)
    seat = Seat(Chunk(2, 2), Instance("judge", 2), restores=True, evicts=(Instance("old", 1), Instance("old", 2)))
    return (
        ActionSubmitted(2.0, judged),
        ActionSubmitted(2.0, alone),
        ActionStarted(2.0, RunningAction(judged, 2.0, 0, 0.0, seat)),
        ActionStarted(2.0, RunningAction(alone, 2.0, 0, 0.0, Seat(Chunk(4, 2)))),
        ServiceEvicted(2.0, Instance("old", 1), Chunk(3, 1)),
        ServiceRestored(2.0, Instance("judge", 2), Chunk(2, 2), 0.75),
        RestoreFailed(2.0, Instance("judge", 1), Chunk(7, 1)),
        ServiceLost(2.0, Instance("judge", 2), Chunk(2, 2)),
        ActionLent(2.0, 11, 2000),
        ActionSubmitted(2.0, child),
        ActionStarted(2.5, RunningAction(child, 2.5, 0, 0.0)),
        UnitsSettled(2.75, 12, 2, 2500),
        ActionResumed(3.0, 11, 2000),
        CapacityChanged(3.5, 0, 1000),
        Paused(4.0, paused=True),
        Paused(5.0, paused=False),
    )
