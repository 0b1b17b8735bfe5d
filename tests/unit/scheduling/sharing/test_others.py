"""What a core object does with running actions that share their cores, and others beside them that do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import pytest

from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.sharing import SharePolicy, Sharer
from arl_tangram.scheduling.policies import Group, Plan, equal_shares, least_attained, size_aware
from unit.scheduling.sharing.machine import Machine


class Run:
    """A machine on which all that runs does its work in virtual time; one core does a second of it in a second."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.left_s: dict[int, float] = {}
        self.started_s: dict[int, float] = {}
        self.learns = False
        self._sharers: set[int] = set()
        self._held_s: dict[int, float] = {}
        self._cores: dict[int, float] = {}

    def submit(self, cpu: float | Elastic, work_s: float, **more: object) -> int:
        action_id = self.machine.submit(cpu, **more)  # type: ignore[arg-type]
        self.left_s[action_id] = work_s
        if more.get("preemptible", True) or (isinstance(cpu, Elastic) and cpu.resizable):
            self._sharers.add(action_id)
        return action_id

    def until(self, end_s: float, *, every_s: float = inf, arrive: Callable[[], object] | None = None) -> None:
        """Go on until a time, and let something arrive now and then."""
        machine = self.machine
        next_s = machine.now_s
        self._note()
        while machine.now_s < end_s:
            if arrive is not None and machine.now_s >= next_s - 1e-9:
                arrive()
                next_s += every_s
            machine.decide()
            self._note()
            times = [end_s, next_s if arrive is not None else inf, machine.core.next_wakeup_s() or inf]
            times += [machine.now_s + self.left_s[i] / cores for i, cores in self._cores.items() if cores]
            now_s = max(min(times), machine.now_s + 1e-6)
            for action_id, cores in self._cores.items():
                self.left_s[action_id] -= cores * (now_s - machine.now_s)
                self._held_s[action_id] = self._held_s.get(action_id, 0.0) + bool(cores) * (now_s - machine.now_s)
            machine.now_s = now_s
            for action_id in [i for i in self._cores if self.left_s[i] <= 1e-6]:
                self.end(action_id)

    def end(self, action_id: int) -> None:
        self.machine.finish(action_id, self._held_s[action_id] if self.learns else None)
        del self._cores[action_id]

    def lend(self, action_id: int) -> None:
        """It waits for what it has called; it goes on when it has its cores back, and has no work then."""
        self.machine.core.lend(action_id, self.machine.now_s)
        del self._cores[action_id], self.machine.units[action_id]

    def _note(self) -> None:
        for action_id, units in self.machine.units.items():
            if action_id in self.left_s:
                self.started_s.setdefault(action_id, self.machine.now_s)
                self._cores[action_id] = units if action_id in self._sharers else 1


def runs(cores: float = 4, sharing: SharePolicy | None = None) -> Run:
    return Run(Machine(cores, sharing or size_aware()))


def test_a_wide_sharer_starts_though_small_others_keep_coming() -> None:
    run = runs()
    run.submit(1, 1.0, preemptible=False)
    run.until(0.2)
    wide = run.submit(4, 4.0, duration_s=1)
    run.until(60, every_s=0.5, arrive=lambda: run.submit(1, 1.0, preemptible=False))
    assert run.started_s[wide] < 13


def test_sharers_keep_their_part_though_more_others_come_than_there_is_room_for() -> None:
    run = runs()
    sharers = [run.submit(1, 60.0, duration_s=60) for _ in range(4)]
    run.until(100, every_s=0.25, arrive=lambda: run.submit(1, 2.0, preemptible=False))
    assert sum(run.left_s[sharer] for sharer in sharers) < 4 * 60 - 95


def test_others_of_which_one_fits_beside_sharers_run_one_after_the_other() -> None:
    run = runs(cores=2)
    for _ in range(40):
        run.submit(1, 1000.0)
    others = [run.submit(1, 1.0, preemptible=False) for _ in range(3)]
    run.until(4)
    assert [run.started_s[other] for other in others] == pytest.approx([0, 1, 2], abs=0.01)


def test_a_small_other_does_not_overtake_a_large_one_for_ever() -> None:
    run = runs()
    for _ in range(4):
        run.submit(1, 1000.0)
    run.submit(1, 1.0, preemptible=False)
    run.until(0.5)
    large = run.submit(3, 3.0, preemptible=False)
    run.until(20, every_s=0.5, arrive=lambda: run.submit(1, 1.0, preemptible=False))
    assert run.started_s[large] < 3


def test_an_other_is_looked_at_again_when_a_caller_before_it_has_its_cores_and_ends() -> None:
    run = runs()
    caller = run.submit(3, inf, preemptible=False)
    run.until(0.1)
    run.lend(caller)
    run.submit(2, 35.0, preemptible=False)
    run.until(1)
    assert not run.machine.core.reclaim(caller, run.machine.now_s)
    behind = run.submit(1, 1.0, preemptible=False)
    for _ in range(30):
        run.submit(1, 5.0)
    run.until(40, every_s=5, arrive=lambda: run.submit(1, 1.0))
    run.machine.finish(caller)
    run.until(80, every_s=0.2, arrive=lambda: run.submit(1, 1.0))
    assert run.started_s[behind] < 45


@dataclass(frozen=True)
class WhenAllIsFree:
    """A start policy that starts nobody before it can have all that others have."""

    name: str = "when all is free"
    reserved_cores: int = 0

    def planner(self) -> Plan:
        def plan(group: Group) -> list[int]:
            return [group.candidates[0].units[0]] if group.free == group.capacity else []

        return plan


