"""Case 50: actions that call actions of the same pool come to their end, or are refused with the chain named."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import LocalPool, NestedActionError, Quota, RunTimeout, ShutdownError, policies
from cases import bodies
from cases.settled import now_s, opened
from counting_pools import CountingPool
from injection import Scene, at_every_step
from virtual_time import run_virtually, turns, virtual

POLICIES = [policies.elastic(), policies.paper(best_prefix=True), policies.fixed(2)]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)


@tangram.action(cpu=1)
async def child(for_s: float = 1.0) -> str:
    await asyncio.sleep(for_s)
    return "child"


@tangram.action(cpu=4)
async def whole_pool(for_s: float = 1.0) -> str:
    return await child.body(for_s)


@tangram.action(cpu=tangram.Elastic(1, 4))
async def elastic_child(for_s: float = 1.0) -> str:
    return await child.body(for_s)


@tangram.action(cpu=1)
async def parent(of: Callable[[float], Awaitable[str]] = child, before_s: float = 0.0, after_s: float = 0.0) -> str:
    await asyncio.sleep(before_s)
    result = await of(1.0)
    await asyncio.sleep(after_s)
    return result


# Parents that fill the pool.


@every_policy
@pytest.mark.parametrize(("of", "takes_s"), [(child, 4), (elastic_child, 16), (whole_pool, 16)])
@virtual
async def test_case_50_parents_that_fill_the_pool_come_to_their_end(
    of: Callable[[float], Awaitable[str]], takes_s: float, policy: policies.Policy
) -> None:
    async with opened(CountingPool(cores=4), policy=policy):
        assert await asyncio.gather(*(parent(of) for _ in range(16))) == ["child"] * 16
        assert now_s() <= takes_s


@pytest.mark.parametrize("order", ["fcfs", "shortest", "trajectory"])
@pytest.mark.parametrize("cpu", [1, 4, 0.5, tangram.Elastic(1, 4), tangram.Elastic(4, 4)], ids=str)
@virtual
async def test_case_50_parents_of_any_size_and_with_work_of_their_own(cpu: Any, order: Any) -> None:
    big_parent = tangram.action(cpu=cpu)(parent.body)
    async with opened(CountingPool(cores=4), order=order):
        calls = [big_parent(of, 0.25, 0.25) for of in (child, whole_pool, elastic_child) * 6]
        assert await asyncio.gather(*calls) == ["child"] * 18


@virtual
async def test_case_50_a_chain_may_be_deep() -> None:
    @tangram.action(cpu=1)
    async def deeper(depth: int) -> int:
        await asyncio.sleep(0.01)
        return 0 if depth == 0 else 1 + await deeper(depth - 1)

    async with opened(CountingPool(cores=1)):
        assert await deeper(100) == 100
        assert await asyncio.gather(*(deeper(20) for _ in range(8))) == [20] * 8


@virtual
async def test_case_50_a_tree_of_calls_may_be_wide() -> None:
    @tangram.action(cpu=1)
    async def leaves(depth: int) -> int:
        if depth == 0:
            await asyncio.sleep(0.1)
            return 1
        return sum(await asyncio.gather(*(leaves(depth - 1) for _ in range(3))))

    async with opened(CountingPool(cores=2)) as tg:
        assert await leaves(5) == 3**5
        assert now_s() == pytest.approx(3**5 * 0.1 / 2, abs=0.1 + 1e-6), "with no core idle"
        assert await asyncio.gather(*(leaves(3) for _ in range(4))) == [27] * 4
        assert tg.statistics().running == 0


@virtual
async def test_case_50_what_a_parent_does_not_need_now_is_for_anybody() -> None:
    """While its child waits for a quota, others run on its core; then it has it back before those who came later."""
    starts: list[tuple[str, float]] = []

    @tangram.action(quota={"api": 1})
    async def call() -> None:
        await asyncio.sleep(1)

    @tangram.action(cpu=1)
    async def asks() -> None:
        await call()
        starts.append(("goes on", now_s()))
        await asyncio.sleep(1)

    @tangram.action(cpu=1)
    async def other(number: int) -> None:
        starts.append((f"other {number}", now_s()))
        await asyncio.sleep(0.75)

    async with opened(CountingPool(cores=1), Quota("api", concurrency=1)):
        first = asyncio.create_task(_awaited(asks))
        await turns(5)
        await asyncio.gather(first, *(other(number) for number in range(4)))
    assert starts[:2] == [("other 0", 0), ("other 1", 0.75)]
    assert starts[2] == ("goes on", 1.5), "at the head of the queue: two others still wait"
    assert len(starts) == 5


async def _awaited(act: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    return await act(*args)


@virtual
async def test_case_50_a_child_is_as_urgent_as_its_parent() -> None:
    """Else a stream of others could keep the parent, and what it holds, for ever."""
    urgent = tangram.action(cpu=1, priority=-1, memory_gib=1)(parent.body)
    patient_child = tangram.action(cpu=1, priority=5)(child.body)
    async with opened(CountingPool(cores=1)):
        blocking = asyncio.create_task(_awaited(child, 0.5))
        await turns(5)
        others = [asyncio.create_task(_awaited(child, 1.0)) for _ in range(10)]
        done = asyncio.create_task(_awaited(urgent, patient_child))
        await done
        assert now_s() <= 0.5 + 1 + 1, "before all that wait at priority 0, but for one that had begun"
        await asyncio.gather(blocking, *others)


@virtual
async def test_case_50_a_failure_passes_through_and_the_parent_may_go_on() -> None:
    @tangram.action(cpu=1)
    async def fails() -> None:
        raise KeyError("of the child")

    @tangram.action(cpu=1)
    async def tries_again() -> str:
        try:
            await fails()
        except KeyError:
            return await child()
        return ""

    @tangram.action(cpu=1)
    async def passes_on() -> None:
        await fails()

    async with opened(CountingPool(cores=1)):
        assert await tries_again() == "child"
        with pytest.raises(KeyError, match="of the child"):
            await passes_on()


# What can never be had is refused.


@pytest.mark.parametrize(
    ("cost", "what"),
    [
        ({"memory_gib": 40}, "memory"),
        ({"quota": {"api": 1}}, "quota:api/concurrency"),
        ({"cpu": 1, "memory_gib": 40}, "memory"),
    ],
    ids=str,
)
@virtual
async def test_case_50_what_an_ancestor_holds_is_refused_at_once_with_the_chain(cost: Any, what: str) -> None:
    needs = tangram.action(**cost)(child.body)

    @tangram.action(cpu=1)
    async def middle() -> str:
        return await needs(1.0)

    @tangram.action(**cost)
    async def top() -> str:
        return await middle()

    async with opened(CountingPool(), Quota("api", concurrency=1)):
        with pytest.raises(NestedActionError) as refused:
            await top()
        assert f"{top.spec.name} → {middle.spec.name} → {needs.spec.name}" in str(refused.value)
        assert what in str(refused.value)
        assert now_s() == 0
        assert await needs(1.0) == "child", "alone, it runs"


@pytest.mark.parametrize("parents", [2, 4, 8])
@virtual
async def test_case_50_of_parents_that_wait_for_each_other_the_youngest_is_refused(parents: int) -> None:
    """They hold all the memory, and each waits for a child that needs some."""
    share = 64 / parents

    @tangram.action(memory_gib=share)
    async def needs_memory() -> str:
        await asyncio.sleep(1)
        return "child"

    @tangram.action(cpu=1, memory_gib=share)
    async def holds_memory() -> str:
        return await needs_memory()

    async with opened(CountingPool(cores=parents)) as tg:
        results = await asyncio.gather(*(holds_memory() for _ in range(parents)), return_exceptions=True)
        assert results[:-1] == ["child"] * (parents - 1)
        assert isinstance(results[-1], NestedActionError), results[-1]
        assert f"{holds_memory.spec.name} → {needs_memory.spec.name}" in str(results[-1])
        assert now_s() <= parents - 1
        assert tg.statistics().waiting == 0


@virtual
async def test_case_50_parents_that_need_different_things_of_each_other() -> None:
    """One holds the quota and its child needs the memory; the other the other way round."""

    @tangram.action(memory_gib=64)
    async def all_memory() -> None:
        await asyncio.sleep(1)

    @tangram.action(quota={"api": 1})
    async def call() -> None:
        await asyncio.sleep(1)

    @tangram.action(quota={"api": 1})
    async def holds_the_quota() -> None:
        await asyncio.sleep(1)
        await all_memory()

    @tangram.action(memory_gib=64)
    async def holds_the_memory() -> None:
        await asyncio.sleep(1)
        await call()

    async with opened(CountingPool(), Quota("api", concurrency=1)):
        async with asyncio.timeout(100):
            first, second = await asyncio.gather(holds_the_quota(), holds_the_memory(), return_exceptions=True)
        assert first is None
        assert isinstance(second, NestedActionError), second
        assert f"{holds_the_memory.spec.name} → {call.spec.name}" in str(second)


@virtual
async def test_case_50_one_that_must_wait_for_a_parent_does_not_hold_up_its_children() -> None:
    """What the first needs is kept by the second, whose child fits, and comes later."""

    @tangram.action(memory_gib=20)
    async def first_child() -> str:
        return await child.body(1)

    @tangram.action(memory_gib=10)
    async def second_child() -> str:
        return await child.body(1)

    @tangram.action(memory_gib=20)
    async def first() -> str:
        return await first_child()

    @tangram.action(memory_gib=30)
    async def second() -> str:
        await asyncio.sleep(0.5)
        return await second_child()

    async with opened(CountingPool()):
        assert await asyncio.gather(first(), second()) == ["child"] * 2
        assert now_s() == 2.5


@virtual
async def test_case_50_who_only_waits_for_another_to_end_is_not_refused() -> None:
    """The memory is held by somebody that waits for nobody."""
    holds = tangram.action(memory_gib=64)(child.body)

    @tangram.action(cpu=1)
    async def needs_it_too() -> str:
        return await holds(1.0)

    async with opened(CountingPool()):
        assert await asyncio.gather(holds(5.0), *(needs_it_too() for _ in range(4))) == ["child"] * 5
        assert now_s() == 9


@virtual
async def test_case_50_a_trajectory_is_not_opened_inside_of_an_action() -> None:
    @tangram.action(cpu=1)
    async def opens() -> None:
        async with tangram.trajectory():
            pass

    async with opened(CountingPool()):
        with pytest.raises(NestedActionError, match="opens → trajectory"):
            await opens()


# Other kinds of bodies.


def test_case_50_bodies_on_threads_call_others() -> None:
    """Four parents fill the cores, their children the rest of the threads."""

    @tangram.action(cpu=1)
    def on_a_thread(number: int) -> int:
        return number

    @tangram.action(cpu=1)
    def sums(number: int) -> int:
        return tangram.run_sync(on_a_thread, number) + tangram.run_sync(on_a_thread, 1)

    async def main() -> None:
        async with opened(CountingPool(cores=4)):
            async with asyncio.timeout(60):
                assert await asyncio.gather(*(sums(n) for n in range(16))) == [n + 1 for n in range(16)]

    asyncio.run(main())


async def test_case_50_threads_are_not_lent_so_the_last_who_would_need_one_is_refused() -> None:
    @tangram.action()
    def on_a_thread() -> str:
        return "child"

    @tangram.action()
    def needs_another_thread() -> str:
        return tangram.run_sync(on_a_thread)

    async with opened(CountingPool(), max_threads=4):
        async with asyncio.timeout(60):
            results = await asyncio.gather(*(needs_another_thread() for _ in range(8)), return_exceptions=True)
    refused = [result for result in results if isinstance(result, NestedActionError)]
    assert len(refused) + results.count("child") == 8, results
    assert results.count("child") >= 4
    assert all(f"{needs_another_thread.spec.name} → {on_a_thread.spec.name}" in str(error) for error in refused)


async def test_case_50_a_body_in_a_worker_process_is_told_that_it_cannot() -> None:
    async with opened(CountingPool(), max_processes=1):
        with pytest.raises(tangram.UsageError):
            await bodies.calls_another()


# In a sandbox.


@virtual
async def test_case_50_in_a_sandbox_the_turn_passes_on() -> None:
    inside: list[str] = []
    together: list[tuple[str, ...]] = []

    async def _in_turn(name: str) -> None:
        inside.append(name)
        together.append(tuple(inside))
        assert tangram.current_sandbox() is not None
        await asyncio.sleep(0.5)
        inside.remove(name)

    @tangram.action(cpu=1)
    async def inner() -> str:
        await _in_turn("inner")
        return tangram.current_sandbox().id

    @tangram.action(cpu=1)
    async def outer() -> tuple[str, str]:
        await _in_turn("outer")
        child_box = await inner()
        await _in_turn("outer again")
        return tangram.current_sandbox().id, child_box

    @tangram.action(cpu=1)
    async def sibling() -> None:
        await _in_turn("sibling")

    async def rollout() -> None:
        async with tangram.trajectory():
            boxes, *_ = await asyncio.gather(outer(), sibling(), sibling(), outer())
            assert boxes[0] == boxes[1]

    async with opened(CountingPool(cores=2)):
        await rollout()
        assert all(len(names) == 1 for names in together), "never two at a time in one sandbox"
        await asyncio.gather(*(rollout() for _ in range(1)))


@virtual
async def test_case_50_many_trajectories_with_nested_calls_share_few_cores() -> None:
    async def rollout() -> str:
        async with tangram.trajectory(memory_gib=4):
            for _ in range(3):
                await parent(child, 0.1, 0.1)
            return await parent(whole_pool, 0.1, 0.1)

    async with opened(CountingPool(cores=4)):
        assert await asyncio.gather(*(rollout() for _ in range(32))) == ["child"] * 32


@pytest.mark.usefixtures("bwrap")
async def test_case_50_what_is_alive_in_the_sandbox_keeps_its_cores(tmp_path: Path) -> None:
    """A parent with a process in the background: a child in the same sandbox is refused, one elsewhere is not."""

    @tangram.action(cpu=1)
    async def in_the_sandbox() -> str:
        done = await tangram.current_sandbox().exec(["nproc"])
        return done.stdout.decode().strip()

    @tangram.action()
    async def elsewhere() -> str:
        return "elsewhere"

    @tangram.action(cpu=1)
    async def starts_a_server(and_calls: Any) -> str:
        await tangram.current_sandbox().exec(["sh", "-c", "sleep 600 >/dev/null 2>&1 &"])
        return await and_calls()

    @tangram.action(cpu=1)
    async def starts_nothing(and_calls: Any) -> str:
        await tangram.current_sandbox().exec(["true"])
        return await and_calls()

    async with opened(LocalPool(cores=2, root=tmp_path)), tangram.trajectory():
        assert await starts_nothing(in_the_sandbox) == "1"
        assert await starts_a_server(elsewhere) == "elsewhere"
        with pytest.raises(NestedActionError, match=r"starts_a_server → .*in_the_sandbox"):
            await starts_a_server(in_the_sandbox)
        assert await in_the_sandbox() == "1"


# Time and cancelling.


@pytest.mark.parametrize("waits_s", [0.0, 20.0])
@virtual
async def test_case_50_the_timeout_of_a_parent_stands_still_while_it_waits(waits_s: float) -> None:
    """For the child's body, for the child's turn in the queue, and until it has its core back."""
    limited = tangram.action(cpu=1, timeout=1)(parent.body)
    async with opened(CountingPool(cores=1)):
        call = asyncio.create_task(_awaited(limited, child, 0.375, 0.375))
        await turns(5)
        if waits_s:
            await asyncio.sleep(0.25)
            blocking = asyncio.create_task(_awaited(whole_core, waits_s))
            await turns(5)
        assert await call == "child"
        with pytest.raises(RunTimeout):
            await limited(child, 0.375, 0.75)
        if waits_s:
            await blocking


@tangram.action(cpu=1)
async def whole_core(for_s: float) -> None:
    await asyncio.sleep(for_s)


@virtual
async def test_case_50_a_deadline_of_the_child_is_the_childs() -> None:
    impatient = child.with_options(queue_timeout=0.5)
    limited = child.with_options(timeout=0.25)
    catches: list[type[BaseException]] = []

    @tangram.action(cpu=1)
    async def catches_both() -> str:
        for act in (impatient, limited):
            try:
                await act(5.0)
            except TimeoutError as late:
                catches.append(type(late))
        return "went on"

    async with opened(CountingPool(cores=1)):
        call = asyncio.create_task(_awaited(catches_both))
        await turns(1)
        blocking = asyncio.create_task(_awaited(child.with_options(priority=-5), 3.0))
        assert await call == "went on"
        await blocking
        assert catches[-1] is RunTimeout


async def _families(scene: Scene) -> None:
    """Parents with children, in and out of a trajectory, on fewer cores than there are of them."""

    async def rollout() -> str:
        async with tangram.trajectory(memory_gib=30):
            await parent(elastic_child, 0.125, 0.125)
            return await parent(child)

    @tangram.action(cpu=1)
    async def fan_out() -> str:
        return (await asyncio.gather(*(child(0.25) for _ in range(3))))[0]

    scene.victim(_awaited(parent, child, 0.25, 0.25))
    scene.victim(rollout())
    scene.victim(_awaited(fan_out))
    bystanders = [
        asyncio.create_task(_awaited(parent, whole_pair, 0.25, 0.25)),
        asyncio.create_task(rollout()),
        asyncio.create_task(_awaited(fan_out)),
    ]
    await asyncio.wait([*scene.victims, *bystanders])
    for task in bystanders:
        assert task.result() == "child"


@tangram.action(cpu=2)
async def whole_pair(for_s: float = 1.0) -> str:
    return await child.body(for_s)


@pytest.mark.parametrize("again_after", [(), (2,)])
def test_case_50_parents_are_cancelled_at_every_step(again_after: tuple[int, ...]) -> None:
    runs = at_every_step(_families, pool=lambda: CountingPool(cores=2), again_after=again_after)
    assert runs > 100


def test_case_50_parents_are_cancelled_at_every_step_where_sandboxes_take_their_time() -> None:
    at_every_step(_families, pool=lambda: CountingPool(cores=2, create_s=0.125, close_s=0.125))


def test_case_50_the_runtime_is_closed_at_every_step() -> None:
    closers: list[asyncio.Task[None]] = []

    def strike(scene: Scene) -> None:
        closers.append(asyncio.get_running_loop().create_task(scene.tg.aclose()))

    async def tolerant(scene: Scene) -> None:
        calls = [
            asyncio.create_task(_awaited(parent, child, 0.25, 0.25)),
            asyncio.create_task(_awaited(parent, whole_pair, 0.25, 0.25)),
            asyncio.create_task(_in_a_trajectory()),
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            allowed = (ShutdownError, tangram.UsageError)
            assert result == "child" or isinstance(result, allowed), result
        for closer in closers:
            await closer
        closers.clear()
        await turns(6)

    at_every_step(tolerant, pool=lambda: CountingPool(cores=2), strike=strike)


async def _in_a_trajectory() -> str:
    async with tangram.trajectory(memory_gib=30):
        return await parent(child)


@virtual
async def test_case_50_a_parent_that_leaves_its_children_takes_them_along() -> None:
    """It returns while a call that it made is still in progress: nothing is left, and nothing is lost."""
    kept: set[asyncio.Task[str]] = set()

    @tangram.action(cpu=1)
    async def leaves_one() -> str:
        kept.add(asyncio.create_task(child(5.0)))
        await asyncio.sleep(0.5)
        return "left"

    async with opened(CountingPool(cores=1)) as tg:
        assert await leaves_one() == "left"
        results = await asyncio.gather(*kept, return_exceptions=True)
        assert results == ["child"] or isinstance(results[0], tangram.TangramError), results
        await turns(5)
        assert tg.statistics().running == 0


# All of it together.

COSTS: list[dict[str, Any]] = [
    {},
    {"cpu": 1},
    {"cpu": 4},
    {"cpu": 0.5},
    {"cpu": tangram.Elastic(1, 4)},
    {"cpu": 1, "memory_gib": 20},
    {"memory_gib": 30},
    {"quota": {"api": 1}},
    {"cpu": 1, "quota": {"api": 1}, "priority": -1},
    {"cpu": 2, "memory_gib": 10, "priority": 1},
]


@dataclass(frozen=True)
class Plan:
    """One call, what it calls in turn, and whether these run side by side."""

    cost: int
    work_s: float
    children: tuple[Plan, ...]
    together: bool


def plan_of(chance: random.Random, depth: int) -> Plan:
    """Draw a tree of calls."""
    many = chance.choice([0, 1, 1, 2, 3]) if depth else 0
    children = tuple(plan_of(chance, depth - 1) for _ in range(many))
    return Plan(chance.randrange(len(COSTS)), chance.choice([0, 0.25, 1]), children, chance.random() < 0.5)


async def follow(plan: Plan) -> int:
    """Be the body of a call."""
    await asyncio.sleep(plan.work_s)
    ended = 1
    if plan.together:
        results = await asyncio.gather(*(ACTS[one.cost](one) for one in plan.children), return_exceptions=True)
        for result in results:  # all of them have ended, so that nothing goes on by itself
            if isinstance(result, BaseException):
                raise result
            ended += result
    else:
        for one in plan.children:
            ended += await ACTS[one.cost](one)
    await asyncio.sleep(plan.work_s)
    return ended


ACTS = [tangram.action(**cost)(follow) for cost in COSTS]


@pytest.mark.parametrize("strike", ["nobody", "some are cancelled", "some have a timeout"])
def test_case_50_whatever_calls_whatever_it_ends(strike: str) -> None:
    """Trees of calls of every cost, in trajectories or not: each ends with its result or the reason why not."""
    kinds: Counter[str] = Counter()

    async def rollout(plans: list[Plan], chance: random.Random) -> list[Any]:
        async with tangram.trajectory(memory_gib=chance.choice([0, 10])):
            return await asyncio.gather(*(_awaited(_limited(plan, chance), plan) for plan in plans))

    def _limited(plan: Plan, chance: random.Random) -> Any:
        act = ACTS[plan.cost]
        return act.with_options(timeout=1.0) if strike == "some have a timeout" and chance.random() < 0.5 else act

    async def main(seed: int) -> None:
        chance = random.Random(seed)
        async with opened(CountingPool(cores=4), Quota("api", concurrency=2)):
            roots = [asyncio.create_task(_awaited(_limited(p, chance), p)) for p in _plans(chance, 4)]
            roots += [asyncio.create_task(rollout(_plans(chance, 2), chance)) for _ in range(2)]
            if strike == "some are cancelled":
                for root in roots[::2]:
                    await asyncio.sleep(chance.choice([0, 0.25, 0.5, 1]))
                    await turns(chance.randrange(5))
                    root.cancel()
            for result in await asyncio.gather(*roots, return_exceptions=True):
                allowed = (NestedActionError, RunTimeout, asyncio.CancelledError, tangram.InfeasibleError)
                assert isinstance(result, (int, list, *allowed)), result
                kinds[type(result).__name__] += 1

    for seed in range(60):
        try:
            run_virtually(main(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert kinds["int"] > 20
    assert kinds["list"] > 5


def _plans(chance: random.Random, count: int) -> list[Plan]:
    return [plan_of(chance, 3) for _ in range(count)]
