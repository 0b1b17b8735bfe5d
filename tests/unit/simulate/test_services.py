"""Calls that use services, or have GPUs to themselves: scenarios worked out by hand, and what holds of every run."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arl_tangram.errors import ConfigurationError, InfeasibleError
from arl_tangram.managers.quota import Quota
from arl_tangram.model.cost import Cost, declare_cost
from arl_tangram.model.elasticity import Elastic, Linear, Measured, Speedup
from arl_tangram.model.events import ActionStarted, ServiceEvicted, ServiceRestored, UnitsReturned
from arl_tangram.model.gpu import Chunk, HostedService, Instance
from arl_tangram.model.lifecycle import ActionSpec, BodyKind, Outcome
from arl_tangram.model.quantities import GIB
from arl_tangram.model.topology import GPU, Dimension, Topology
from arl_tangram.scheduling.durations import Durations
from arl_tangram.scheduling.gpu.eviction import EvictionName
from arl_tangram.scheduling.policies.elastic import elastic
from arl_tangram.scheduling.policies.fixed import fixed
from arl_tangram.simulate.calls import Arrival, Call, Rollout, Turn, Workload
from arl_tangram.simulate.engine import simulate
from arl_tangram.simulate.gpus import Gpus, gpu_nodes, hosted
from arl_tangram.simulate.results import Result
from unit.simulate.drawn import pools
from unit.simulate.drawn_services import SERVICES, beside, draw_uses, simulated

JUDGE = hosted("judge", gib=60, restore_s=2)
TEACHER = hosted("teacher", gib=60, restore_s=3)


def use(
    service: str,
    work_s: float,
    speedup: Speedup | None = None,
    *,
    timeout: float | None = None,
    queue_timeout: float | None = None,
) -> Call:
    spec = ActionSpec(f"use {service}", Cost(service=service), timeout=timeout, queue_timeout=queue_timeout)
    return Call(spec, work_s, speedup)


def devices(count: int | Elastic, work_s: float, speedup: Speedup | None = None) -> Call:
    return Call(ActionSpec("train", declare_cost("train", gpu=count), kind=BodyKind.PROCESS), work_s, speedup)


def run(*calls: tuple[float, Call], gpus: Gpus, known: bool = False) -> Result:
    workload = Workload(tuple(Arrival(at_s, call) for at_s, call in calls))
    topology = Topology([*pools(4).dimensions, Dimension("processes", 8)])
    return simulate(workload, topology, fixed(1), gpus=gpus, known=known, record=True)


def one(*services: HostedService, gpus: int = 1) -> Gpus:
    return Gpus(gpu_nodes(1, gpus=gpus), services)


def spans(result: Result) -> list[tuple[float, float, float]]:
    """When calls were promised their seats, began and ended."""
    return [(call.started_at_s, call.started_at_s + call.overhead_s, call.ended_at_s) for call in result.calls]


# Restores.


def test_the_first_call_waits_for_the_restore_and_the_next_finds_it_there() -> None:
    result = run((0, use("judge", 1)), (5, use("judge", 1)), gpus=one(JUDGE))
    assert spans(result) == [(0, 2, 3), (5, 5, 6)]
    first, second = result.calls
    assert (first.queueing_s, first.overhead_s, first.execution_s, first.act_s, first.gpus) == (0, 2, 1, 3, 1)
    assert (second.overhead_s, second.act_s) == (0, 1)
    assert (result.mean_overhead_s, result.mean_execution_s) == (1, 1)


def test_what_is_idle_goes_at_once_for_another_and_is_restored_again() -> None:
    result = run((0, use("judge", 1)), (4, use("teacher", 1)), (9, use("judge", 1)), gpus=one(JUDGE, TEACHER))
    assert spans(result) == [(0, 2, 3), (4, 7, 8), (9, 11, 12)]
    moved = [event for event in result.events if isinstance(event, (ServiceRestored, ServiceEvicted))]
    chunk, judge, teacher = Chunk(0, 1), Instance("judge", 1), Instance("teacher", 1)
    assert moved == [
        ServiceRestored(2, judge, chunk, 2),
        ServiceEvicted(4, judge, chunk),
        ServiceRestored(7, teacher, chunk, 3),
        ServiceEvicted(9, teacher, chunk),
        ServiceRestored(11, judge, chunk, 2),
    ]


def test_what_is_in_use_does_not_go() -> None:
    result = run((0, use("judge", 4)), (1, use("teacher", 1)), gpus=one(JUDGE, TEACHER))
    assert spans(result) == [(0, 2, 6), (6, 9, 10)]
    assert result.calls[1].queueing_s == 5


def test_those_who_join_a_restore_wait_for_what_is_left_of_it() -> None:
    judge = hosted("judge", gib=60, restore_s=2, max_concurrency=2)
    result = run((0, use("judge", 3)), (1.5, use("judge", 1)), (1.75, use("judge", 1)), gpus=one(judge))
    assert spans(result) == [(0, 2, 5), (1.5, 2, 3), (3, 3, 4)]


def test_copies_to_one_device_go_one_after_the_other() -> None:
    small = [hosted(name, gib=20, restore_s=2) for name in ("a", "b")]
    result = run((0, use("a", 1)), (0.5, use("b", 1)), gpus=one(*small))
    assert spans(result) == [(0, 2, 3), (0.5, 4, 5)]
    apart = run((0, use("a", 1)), (0.5, use("b", 1)), gpus=one(*[hosted(n, gib=80, restore_s=2) for n in "ab"], gpus=2))
    assert spans(apart) == [(0, 2, 3), (0.5, 2.5, 3.5)]
    took = [event.took_s for event in result.events if isinstance(event, ServiceRestored)]
    assert took == [2, 2]


def test_a_timeout_counts_from_the_end_of_the_restore_and_a_queue_timeout_to_the_seat() -> None:
    result = run(
        (0, use("judge", 1.5, timeout=1.75)),
        (3, use("judge", 4, timeout=1)),
        (3, use("judge", 1, queue_timeout=0.5)),
        gpus=one(JUDGE),
    )
    assert [call.outcome for call in result.calls] == [Outcome.OK, Outcome.RUN_TIMEOUT, Outcome.QUEUE_TIMEOUT]
    assert spans(result) == [(0, 2, 3.5), (3.5, 3.5, 4.5), (3.5, 3.5, 3.5)]


def test_no_restore_is_learned_as_a_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[object] = []

    def observe(*observed: object) -> None:
        learned.append(observed[-1])

    monkeypatch.setattr(Durations, "observe", observe)
    result = run((0, use("judge", 4)), (10, use("teacher", 5)), (20, use("teacher", 6)), gpus=one(JUDGE, TEACHER))
    assert [call.overhead_s for call in result.calls] == [2, 3, 0]
    assert learned == [4, 5, 6]


# Dops, and GPUs of one's own.


def test_a_service_on_two_gpus_takes_as_long_as_its_speed_up_lets_it() -> None:
    wide = hosted("wide", gib=100, restore_s=4, dops=(2,))
    result = run((0, use("wide", 6, Measured({1: 1, 2: 1.5}))), gpus=one(wide, gpus=2))
    assert spans(result) == [(0, 2, 6)]  # half of the weights on each device, and 6 / 1.5
    assert result.calls[0].gpus == 2


def test_the_dop_is_chosen_by_what_is_known() -> None:
    """On one GPU 3 + 12 s, on two 1.5 + 6 s, on four 0.75 + 3 s; without a speed-up, four copies are only faster."""
    wide = hosted("wide", gib=40, restore_s=3, dops=(1, 2, 4))
    result = run((0, use("wide", 12, Linear())), gpus=one(wide, gpus=4), known=True)
    assert spans(result) == [(0, 0.75, 3.75)]
    start = next(event for event in result.events if isinstance(event, ActionStarted))
    assert result.calls[0].gpus == 4
    assert start.action.pending.demand.seat is not None
    assert start.action.pending.demand.seat.relative == (1, 0.5, 0.25)


def test_a_call_has_gpus_to_itself_and_what_is_idle_there_goes() -> None:
    calls = [(0, use("judge", 1)), (4, devices(1, 5)), (5, use("judge", 1))]
    result = run(*calls, gpus=one(JUDGE))
    assert spans(result) == [(0, 2, 3), (4, 4, 9), (9, 11, 12)]
    assert [call.gpus for call in result.calls] == [1, 1, 1]


def test_a_call_that_may_have_more_gpus_takes_what_is_worth_it() -> None:
    call = devices(Elastic.of(1, 2, 4, speedup=Linear()), 8, Linear())
    result = run((0, call), gpus=one(gpus=4), known=True)
    assert spans(result) == [(0, 0, 2)]
    assert result.calls[0].gpus == 4


def test_cores_and_quotas_beside_a_service_are_counted() -> None:
    spec = ActionSpec("use judge", declare_cost("use", service="judge", cpu=3, quota={"api": 1}))
    judge = hosted("judge", gib=10, restore_s=0, max_concurrency=9)
    topology = pools(4, 8, Quota("api", concurrency=2))
    workload = Workload(tuple(Arrival(0, Call(spec, 1)) for _ in range(3)))
    result = simulate(workload, topology, elastic(), gpus=one(judge))
    assert [call.started_at_s for call in result.calls] == [0, 1, 2]


def test_a_rollout_asks_a_judge_and_another_goes_on_meanwhile() -> None:
    command = ActionSpec("command", Cost(cpu=1000))
    turns = (Turn(1, (Call(command, 2),)), Turn(0, (use("judge", 2),)))
    result = simulate(Workload(rollouts=(Rollout(turns), Rollout(turns))), pools(1), elastic(), gpus=one(JUDGE))
    assert [(call.rollout, call.started_at_s, call.ended_at_s) for call in result.calls] == [
        (0, 1, 3), (1, 3, 5), (0, 3, 7), (1, 7, 9),
    ]  # fmt: skip
    assert [rollout.closed_at_s for rollout in result.rollouts] == [7, 9]


# Quotas.


def test_the_windows_of_a_quota_count_together() -> None:
    """Two within 10 s, three within 100 s, five ever."""
    api = ActionSpec("api", declare_cost("api", quota={"api": 1}))
    quota = Quota("api", calls=[(2, 10), (3, 100)], total_calls=5)
    workload = Workload(tuple(Arrival(0, Call(api, 1)) for _ in range(6)))
    result = simulate(workload, pools(1, 8, quota), elastic())
    assert [call.started_at_s for call in result.calls][:5] == [0, 0, 10, 100, 100]
    assert [call.outcome for call in result.calls] == [Outcome.OK] * 5 + [Outcome.ERROR]


# Bad input.


def test_what_no_pool_can_meet_is_told() -> None:
    with pytest.raises(InfeasibleError, match="asks for the service 'oracle'; this runtime has only 'judge'"):
        run((0, use("oracle", 1)), gpus=one(JUDGE))
    with pytest.raises(InfeasibleError, match="no services"):
        simulate(Workload((Arrival(0, use("judge", 1)),)), pools(1), elastic())
    with pytest.raises(InfeasibleError, match="judge"):
        run((0, use("judge", 1)), gpus=one(hosted("judge", gib=90, restore_s=1)))
    with pytest.raises(InfeasibleError, match="4 GPUs"):
        run((0, devices(4, 1)), gpus=one(JUDGE, gpus=2))


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_times_that_cannot_be_are_told(bad: float) -> None:
    with pytest.raises(ConfigurationError, match=r"really takes .* on 1 GPUs"):
        run((0, use("judge", bad)), gpus=one(JUDGE))
    with pytest.raises(ConfigurationError, match="restore_s"):
        hosted("judge", gib=1, restore_s=bad)
    wrong = HostedService("judge", JUDGE.footprints, ((1, bad),))
    with pytest.raises(ConfigurationError, match="'judge' needs finite seconds from 0 for a restore at a dop of 1"):
        run((0, use("judge", 1)), gpus=one(wrong))


def test_dimensions_that_are_not_those_of_the_gpus_are_told() -> None:
    gpus = one(JUDGE, gpus=2)
    added = gpus.added_to(pools(1))
    assert [(one.name, one.capacity) for one in added.dimensions[-2:]] == [("gpu", 2), ("service:judge", 1)]
    assert gpus.added_to(added) is added
    with pytest.raises(ConfigurationError, match=r"the topology has 3 of gpu, and Gpus\(\) has 2"):
        gpus.added_to(Topology([Dimension(GPU, 3)]))
    with pytest.raises(ConfigurationError, match="the topology has the service 'judge'"):
        one(TEACHER, gpus=2).added_to(added)


# What holds of every run.

ANY = st.integers(0, 2**32)
EVICTIONS: list[EvictionName] = ["loss", "lru", "gdsf"]


@settings(max_examples=25)
@given(seed=ANY, eviction=st.sampled_from(EVICTIONS), gpus=st.sampled_from([4, 8]), known=st.booleans())
def test_each_call_ends_and_neither_seats_nor_gpus_are_given_twice(
    seed: int, eviction: EvictionName, gpus: int, known: bool
) -> None:
    workload, pool = draw_uses(seed), simulated(gpus, eviction)
    result = simulate(workload, beside(), elastic(), known=known, record=True, gpus=pool)
    made = len(workload.arrivals) + sum(len(turn.calls) for one in workload.rollouts for turn in one.turns)
    assert len(result.calls) == made
    counts = Counter(type(event) for event in result.events)
    waited_in_vain = sum(call.outcome is Outcome.QUEUE_TIMEOUT for call in result.calls)
    assert counts[ActionStarted] == counts[UnitsReturned] == made - waited_in_vain
    for call in result.calls:
        assert call.submitted_at_s <= call.started_at_s <= call.ended_at_s <= result.step_s
        assert call.overhead_s >= 0
        assert call.act_s == pytest.approx(call.queueing_s + call.overhead_s + call.execution_s)
    _check_devices(result, gpus)
    assert simulate(workload, beside(), elastic(), known=known, record=True, gpus=pool) == result


def _check_devices(result: Result, gpus: int) -> None:
    """Add up by the events alone who is on which device, and what that takes of it."""
    services = {service.name: service.hosted() for service in SERVICES}
    chunk_of: dict[Instance, Chunk] = {}
    seated: dict[int, Instance] = {}
    for event in result.events:
        if isinstance(event, ActionStarted) and (seat := event.action.seat) is not None:
            assert seat.instance is not None
            assert not set(seat.evicts) & set(seated.values())
            for victim in seat.evicts:
                chunk_of.pop(victim, None)
            if seat.restores:
                assert seat.instance not in chunk_of
                chunk_of[seat.instance] = seat.chunk
            assert chunk_of[seat.instance] == seat.chunk
            seated[event.action.pending.id] = seat.instance
            sitting = sum(other == seat.instance for other in seated.values())
            assert sitting <= services[seat.instance.service].max_concurrency
        elif isinstance(event, UnitsReturned):
            seated.pop(event.id, None)
        elif isinstance(event, ServiceEvicted):
            assert event.instance not in seated.values()
        for device in range(gpus):
            there = [instance for instance, chunk in chunk_of.items() if device in chunk.devices]
            taken = [dict(services[one.service].footprints)[one.dop].resident_bytes for one in there]
            assert sum(taken) <= 80 * GIB
            using = {instance for instance in there if instance in seated.values()}
            assert len(using) <= 1 or not any(services[one.service].exclusive for one in using)
    assert not seated
