"""The decorator: what it returns, what it refuses, how actions pickle, and how they are recognised."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import pickle
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import ArgumentsError, DefinitionError, Elastic, InfeasibleError, Quota, Tangram, UsageError
from arl_tangram.testing import assert_idle
from counting_pools import CountingPool
from virtual_time import virtual


@tangram.action(cpu=1, timeout=60)
async def add(left: int, right: int = 1, *, scale: float = 1.0) -> float:
    """Add two numbers."""
    return (left + right) * scale


@tangram.action()
def shout(text: str) -> str:
    """Return it louder."""
    return text.upper()


class Tools:
    """A class with actions in all the places that a class has."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    @tangram.action(cpu=1)
    async def times(self, number: int) -> int:
        return self.factor * number

    @staticmethod
    @tangram.action(cpu=1)
    async def twice(number: int) -> int:
        return 2 * number

    @tangram.action()
    def on_a_thread(self, number: int) -> int:
        return self.factor + number

    class Nested:
        @staticmethod
        @tangram.action()
        async def deep() -> str:
            return "deep"


def test_it_is_a_coroutine_function_with_the_name_and_signature_of_the_body() -> None:
    for action in (add, shout, Tools.times, Tools.Nested.deep):
        assert inspect.iscoroutinefunction(action)
    assert add.__name__ == "add"
    assert add.__doc__ == "Add two numbers."
    assert add.__module__ == __name__
    assert Tools.times.__qualname__ == "Tools.times"
    assert inspect.signature(add) == inspect.signature(add.body)
    assert list(inspect.signature(add).parameters) == ["left", "right", "scale"]
    assert add.__annotations__ == add.body.__annotations__
    assert not inspect.iscoroutinefunction(shout.body)


async def test_the_body_is_the_undecorated_function() -> None:
    assert shout.body("a") == "A"
    assert await add.body(1, 2, scale=2) == 6


def test_the_spec_says_what_was_declared() -> None:
    assert add.spec.name == f"{__name__}:add"
    assert add.spec.timeout == 60
    assert add.spec.queue_timeout is None
    assert add.spec.cost.cpu == 1000
    assert add.spec.kind == "async"
    assert shout.spec.kind == "thread"


def test_a_copy_with_other_options_leaves_the_original_alone() -> None:
    copy = add.with_options(timeout=5, queue_timeout=0.5, priority=-3)
    assert (copy.spec.timeout, copy.spec.queue_timeout, copy.spec.priority) == (5, 0.5, -3)
    assert copy.spec.cost is add.spec.cost
    assert add.spec.timeout == 60
    assert inspect.signature(copy) == inspect.signature(add)
    assert copy.body is add.body
    assert copy.with_options(timeout=None).spec.timeout is None
    assert copy.with_options(timeout=None).spec.queue_timeout == 0.5
    assert add.spec.preemptible
    assert not copy.with_options(preemptible=False).with_options(priority=1).spec.preemptible


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": math.nan},
        {"timeout": math.inf},
        {"timeout": "5"},
        {"timeout": True},
        {"queue_timeout": 0},
        {"queue_timeout": -0.1},
        {"priority": 0.5},
        {"priority": None},
        {"preemptible": None},
        {"cpu": 2},
        {"timout": 5},
    ],
    ids=repr,
)
def test_a_copy_refuses_what_the_decorator_would_refuse(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="add"):
        add.with_options(**options)


@virtual
async def test_functions_methods_and_static_methods_run() -> None:
    tools = Tools(3)
    async with Tangram(CountingPool()) as tg:
        assert await add(1, right=2) == 3
        assert await tangram.run(add, 1, 2, scale=0.5) == 1.5
        assert await tools.times(5) == 15
        assert await Tools.times(tools, 5) == 15
        assert await tangram.run(tools.times, 5) == 15
        assert await tg.run(tools.times, 5) == 15
        assert await tg.run(Tools.times, tools, 5) == 15
        assert await tools.twice(4) == await Tools.twice(4) == await tangram.run(tools.twice, 4) == 8
        assert await tg.run(Tools.Nested.deep) == "deep"
        assert await tg.run(add.with_options(timeout=3), 1) == 2
        assert_idle(tg)


async def test_plain_functions_and_methods_run_on_threads() -> None:
    async with Tangram() as tg:
        assert await shout("a") == "A"
        assert await tg.run(Tools(3).on_a_thread, 4) == 7
        assert_idle(tg)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("action", [add, shout, Tools.times, Tools.twice, Tools.Nested.deep])
def test_an_action_pickles_by_reference(action: Any, protocol: int) -> None:
    data = pickle.dumps(action, protocol)
    assert pickle.loads(data) is action
    assert len(data) < 250


