"""Several windows, tokens, budgets and keys: whatever is granted, settled and paused, no window sees too much."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arl_tangram.errors import InfeasibleError
from arl_tangram.managers.quota import Quota
from arl_tangram.model.cost import QuotaUse, declare_cost
from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.lifecycle import ActionSpec, Demand, PendingAction
from arl_tangram.model.topology import THREADS, Dimension, Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.scheduling.decisions import Decisions
from arl_tangram.scheduling.feasibility import resolve
from arl_tangram.scheduling.policies import fixed, paper
from arl_tangram.scheduling.windows import Window

MILLI = 1000


def topology(*quotas: Quota) -> Topology:
    dimensions = [Dimension(THREADS, 8)]
    for quota in quotas:
        dimensions += quota.dimensions()
    return Topology(dimensions)


def demand(there: Topology, calls: float = 1, tokens: float = 0, name: str = "call") -> Demand:
    use = {quota: QuotaUse(calls, tokens) for quota in there.quotas}
    return resolve(ActionSpec(name, declare_cost(name, quota=use)), there)


class Calls:
    """Drives a core whose actions take quotas."""

    def __init__(self, *quotas: Quota) -> None:
        self.topology = topology(*quotas)
        self.core = SchedulerCore(self.topology, paper())
        self.now = 0.0
        self.started: dict[int, tuple[float, Demand]] = {}
        self.refused: dict[int, InfeasibleError] = {}
        self._ids = itertools.count(1)

    def submit(self, calls: float = 1, tokens: float = 0) -> int:
        action = PendingAction(next(self._ids), demand(self.topology, calls, tokens), self.now)
        self.core.submit(action)
        return action.id

    def decide(self) -> Decisions:
        while True:
            decisions = self.core.decide(self.now)
            for running in decisions.started:
                self.started[running.pending.id] = self.now, running.pending.demand
            self.refused.update(decisions.impossible)
            if not decisions.more:
                return decisions

    def sleep(self) -> None:
        """Go on to when the core wants to be asked again."""
        at_s = self.core.next_wakeup_s()
        assert at_s is not None
        assert at_s > self.now
        self.now = at_s

    def run_out(self) -> int:
        """Go on until nobody waits; return how often the core was asked."""
        for rounds in itertools.count(1):
            self.decide()
            if not self.core.waiting:
                return rounds
            self.sleep()
        raise AssertionError

    def free(self, name: str) -> float:
        index = self.topology.index[name]
        return self.core.free(index) / self.topology.dimensions[index].scale


class Account:
    """What the calls are charged for, reckoned by itself: for each call and dimension, moments and units."""

    def __init__(self, there: Topology) -> None:
        self.there = there
        self.charges: dict[tuple[int, int], list[tuple[float, int]]] = {}
        self.paused: dict[int, float] = {}

    def grant(self, call: int, granted: Demand, now: float) -> None:
        for dimension, units in granted.fixed:
            self.charges[call, dimension] = [(now, units)]

    def settle(self, call: int, dimension: int, units: int, now: float) -> None:
        charges = self.charges[call, dimension]
        total = sum(amount for _, amount in charges)
        if units > total:
            charges.append((now, units - total))
            return
        left = units
        for i, (at, amount) in enumerate(charges):  # the first charges stay, the last go
            charges[i] = at, min(amount, left)
            left -= charges[i][1]

    def within(self, dimension: int, begin: float, end: float) -> int:
        """Units charged in [begin, end)."""
        charged = itertools.chain(*(charges for (_, d), charges in self.charges.items() if d == dimension))
        return sum(amount for at, amount in charged if begin <= at < end)

    def free(self, dimension: int, now: float) -> int:
        """What may be granted now: a charge counts up to, and not at, the end of its window."""
        window_s = self.there.dimensions[dimension].window_s
        assert window_s is not None
        charged = itertools.chain(*(charges for (_, d), charges in self.charges.items() if d == dimension))
        used = sum(amount for at, amount in charged if at + window_s > now)
        return self.there.dimensions[dimension].capacity - used

    def fits(self, wanted: Demand, now: float) -> bool:
        return all(
            units <= self.free(dimension, now) and self.paused.get(dimension, 0.0) <= now
            for place in wanted.places or (wanted,)
            for dimension, units in place.fixed
        )


OPERATIONS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from([0.5, 1, 2]), st.integers(0, 30)),
    st.tuples(st.just("settle"), st.sampled_from(["calls", "tokens"]), st.integers(0, 45)),
    st.tuples(st.just("pause"), st.integers(0, 3), st.integers(1, 12)),
    st.tuples(st.just("wait"), st.integers(1, 20), st.just(0)),
    st.tuples(st.just("finish"), st.just(0), st.just(0)),
)
LIMITS = Quota("q", calls=[(2, 1), (5, 4)], tokens=[(30, 1.5), (60, 6)])


@given(st.lists(OPERATIONS, min_size=1, max_size=60), st.integers(0, 5))
def test_no_window_ever_sees_more_than_its_limit(operations: list[tuple[str, float | str, int]], pick: int) -> None:
    """Times are multiples of 1/4 s, so that all sums are exact. Nobody who fits waits, either."""
    world = Calls(LIMITS)
    account = Account(world.topology)
    (key,) = world.topology.quotas["q"]
    running: list[int] = []
    grants: list[tuple[float, int]] = []

    def check() -> None:
        known = set(world.started)
        world.decide()
        for call, (now, granted) in world.started.items():
            if call not in known:
                assert account.fits(granted, now), "granted what is not there"
                account.grant(call, granted, now)
                running.append(call)
                grants.append((now, call))
        for dimension in key.all():
            assert world.core.free(dimension) == account.free(dimension, world.now)
        if world.core.waiting:
            first = min(world.core._queue, key=lambda action: action.id)
            assert not account.fits(first.demand, world.now), "it fits, and waits"

    def settle(what: str, units: int) -> None:
        if running:
            call = running[pick % len(running)]
            for dimension in key.calls if what == "calls" else key.tokens:
                world.core.settle(call, dimension, units * MILLI // (10 if what == "calls" else 1), world.now)
                account.settle(call, dimension, units * MILLI // (10 if what == "calls" else 1), world.now)

    overdrawn = False
    for what, first, second in operations:
        if what == "submit":
            world.submit(float(first), second)
        elif what == "settle":
            overdrawn = True
            settle(str(first), second)
        elif what == "pause":
            dimension = key.all()[int(first)]
            world.core.pause(dimension, world.now + second / 4)
            account.paused[dimension] = max(account.paused.get(dimension, 0.0), world.now + second / 4)
        elif what == "wait":
            for _ in range(int(first)):
                world.now += 0.25
                check()
        elif running:
            world.core.finish(running.pop(pick % len(running)), world.now, None)
        check()
    for _ in range(400):
        if not world.core.waiting:
            break
        world.sleep()
        check()
    assert not world.core.waiting, "nobody waits for ever"
    if not overdrawn:
        for dimension in key.all():
            limit = world.topology.dimensions[dimension]
            assert limit.window_s is not None
            for at, _ in grants:
                assert account.within(dimension, at, at + limit.window_s) <= limit.capacity


def test_each_of_several_windows_holds() -> None:
    world = Calls(Quota("q", calls=[(2, 1), (5, 10)]))
    for _ in range(12):
        world.submit()
    rounds = world.run_out()
    assert [at for at, _ in world.started.values()] == [0, 0, 1, 1, 2, 10, 10, 11, 11, 12, 20, 20]
    assert rounds <= 12, "woken by what returns, and by nothing else"


def test_a_long_wait_is_followed_by_no_burst() -> None:
    world = Calls(Quota("q", calls=3, period_s=2))
    world.now = 1e6
    for _ in range(9):
        world.submit()
    world.run_out()
    assert [at - 1e6 for at, _ in world.started.values()] == [0, 0, 0, 2, 2, 2, 4, 4, 4]


def test_a_slow_rate_does_not_drift() -> None:
    """A call every 0.1 s for an hour: each starts at the first moment that the clock can tell."""
    world = Calls(Quota("q", calls=1, period_s=0.1))
    for _ in range(36_000):
        world.submit()
    assert world.run_out() == 36_000
    assert max(at for at, _ in world.started.values()) == pytest.approx(3599.9, abs=1e-6)


def test_slot_and_tokens_are_granted_as_one() -> None:
    world = Calls(Quota("q", tokens=100, period_s=60, concurrency=1))
    world.submit(tokens=40)
    world.submit(tokens=40)
    world.decide()
    assert (world.free("quota:q/tokens"), world.free("quota:q/concurrency")) == (60, 0)
    world.core.finish(1, 1.0, None)
    world.submit(tokens=90)
    world.now = 1.0
    world.decide()
    world.core.finish(2, 1.0, None)
    world.decide()
    assert (world.free("quota:q/tokens"), world.free("quota:q/concurrency")) == (20, 1), "the third holds no slot"


def test_what_was_not_used_is_free_at_once_and_what_was_is_not() -> None:
    """Five calls that use 58 to 175 of the 100 tokens that each reserves: one at a time."""
    world = Calls(Quota("q", tokens=100, period_s=60))
    (key,) = world.topology.quotas["q"]
    for _ in range(3):
        world.submit(tokens=100)
    world.decide()
    assert list(world.started) == [1]
    world.core.settle(1, key.tokens[0], 58_000, world.now)
    assert world.free("quota:q/tokens") == 42
    world.submit(tokens=42)
    world.decide()
    assert list(world.started) == [1], "who comes later does not overtake the one that waits for 100"
    world.core.finish(1, 1.0, None)
    world.now = 60.0
    world.decide()
    assert list(world.started) == [1, 2]
    world.core.settle(2, key.tokens[0], 175_000, 70.0)
    assert world.free("quota:q/tokens") == -75, "overdrawn"
    world.now = 120.0
    world.decide()
    assert (list(world.started), world.free("quota:q/tokens")) == ([1, 2], 25)
    world.now = 130.0
    world.decide()
    assert list(world.started) == [1, 2, 3]


def test_who_reserves_nothing_waits_only_while_the_window_is_overdrawn() -> None:
    world = Calls(Quota("q", tokens=100, period_s=60))
    (key,) = world.topology.quotas["q"]
    world.submit()
    world.decide()
    world.core.settle(1, key.tokens[0], 130_000, 0.0)
    world.submit()
    world.decide()
    assert list(world.started) == [1]
    assert world.core.next_wakeup_s() == 60
    world.now = 60.0
    world.decide()
    assert list(world.started) == [1, 2]


@pytest.mark.parametrize("settled", [0, 30, 100, 170])
def test_settling_again_counts_from_the_last_time(settled: int) -> None:
    world = Calls(Quota("q", tokens=200, period_s=60, total_tokens=1000))
    (key,) = world.topology.quotas["q"]
    world.submit(tokens=100)
    world.decide()
    for units in (150, 20, 190, 60, settled):
        for dimension in key.tokens:
            world.core.settle(1, dimension, units * MILLI, world.now)
        assert (world.free("quota:q/tokens"), world.free("quota:q/tokens/total")) == (200 - units, 1000 - units)
    world.core.finish(1, 1.0, None)
    world.core.settle(1, key.tokens[0], 1, 1.0)  # it has ended: nothing changes
    assert world.free("quota:q/tokens") == 200 - settled
    world.core.advance(200.0)
    assert (world.free("quota:q/tokens"), world.free("quota:q/tokens/total")) == (200, 1000 - settled)


def test_a_late_settlement_gives_nothing_back_twice() -> None:
    world = Calls(Quota("q", tokens=100, period_s=10))
    (key,) = world.topology.quotas["q"]
    world.submit(tokens=100)
    world.decide()
    world.core.advance(10.0)
    world.core.settle(1, key.tokens[0], 30_000, 10.0)
    assert world.free("quota:q/tokens") == 100


def test_a_budget_never_returns_and_refuses_who_asks_for_more() -> None:
    world = Calls(Quota("q", total_calls=3, concurrency=2))
    for _ in range(3):
        world.submit()
    world.decide()
    late = world.submit(2)
    world.now = 1e9
    world.decide()
    assert late in world.core._queue, "those that run may still say that they called nothing"
    for call in (1, 2):
        world.core.finish(call, world.now, None)
    world.decide()
    assert list(world.started) == [1, 2, 3]
    assert list(world.refused) == [late]
    assert str(world.refused[late]) == "call asks for more of quota:q/calls/total than is left for good: 0 of 3"
    assert world.core.waiting == 0
    world.core.finish(3, world.now, None)
    again = world.submit()
    world.decide()
    assert again in world.refused, "at once"
    assert world.core.used(world.topology.index["quota:q/concurrency"]) == 0


def test_what_a_budget_gets_back_is_granted() -> None:
    world = Calls(Quota("q", total_calls=1))
    (key,) = world.topology.quotas["q"]
    world.submit()
    world.submit()
    world.decide()
    assert list(world.started) == [1]
    world.core.settle(1, key.calls[0], 0, world.now)
    world.decide()
    assert list(world.started) == [1, 2]
    world.core.finish(1, 0.0, None)
    world.core.finish(2, 0.0, None)
    assert world.free("quota:q/calls/total") == 0


def test_what_was_settled_of_a_budget_stands_when_the_call_has_ended() -> None:
    world = Calls(Quota("q", total_tokens=100))
    (key,) = world.topology.quotas["q"]
    for granted, settled in ((60, 0), (10, 30)):
        call = world.submit(tokens=granted)
        world.decide()
        world.core.settle(call, key.tokens[0], settled * MILLI, world.now)
        world.core.finish(call, world.now, None)
    too_many, enough = world.submit(tokens=71), world.submit(tokens=70)
    world.decide()
    assert (too_many in world.refused, enough in world.started) == (True, True)


def test_ten_thousand_that_a_budget_refuses_are_told_in_one_decision() -> None:
    world = Calls(Quota("q", total_calls=1))
    world.submit()
    world.decide()
    world.core.finish(1, 0.0, None)
    for _ in range(10_000):
        world.submit()
    world.decide()
    assert len(world.refused) == 10_000


# Keys.


def key_of(granted: Demand) -> int:
    ((_, number),) = granted.keys
    return number


def test_calls_go_to_the_key_with_most_room() -> None:
    world = Calls(Quota("q", calls=4, period_s=10, keys=["a", "b", "c"]))
    for _ in range(13):
        world.submit()
    world.decide()
    assert [key_of(granted) for _, granted in world.started.values()] == [0, 1, 2] * 4
    assert world.core.waiting == 1
    assert world.core.next_wakeup_s() == 10


def test_a_pause_of_one_key_leaves_the_others() -> None:
    world = Calls(Quota("q", calls=2, period_s=10, concurrency=2, keys=["a", "b"]))
    first, _ = world.topology.quotas["q"]
    for dimension in first.all():
        world.core.pause(dimension, 15.0)
    for _ in range(5):
        world.submit()
    world.decide()
    assert [key_of(granted) for _, granted in world.started.values()] == [1, 1]
    for call in (1, 2):
        world.core.finish(call, 0.0, None)
    world.sleep()
    world.decide()
    assert (world.now, [key_of(granted) for _, granted in world.started.values()]) == (10, [1] * 4)
    world.sleep()
    world.decide()
    assert (world.now, [key_of(granted) for _, granted in world.started.values()]) == (15, [1, 1, 1, 1, 0])


def test_two_apis_with_the_same_keys_are_limited_apart() -> None:
    there = topology(
        Quota("search", calls=1, period_s=60, keys=["a", "b"]), Quota("fetch", calls=1, period_s=60, keys=["a", "b"])
    )
    core = SchedulerCore(there, paper())

    def only(quota: str) -> Demand:
        return resolve(ActionSpec(quota, declare_cost(quota, quota={quota: 1})), there)

    search, fetch = only("search"), only("fetch")
    for i, wanted in enumerate([search, fetch, search, fetch, search]):
        core.submit(PendingAction(i, wanted, 0.0))
    started = core.decide(0.0).started
    assert [running.pending.demand.keys for running in started] == [
        (("search", 0),), (("fetch", 0),), (("search", 1),), (("fetch", 1),)
    ]  # fmt: skip
    assert core.decide(59.9).started == []
    assert [running.pending.id for running in core.decide(60.0).started] == [4]


def test_an_action_of_two_quotas_with_keys_takes_one_of_each() -> None:
    world = Calls(Quota("a", concurrency=1, keys=["1", "2"]), Quota("b", concurrency=1, keys=["1", "2", "3"]))
    for _ in range(3):
        world.submit()
    world.decide()
    assert [granted.keys for _, granted in world.started.values()] == [(("a", 0), ("b", 0)), (("a", 1), ("b", 1))]
    world.core.finish(1, 0.0, None)
    world.decide()
    assert len(world.started) == 3


def test_a_key_whose_budget_is_spent_does_not_hold_up_the_others() -> None:
    world = Calls(Quota("q", total_calls=2, keys=["a", "b"]))
    for _ in range(5):
        world.submit()
    world.decide()
    for call in list(world.started):
        world.core.finish(call, 0.0, None)
    world.decide()
    assert [key_of(granted) for _, granted in world.started.values()] == [0, 1, 0, 1]
    assert list(world.refused) == [5]


def test_cores_are_split_among_those_that_also_take_keys() -> None:
    quota = Quota("q", concurrency=1, keys=["a", "b"])
    there = Topology([Dimension("cpu", 8 * MILLI, MILLI), *quota.dimensions()])
    core = SchedulerCore(there, paper(best_prefix=True))
    spec = ActionSpec("call", declare_cost("call", cpu=Elastic(1, 4), quota={"q": 1}))
    for i in range(3):
        core.submit(PendingAction(i, resolve(spec, there), 0.0))
    started = core.decide(0.0).started
    assert [(running.pending.demand.keys, running.units) for running in started] == [
        ((("q", 0),), 4 * MILLI), ((("q", 1),), 4 * MILLI)
    ]  # fmt: skip
    for running in started:
        core.finish(running.pending.id, 1.0, 1.0)
    assert [running.pending.id for running in core.decide(1.0).started] == [2]
    core.finish(2, 2.0, 1.0)
    assert [core.used(i) for i in range(len(there.dimensions))] == [0, 0, 0]


def test_too_many_combinations_of_keys_are_refused() -> None:
    there = topology(*(Quota(name, concurrency=1, keys=[str(i) for i in range(17)]) for name in "ab"))
    with pytest.raises(InfeasibleError, match="289 combinations of their keys; 256 are the most"):
        demand(there)


# One window by itself.


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 3)), min_size=1, max_size=80),
    st.sampled_from([2, 5, 4096]),
    st.lists(st.integers(0, 79), max_size=10),
)
@example([(1, 1)] * 80, 2, [0, 40, 79])
def test_a_window_never_gives_back_early_and_at_most_a_part_too_late(
    steps: list[tuple[int, int]], most: int, reductions: list[int]
) -> None:
    """With few entries, grants are put together; corrections of single ones come out right all the same."""
    window = Window(8.0, most)
    late_s = 8.0 / most
    now, granted = 0.0, []
    for wait, units in steps:
        now += wait / 16
        granted.append((now, units, window.add(units, now)))
    assert all(now + 8 <= at <= now + 8 + late_s for now, _, at in granted)
    back = 0
    for i in {i for i in reductions if i < len(granted)}:
        at, units, names = granted[i]
        back += window.reduce(names, units)
        granted[i] = at, 0, names
    moment, returned = 0.0, 0
    while moment <= now + 16:
        returned += window.due(moment)
        assert returned <= sum(units for at, units, _ in granted if at + 8 <= moment), "too early"
        assert returned >= sum(units for at, units, _ in granted if at + 8 + late_s <= moment), "too late"
        moment += 1 / 16
    assert returned + back == sum(units for _, units in steps)
    assert not window.entries


def test_a_clock_that_goes_back_a_little_keeps_the_order_of_a_window() -> None:
    window = Window(10.0)
    window.add(1, 1.0)
    name = window.add(5, 0.999)
    assert (name, window.reduce(name, 5), window.due(10.999), window.due(11.0)) == (11.0, 5, 0, 1)


def test_what_was_granted_and_taken_back_in_a_decision_leaves_no_trace() -> None:
    """A policy defers who was a candidate: its calls were never granted."""
    quota = Quota("q", calls=4, period_s=10, total_calls=8)
    there = Topology([Dimension("cpu", 4 * MILLI, MILLI), *quota.dimensions()])
    core = SchedulerCore(there, fixed(3))
    wanted = resolve(ActionSpec("call", declare_cost("call", cpu=Elastic(1, 4), quota={"q": 1})), there)
    for i in range(3):
        core.submit(PendingAction(i, wanted, 0.0))
    assert [running.pending.id for running in core.decide(0.0).started] == [0]
    assert [core.used(i) for i in (1, 2)] == [1000, 1000]
    core.advance(100.0)
    assert [core.used(i) for i in (1, 2)] == [0, 1000]


def test_a_busy_window_costs_bounded_memory() -> None:
    """A million calls within a day."""
    window = Window(86_400.0)
    for i in range(200_000):
        window.add(1, i * 0.4)
    assert len(window.entries) < 9000
    assert window.due(1e9) == 200_000


def fastest(work: Callable[[], object]) -> float:
    def once() -> float:
        begun = time.perf_counter()
        work()
        return time.perf_counter() - begun

    return min(once() for _ in range(5))


def test_a_wake_up_costs_the_same_however_much_the_windows_hold() -> None:
    """Seconds of a round in which one unit returns and one call starts, with a hundred and with 100,000 grants."""

    def rounds(held: int) -> float:
        world = Calls(Quota("q", calls=held, period_s=float(held)))
        for i in range(held):
            world.now = float(i)
            world.submit()
            world.core.decide(world.now)
        for _ in range(20):
            world.submit()

        def ten() -> None:
            for _ in range(4):
                world.now = world.core.next_wakeup_s() or world.now
                assert world.core.decide(world.now).started

        return fastest(ten)

    assert rounds(100_000) < 10 * rounds(100)