def test_who_was_put_off_finds_room_again_when_others_have_ended_and_nothing_flaps_before() -> None:
    machine = Machine(4, equal_shares(), policy=WhenAllIsFree())
    run = Run(machine)
    run.submit(1, 8.0, preemptible=False)
    for _ in range(6):
        run.submit(1, 1000.0)
    run.until(1)
    put_off = run.submit(Elastic(1, 4), 1.0, preemptible=False)
    run.until(1.5)
    machine.resizes = 0
    run.until(7.5, every_s=0.5, arrive=lambda: run.submit(1, 1000.0))
    assert machine.resizes <= 2
    run.until(20)
    assert run.started_s[put_off] == pytest.approx(8, abs=1.1)


def test_many_others_that_lack_something_else_hide_nobody_behind_them() -> None:
    run = runs(cores=2)
    for _ in range(4):
        run.submit(0, 1000.0, thread=True, preemptible=False)
    run.until(0.1)
    for _ in range(100):
        run.submit(0.1, 1.0, thread=True, preemptible=False)
        run.submit(1, 100.0)
    only_cores = run.submit(1, 1.0, preemptible=False)
    run.until(1)
    assert only_cores in run.started_s


def test_cores_that_a_caller_wants_back_and_cannot_have_yet_are_not_left_idle() -> None:
    run = runs()
    caller = run.submit(4, inf, preemptible=False)
    run.until(0.1)
    run.lend(caller)
    run.submit(Elastic(1, 2, resizable=True), 50.0, preemptible=False)
    for _ in range(6):
        run.submit(1, 50.0)
    run.until(1)
    assert not run.machine.core.reclaim(caller, run.machine.now_s)
    late = run.submit(Elastic(1, 2, resizable=True), 1.0, preemptible=False)
    run.until(2)
    assert run.machine.core.free(0) == 0
    assert late not in run.started_s, "it could not be suspended for the caller"


def test_those_that_wait_are_ranked_anew_when_it_is_known_how_long_they_are() -> None:
    run = runs(cores=1)
    for _ in range(30):
        run.submit(1, 5.0, name="long")
        run.submit(1, 0.05, name="short")
    run.learns = True
    short = [i for i, left_s in run.left_s.items() if left_s == 0.05]
    run.until(15)
    assert all(run.left_s[i] <= 1e-6 for i in short)


def test_what_has_run_for_long_is_not_overdue_as_it_is_longer_than_was_thought() -> None:
    run = runs(cores=1)
    long = run.submit(1, 1000.0, duration_s=0.1)
    run.until(50)
    short = [run.submit(1, 1.0, duration_s=1) for _ in range(2)]
    run.until(52.5)
    assert [run.left_s[i] <= 1e-6 for i in short] == [True, True]
    assert run.left_s[long] == pytest.approx(950, abs=1)


class Interrupted:
    """A policy whose `rank` is interrupted once."""

    name = "interrupted"

    def __init__(self, at: int) -> None:
        self.at = at
        self.asked = 0

    def rank(self, sharer: Sharer) -> float:
        self.asked += 1
        if self.asked == self.at:
            raise KeyboardInterrupt
        return float(sharer.order)

    def next_s(self, sharer: Sharer) -> float:
        return sharer.attained_s + 0.5

    def share(self, sharers: object, cores: int, present: int) -> list[int]:
        return equal_shares().share(sharers, cores, present)  # type: ignore[arg-type]


@pytest.mark.parametrize("at", range(1, 25))
def test_an_interruption_of_a_rank_loses_nobody_and_starts_nobody_twice(at: int) -> None:
    policy = Interrupted(at)
    machine = Machine(2, policy)
    told: list[int] = []

    def decide(at_s: float) -> None:
        for _ in range(3):
            try:
                told.extend(running.pending.id for running in machine.decide(at_s).started)
            except KeyboardInterrupt:
                continue
            return

    actions = [machine.submit_only() for _ in range(4)]
    decide(0.0)
    machine.core.lend(actions[0], 0.2)
    called = machine.submit_only(parent=actions[0])
    decide(0.3)
    machine.core.reclaim(actions[0], 0.4)
    decide(0.4)
    for at_s in (1.0, 2.0, 3.0, 4.0, 5.0):
        for action_id in [i for i in told if i in machine.core._running][:1]:
            machine.core.finish(action_id, at_s, None)
        decide(at_s)
    assert policy.asked >= at or at > 15
    assert sorted(told) == sorted([*actions, called])
    assert machine.core.used(0) + machine.core.free(0) == 2000
    assert machine.core.running == 0


def test_many_that_come_at_once_are_taken_in_little_by_little() -> None:
    machine = Machine(4, least_attained())
    for _ in range(600):
        machine.submit_only()
    calls = 1
    while machine.core.decide(0.0).more:
        calls += 1
    assert 3 <= calls <= 6
    assert machine.core.running == 4


def test_ranks_are_asked_for_again_no_sooner_than_what_runs_may_be_changed() -> None:
    machine = Machine(4, least_attained(), switch_s=0.001)
    for _ in range(8):
        machine.submit_only()
    machine.decide(0.0)
    for _ in range(50):
        again_s = machine.core.next_wakeup_s()
        assert again_s is not None
        assert again_s >= machine.now_s + 0.01 - 1e-9
        machine.decide(again_s)