def test_what_cannot_be_found_by_name_does_not_pickle() -> None:
    @tangram.action()
    async def local() -> None: ...

    for one in (local, add.with_options(timeout=5), add.body):
        with pytest.raises((pickle.PicklingError, AttributeError)):
            pickle.dumps(one)


def test_a_bound_action_pickles_with_its_instance() -> None:
    bound = pickle.loads(pickle.dumps(Tools(7).times))
    assert bound.__self__.factor == 7
    assert bound.__func__ is Tools.times


async def test_an_action_is_recognised_by_identity() -> None:
    """`functools.wraps` of an outer decorator carries all attributes along, and makes no action of it."""

    @functools.wraps(add)
    async def outer(*args: Any, **kwargs: Any) -> float:
        return await add(*args, **kwargs)

    assert outer.spec is add.spec  # type: ignore[attr-defined]
    async with Tangram(CountingPool()) as tg:
        for no_action in (outer, add.body, print, lambda: None, 3, None, functools.partial(add, 1)):
            with pytest.raises(UsageError, match="not an action"):
                await tangram.run(no_action, 1)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="not an action"):
                await tg.run(no_action, 1)  # type: ignore[arg-type]
        assert await outer(1, 2) == 3


async def coroutine() -> None: ...


def plain() -> None: ...


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@functools.wraps(coroutine)
def around_coroutine() -> Any:
    return coroutine()


@functools.wraps(around_coroutine)
def around_it_again() -> Any:
    return around_coroutine()


class CallableThing:
    async def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("options", "body", "says"),
    [
        ({"cpu": Elastic(1, 2), "memory_gib": Elastic(1, 2)}, coroutine, "at most one"),
        ({"cpu": Elastic(1, 2), "quota": {"a": Elastic(1, 2)}}, coroutine, "at most one"),
        ({"quota": {"a": Elastic(1, 2), "b": Elastic(1, 2)}}, coroutine, "at most one"),
        ({"memory_gib": Elastic(1, 2)}, coroutine, "memory_gib"),
        ({"isolate": "thread"}, coroutine, "plain functions"),
        ({"isolate": "process"}, coroutine, "plain functions"),
        ({"isolate": "process"}, lambda: None, "at the top of a module"),
        ({"isolate": "vm"}, plain, "'vm'"),
        ({}, generator, "generator"),
        ({}, async_generator, "generator"),
        ({}, around_coroutine, "async def"),
        ({}, around_it_again, "async def"),
        ({}, functools.partial(coroutine), "takes a function"),
        ({}, CallableThing(), "takes a function"),
        ({}, CallableThing, "class"),
        ({}, 3, "takes a function"),
        ({}, None, "takes a function"),
        ({}, max, "signature"),
        ({"cpu": -1}, coroutine, "cpu"),
        ({"cpu": math.nan}, coroutine, "cpu"),
        ({"cpu": math.inf}, coroutine, "cpu"),
        ({"cpu": 0.0005}, coroutine, "finer"),
        ({"cpu": "2"}, coroutine, "cpu"),
        ({"cpu": True}, coroutine, "cpu"),
        ({"cpu": None}, coroutine, "cpu"),
        ({"cpu": 10**400}, coroutine, "cpu"),
        ({"memory_gib": -0.5}, coroutine, "memory_gib"),
        ({"memory_gib": math.inf}, coroutine, "memory_gib"),
        ({"memory_gib": 10**400}, coroutine, "memory_gib"),
        ({"quota": {"a": 0}}, coroutine, "quota"),
        ({"quota": {"a": -1}}, coroutine, "quota"),
        ({"quota": {"a": math.nan}}, coroutine, "quota"),
        ({"quota": {3: 1}}, coroutine, "quota"),
        ({"quota": "search"}, coroutine, "quota"),
        ({"priority": 1.0}, coroutine, "priority"),
        ({"priority": "high"}, coroutine, "priority"),
        ({"timeout": 0}, coroutine, "timeout"),
        ({"timeout": -1}, coroutine, "timeout"),
        ({"timeout": math.inf}, coroutine, "timeout"),
        ({"timeout": 10**400}, coroutine, "timeout"),
        ({"queue_timeout": 0}, coroutine, "queue_timeout"),
        ({"queue_timeout": math.nan}, coroutine, "queue_timeout"),
        ({"duration_s": 0}, coroutine, "duration_s"),
        ({"duration_s": math.nan}, coroutine, "duration_s"),
        ({"key": "size"}, coroutine, "key"),
        ({"preemptible": 1}, coroutine, "preemptible= takes True or False, not 1"),
        ({"cpu": Elastic(1, 4, resizable=True)}, shout.body, "resizable=True.*async def"),
        ({"cpu": Elastic(1, 4, resizable=True), "isolate": "process"}, shout.body, "resizable=True.*async def"),
        ({"gpu": Elastic(1, 4, resizable=True), "isolate": "process"}, shout.body, "gpu=.*only cores"),
        ({"cpu": Elastic(1, 4, resizable=True), "service": "judge"}, coroutine, "beside service="),
        ({"memory_gib": Elastic(1, 4, resizable=True)}, coroutine, "memory_gib"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any], body: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says) as refusal:
        tangram.action(**options)(body)
    assert isinstance(refusal.value, TypeError)


def test_a_declaration_names_the_function_and_what_was_asked() -> None:
    with pytest.raises(DefinitionError, match=r"test_action:coroutine.*-1"):
        tangram.action(cpu=-1)(coroutine)


@pytest.mark.parametrize("make", [Elastic, Elastic.of])
def test_whether_cores_may_change_is_said_by_true_or_false(make: Any) -> None:
    assert make(1, 4, resizable=True).resizable
    assert not make(1, 4).resizable
    with pytest.raises(DefinitionError, match=r"resizable=\) takes True or False, not 'yes'"):
        make(1, 4, resizable="yes")


@pytest.mark.parametrize(
    ("make", "units"), [(Elastic, (2, 1)), (Elastic, (0, 1)), (Elastic, (1, 1.5)), (Elastic.of, ()), (Elastic.of, (0,))]
)
def test_a_wrong_range_is_refused(make: Any, units: tuple[Any, ...]) -> None:
    with pytest.raises(DefinitionError):
        make(*units)


@virtual
async def test_wrong_arguments_are_found_at_submit_and_leak_nothing() -> None:
    """They are found though all cores are taken: the call does not wait for them first."""

    @tangram.action(cpu=4)
    async def hold() -> None:
        await asyncio.sleep(100)

    loop = asyncio.get_running_loop()
    async with Tangram(CountingPool(cores=4)) as tg:
        holding = asyncio.create_task(hold())
        await asyncio.sleep(1)
        for args, kwargs in [((), {}), ((1, 2, 3), {}), ((1,), {"wrong": 1}), ((1,), {"left": 2})]:
            for call in (add(*args, **kwargs), tangram.run(add, *args, **kwargs), tg.run(add, *args, **kwargs)):
                with pytest.raises(ArgumentsError, match=r"add\(left: 'int'|add\(left: int") as wrong:
                    await call
                assert isinstance(wrong.value, TypeError)
                assert isinstance(wrong.value, UsageError)
        assert tg.statistics().waiting == 0
        assert loop.time() == 1
        with pytest.raises(ArgumentsError):
            await Tools.times(3)
        await holding
        assert_idle(tg)


@virtual
async def test_a_type_error_of_the_body_is_no_wrong_argument() -> None:
    @tangram.action()
    async def broken() -> None:
        len(3)  # type: ignore[arg-type]

    async with Tangram():
        with pytest.raises(TypeError) as raised:
            await broken()
    assert not isinstance(raised.value, tangram.TangramError)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cpu": 5}, "5 cores.*4 in all"),
        ({"cpu": Elastic(5, 8)}, "5 cores.*4 in all"),
        ({"memory_gib": 65}, "65 GiB.*64 in all"),
        ({"quota": {"serach": 1}}, "'serach'.*'search'"),
        ({"quota": {"search": 11}}, "11 calls.*10 in all"),
    ],
)
@virtual
async def test_an_impossible_cost_fails_at_once(options: dict[str, Any], says: str) -> None:
    action = tangram.action(**options)(coroutine)
    pool = CountingPool(cores=4, memory_gib=64)
    async with Tangram(pool, Quota("search", calls=10, period_s=60)) as tg:
        for _ in range(2):
            with pytest.raises(InfeasibleError, match=says):
                await action()
        assert_idle(tg)
        assert pool.is_whole


@virtual
async def test_a_cost_without_a_pool_fails_at_once() -> None:
    async with Tangram():
        with pytest.raises(InfeasibleError, match="no pool that offers cpu"):
            await add(1)
        with pytest.raises(InfeasibleError, match="no quotas"):
            await tangram.action(quota={"search": 1})(coroutine)()


@virtual
async def test_a_key_that_is_no_string_or_raises_leaks_nothing() -> None:
    def bad_key(size: int) -> Any:
        if size < 0:
            raise LookupError("no such size")
        return size

    @tangram.action(cpu=1, key=bad_key)
    async def keyed(size: int) -> int:
        return size

    async with Tangram(CountingPool()) as tg:
        with pytest.raises(DefinitionError, match="must return a string"):
            await keyed(3)
        with pytest.raises(LookupError, match="no such size"):
            await keyed(-1)
        assert_idle(tg)


async def test_a_plain_function_that_returns_an_awaitable_is_told_so() -> None:
    @tangram.action()
    def hidden() -> Any:
        return asyncio.sleep(0)

    async with Tangram() as tg:
        with pytest.raises(DefinitionError, match="returned an awaitable"):
            await hidden()
        assert_idle(tg)
