"""The driver of an engine, in virtual time: servers that fail, lie, hang, die or come back changed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from arl_tangram.errors import RestoreError, ServiceLostError
from arl_tangram.managers.gpu.instances.backend import StillHeldError
from arl_tangram.services.engine.driver import Engine
from arl_tangram.services.engine.remote import Seen
from arl_tangram.services.engine.states import State
from far_engine import FarEngine, FarServer, Hanging, breaks, refuses

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def driven(far: FarEngine, *, own: bool = False, measures: bool = True) -> AsyncGenerator[Engine]:
    server = FarServer(far) if own else None
    engine, _ = far.driver(server=server, measures=measures)
    try:
        yield engine
    finally:
        await engine.aclose()


@asynccontextmanager
async def asleep(far: FarEngine, *, own: bool = False) -> AsyncGenerator[Engine]:
    async with driven(far, own=own) as engine:
        await engine.wake()
        await engine.sleep()
        far.log.clear()
        yield engine


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_one_that_runs_already_is_adopted_as_it_is() -> None:
    far = FarEngine()
    async with driven(far) as engine:
        await engine.wake()
        assert engine.state is State.AWAKE
        assert far.log == ["look", "check"]


async def test_one_that_sleeps_already_is_woken() -> None:
    far = FarEngine()
    far.seen = Seen.ASLEEP
    async with driven(far) as engine:
        await engine.wake()
        assert far.log == ["look", "wake", "check"]


async def test_32_who_want_it_share_one_wake() -> None:
    far = FarEngine()
    async with asleep(far) as engine:
        await asyncio.gather(*(engine.wake() for _ in range(32)))
        assert far.told() == ["wake"]


@pytest.mark.parametrize("order", sorted(set(itertools.permutations(["wake", "wake", "wake", "sleep"]))))
@pytest.mark.parametrize("first", ["awake", "asleep"])
async def test_wishes_in_any_order_alternate_at_the_server(order: tuple[str, ...], first: str) -> None:
    far = FarEngine()
    async with driven(far) as engine:
        await engine.wake()
        if first == "asleep":
            await engine.sleep()
        far.log.clear()
        await asyncio.gather(*(getattr(engine, wish)() for wish in order))
        assert engine.state is (State.ASLEEP if order[-1] == "sleep" else State.AWAKE)
        assert all(a != b for a, b in itertools.pairwise(far.told()))


async def test_it_is_not_told_to_sleep_before_the_last_call_has_left() -> None:
    far = FarEngine()
    async with driven(far) as engine:
        await engine.wake()
        engine.enter()
        sleeping = asyncio.ensure_future(engine.sleep())
        await asyncio.sleep(100)
        assert engine.state is State.DRAINING
        with pytest.raises(ServiceLostError, match="draining, not awake"):
            engine.enter()
        assert far.told() == []
        engine.leave()
        await sleeping
        assert engine.state is State.ASLEEP


async def test_cancelling_who_waits_ends_no_transition() -> None:
    far = FarEngine()
    async with asleep(far) as engine:
        waking = asyncio.ensure_future(engine.wake())
        await asyncio.sleep(0.5)
        waking.cancel()
        await asyncio.gather(waking, return_exceptions=True)
        await asyncio.sleep(1)
        assert engine.state is State.AWAKE
        assert far.told() == ["wake"]


# It refuses.


async def test_a_refused_sleep_leaves_it_awake_and_says_so() -> None:
    far = FarEngine()
    async with driven(far) as engine:
        await engine.wake()
        far.before = refuses
        with pytest.raises(RestoreError, match="is still awake: sleep was answered with 500"):
            await engine.sleep()
        assert engine.state is State.AWAKE
        far.before = far._nothing
        await engine.sleep()
        assert engine.state is State.ASLEEP


async def test_a_refused_wake_leaves_it_asleep_and_says_so() -> None:
    far = FarEngine()
    async with asleep(far) as engine:
        far.before = refuses
        with pytest.raises(RestoreError, match="did not wake: wake was answered with 500"):
            await engine.wake()
        assert engine.state is State.ASLEEP
        far.before = far._nothing
        await engine.wake()


@pytest.mark.parametrize("fault", [refuses, breaks])
async def test_a_wake_that_fails_and_is_done_all_the_same_is_adopted(fault: Callable[[str], object]) -> None:
    far = FarEngine()
    async with asleep(far) as engine:
        far.after = fault  # type: ignore[assignment]
        await engine.wake()
        assert engine.state is State.AWAKE


async def test_a_server_of_ours_that_refuses_is_started_anew() -> None:
    far = FarEngine()
    async with asleep(far, own=True) as engine:
        far.before = refuses
        await engine.wake()
        assert far.log == ["wake", "look", "start", "check"]
        assert engine.state is State.AWAKE
        await engine.sleep()  # refused, too
        assert far.used == 0


# It lies.


async def test_memory_that_is_not_freed_is_an_error_until_it_is_free() -> None:
    far = FarEngine()
    far.frees = False
    async with driven(far) as engine:
        await engine.wake()
        for _ in range(2):
            with pytest.raises(RestoreError, match=r"says that it sleeps, but 0\.00 GiB of a device became free"):
                await engine.sleep()
        assert far.told() == ["sleep"]  # it is not told twice
        far.used = 1500  # nearly as little as was expected
        await engine.sleep()
        assert engine.state is State.ASLEEP


async def test_memory_may_take_a_moment() -> None:
    far = FarEngine()
    far.frees = False
    async with driven(far) as engine:
        await engine.wake()
        asyncio.get_running_loop().call_later(1.8, setattr, far, "used", 1000)
        begin = now()
        await engine.sleep()
        assert now() - begin == pytest.approx(1.8, abs=0.1)


async def test_a_server_of_ours_that_lies_is_ended() -> None:
    far = FarEngine()
    far.frees = False
    far.die()
    async with driven(far, own=True) as engine:
        await engine.wake()
        await engine.sleep()
        assert far.log[-1] == "stop"
        assert far.used == 0


async def test_one_that_dies_of_the_question_holds_nothing() -> None:
    far = FarEngine()
    async with asleep(far) as engine:

        async def dies(what: str) -> None:
            far.die()

        far.after = dies
        with pytest.raises(RestoreError, match="not usable: connection refused") as caught:
            await engine.wake()
        assert not isinstance(caught.value, StillHeldError)
        await engine.sleep()


async def test_without_a_meter_its_word_counts() -> None:
    far = FarEngine()
    far.frees = False
    async with driven(far, measures=False) as engine:
        await engine.wake()
        await engine.sleep()
        assert engine.state is State.ASLEEP


async def test_a_wake_that_fails_halfway_holds_what_it_took() -> None:
    """As vLLM does whose weights are there again and cannot be loaded: it still says that it sleeps."""
    far = FarEngine()
    async with asleep(far) as engine:

        async def half(what: str) -> None:
            far.used = 6000
            await refuses(what)

        far.before = half
        with pytest.raises(StillHeldError, match=r"did not wake: wake was answered with 500; .* says that it sleeps"):
            await engine.wake()
        with pytest.raises(RestoreError, match="says that it sleeps"):
            await engine.sleep()
        far.before = far._nothing
        far.used = 1000
        await engine.sleep()
        assert engine.state is State.ASLEEP


async def test_others_do_not_make_up_for_memory_that_is_not_freed() -> None:
    far, other = FarEngine(), FarEngine()
    far.neighbours, other.neighbours = [other], [far]
    far.used, other.used = 8000, 1000
    other.seen = Seen.ASLEEP
    async with asleep(other) as neighbour, driven(far) as engine:
        await neighbour.wake()
        await engine.wake()
        far.frees = False
        with pytest.raises(RestoreError, match=r"0\.00 GiB of a device became free"):
            await engine.sleep()
        await neighbour.sleep()
        with pytest.raises(RestoreError, match=r"0\.00 GiB of a device became free"):
            await engine.sleep()  # what is free now is the neighbour's
        far.used = 1000
        await engine.sleep()


@pytest.mark.parametrize("own", [False, True])
async def test_others_do_not_take_what_was_freed(own: bool) -> None:
    far, other = FarEngine(), FarEngine()
    far.neighbours, other.neighbours = [other], [far]
    other.die()
    far.frees = False
    async with driven(far) as engine, driven(other, own=own) as neighbour:
        await engine.wake()
        with pytest.raises(RestoreError, match="became free"):
            await engine.sleep()
        if not own:
            other.seen = Seen.ASLEEP
        await neighbour.wake()
        far.used = 1000
        await engine.sleep()


async def test_what_one_held_that_died_is_nobodys_memory() -> None:
    far, other = FarEngine(), FarEngine()
    far.neighbours, other.neighbours = [other], [far]
    far.used = 1000
    other.die()
    far.seen = Seen.ASLEEP
    async with driven(far) as engine, driven(other, own=True) as neighbour:
        await neighbour.wake()
        far.used, far.seen, far.frees = 8000, Seen.AWAKE, False
        await engine.wake()
        with pytest.raises(RestoreError, match="became free"):
            await engine.sleep()
        other.die()
        neighbour.died("it was killed")
        await asyncio.sleep(0.1)
        with pytest.raises(RestoreError, match="became free"):
            await engine.sleep()


# It cannot be killed.


async def test_a_server_of_ours_that_cannot_be_killed_is_not_gone() -> None:
    far = FarEngine()
    far.die()
    engine, _ = far.driver(server=(server := FarServer(far)))
    await engine.wake()
    far.before, server.cannot_be_killed = Hanging("sleep", "wake"), True
    for _ in range(2):
        with pytest.raises(StillHeldError, match="cannot be killed now"):
            await engine.sleep()
    with pytest.raises(StillHeldError, match="cannot be killed now"):
        await engine.wake()
    server.cannot_be_killed = False
    await engine.sleep()
    assert far.used == 0
    await engine.aclose()


async def test_one_that_died_and_has_left_what_cannot_be_killed_holds_its_memory() -> None:
    far = FarEngine()
    far.die()
    engine, deaths = far.driver(server=(server := FarServer(far)))
    await engine.wake()
    server.cannot_be_killed = True
    engine.died("it ended with exit code 9")
    await asyncio.sleep(0.1)
    assert [type(each) for each in deaths] == [StillHeldError]
    assert "exit code 9; something of it cannot be killed" in str(deaths[0])
    await engine.aclose()  # logged


async def test_what_a_server_of_ours_has_left_out_of_reach_is_not_free() -> None:
    far = FarEngine()
    far.die()
    async with driven(far, own=True) as engine:
        server = engine._server
        assert isinstance(server, FarServer)
        await engine.wake()
        far.before, server.leaves = refuses, 8000
        for _ in range(2):
            with pytest.raises(RestoreError, match=r"its server was ended, but 0\.00 GiB"):
                await engine.sleep()
        server.leaves = 0
        await engine.sleep()


# It hangs.


async def test_a_wake_without_an_end_is_given_up_undone_and_never_told_twice() -> None:
    far = FarEngine()
    async with asleep(far) as engine:
        far.before = hanging = Hanging("wake")
        begin = now()
        with pytest.raises(StillHeldError, match="has been waking for more than 10 s"):
            await engine.wake()
        assert now() - begin == pytest.approx(10)
        with pytest.raises(StillHeldError):  # the next one waits no longer than that, either
            await engine.wake()
        with pytest.raises(RestoreError):
            await engine.sleep()
        assert far.told() == ["wake"]
        hanging.go.set()
        await asyncio.sleep(3)
        assert far.told() == ["wake", "sleep"]
        assert engine.state is State.ASLEEP


async def test_who_waits_when_a_hanging_wake_ends_after_all_is_served() -> None:
    far = FarEngine()
    async with asleep(far) as engine:
        far.before = hanging = Hanging("wake")
        with pytest.raises(StillHeldError):
            await engine.wake()
        waking = asyncio.ensure_future(engine.wake())
        await asyncio.sleep(1)
        hanging.go.set()
        await waking
        assert far.told() == ["wake"]
        assert engine.state is State.AWAKE


async def test_a_sleep_without_an_end_is_given_up_and_ends_in_its_own_time() -> None:
    far = FarEngine()
    async with driven(far) as engine:
        await engine.wake()
        far.before = hanging = Hanging("sleep")
        with pytest.raises(RestoreError, match="has been sleeping for more than 10 s"):
            await engine.sleep()
        hanging.go.set()
        await engine.sleep()
        assert far.told() == ["sleep"]


async def test_a_hanging_transition_does_not_hold_up_others_of_its_device() -> None:
    far, other = FarEngine(), FarEngine()
    async with asleep(far) as engine, asleep(other) as neighbour:
        far.before = Hanging("wake")
        waking = [asyncio.ensure_future(engine.wake()), asyncio.ensure_future(neighbour.wake())]
        await asyncio.sleep(9)
        assert other.told() == []  # they take turns: only the memory of the whole device can be measured
        await asyncio.sleep(3)
        assert other.told() == ["wake"]
        assert isinstance((await asyncio.gather(*waking, return_exceptions=True))[0], StillHeldError)


@pytest.mark.parametrize("what", ["wake", "sleep"])
async def test_a_server_of_ours_that_hangs_is_ended(what: str) -> None:
    far = FarEngine()
    far.die()
    async with driven(far, own=True) as engine:
        await engine.wake()
        far.before = Hanging("sleep", "wake") if what == "sleep" else Hanging("wake")
        await engine.sleep()
        assert far.used == (0 if what == "sleep" else 1000)
        await engine.wake()
        assert engine.state is State.AWAKE
        assert far.log.count("start") == 2


# It dies.


async def test_death_while_it_is_awake_is_told_and_who_comes_next_starts_it_anew() -> None:
    far = FarEngine()
    far.die()
    engine, deaths = far.driver(server=FarServer(far))
    await engine.wake()
    far.die()
    engine.died("it ended with exit code 9")
    assert engine.state is State.LOST
    await asyncio.sleep(0.1)  # what it has left is ended first
    assert [type(each) for each in deaths] == [ServiceLostError]
    assert "it ended with exit code 9" in str(deaths[0])
    await engine.wake()
    assert engine.state is State.AWAKE
    await engine.aclose()


async def test_death_while_it_sleeps_is_not_told_and_who_comes_next_starts_it_anew() -> None:
    far = FarEngine()
    far.die()
    engine, deaths = far.driver(server=FarServer(far))
    await engine.wake()
    await engine.sleep()
    far.die()
    engine.died("it was killed")
    assert deaths == []
    await engine.wake()
    assert far.log.count("start") == 2
    await engine.aclose()


async def test_somebody_elses_dead_server_is_an_error_until_it_is_back() -> None:
    far = FarEngine()
    async with asleep(far) as engine:
        far.die()
        for _ in range(2):
            with pytest.raises(RestoreError, match="judge: its"):
                await engine.wake()
        await engine.sleep()  # what is dead holds nothing
        far.seen, far.used = Seen.AWAKE, 8000  # started again by whoever it belongs to
        await engine.wake()
        assert engine.state is State.AWAKE


async def test_somebody_elses_server_that_came_back_awake_is_put_to_sleep_when_that_is_wanted() -> None:
    far = FarEngine()
    async with asleep(far) as engine:
        engine.died("it does not answer any more")
        far.seen, far.used = Seen.AWAKE, 8000
        await engine.sleep()
        assert far.used == 1000


async def test_a_call_without_an_answer_has_the_server_looked_at() -> None:
    far = FarEngine()
    engine, deaths = far.driver()
    await engine.wake()
    await engine.suspect()
    assert deaths == []
    far.die()
    await engine.suspect()
    assert len(deaths) == 1
    await engine.aclose()


async def test_one_whose_state_cannot_be_told_is_left_alone() -> None:
    far = FarEngine()
    async with asleep(far) as engine:
        far.before = breaks
        far.seen = Seen.ALIVE
        with pytest.raises(StillHeldError, match="what it holds is not known"):
            await engine.wake()
        far.log.clear()
        for wish in (engine.wake, engine.sleep):
            with pytest.raises(RestoreError, match="whether its server sleeps cannot be told"):
                await wish()
        assert far.told() == []


async def test_a_server_of_ours_that_cannot_be_started_says_why() -> None:
    far = FarEngine()
    server = FarServer(far)
    engine, _ = far.driver(server=server)
    server.starts_in_vain = True
    with pytest.raises(RestoreError, match="was started in vain: it ended with exit code 1"):
        await engine.wake()
    server.starts_in_vain = False
    await engine.wake()
    await engine.aclose()


# It comes back changed.


async def test_another_answer_fails_the_restore_and_it_sleeps_again() -> None:
    far = FarEngine()
    async with asleep(far) as engine:
        far.answers = False
        with pytest.raises(RestoreError, match="came back and is not usable: another answer"):
            await engine.wake()
        assert engine.state is State.ASLEEP
        assert far.used == 1000


async def test_another_answer_of_one_that_cannot_be_put_to_sleep_again_holds_its_memory() -> None:
    far = FarEngine()
    async with asleep(far) as engine:
        far.answers = False
        far.frees = False
        with pytest.raises(StillHeldError, match="and it cannot be put to sleep again"):
            await engine.wake()
        with pytest.raises(RestoreError):
            await engine.sleep()
        far.used = 1000
        await engine.sleep()


async def test_one_that_was_changed_and_refuses_to_sleep_is_used_by_nobody() -> None:
    far = FarEngine()
    async with asleep(far) as engine:
        far.answers = False

        async def refuses_sleep(what: str) -> None:
            if what == "sleep":
                await refuses(what)

        far.before = refuses_sleep
        with pytest.raises(StillHeldError, match="cannot be put to sleep again"):
            await engine.wake()
        with pytest.raises(RestoreError, match="still awake"):
            await engine.sleep()
        with pytest.raises(StillHeldError, match="another answer"):
            await engine.wake()
        far.before = far._nothing
        await engine.sleep()
        assert engine.state is State.ASLEEP


async def test_another_answer_of_a_server_of_ours_has_it_started_anew() -> None:
    far = FarEngine()
    far.die()
    async with driven(far, own=True) as engine:
        await engine.wake()
        await engine.sleep()
        far.answers = False
        await engine.wake()
        assert engine.state is State.AWAKE
        assert far.log.count("start") == 2


# It is closed.


@pytest.mark.parametrize("own", [False, True])
async def test_closing_tells_those_who_wait(own: bool) -> None:
    far = FarEngine()
    far.before = Hanging("wake")
    far.seen = Seen.ASLEEP
    engine, _ = far.driver(server=FarServer(far) if own else None)
    waking = asyncio.ensure_future(engine.wake())
    await asyncio.sleep(1)
    await engine.aclose()
    with pytest.raises(RestoreError, match="its pool was closed"):
        await waking
    assert far.log[-1] == ("stop" if own else "wake")


async def test_a_closed_one_does_nothing_any_more() -> None:
    far = FarEngine()
    engine, _ = far.driver()
    await engine.wake()
    engine.enter()
    sleeping = asyncio.ensure_future(engine.sleep())
    await asyncio.sleep(1)
    await engine.aclose()
    with pytest.raises(RestoreError, match="its pool was closed"):
        await sleeping
    engine.leave()  # the last call ends: nobody is put to sleep for that
    await asyncio.sleep(10)
    assert far.told() == []
    for wish in (engine.wake, engine.sleep):
        with pytest.raises(RestoreError, match="its pool was closed"):
            await wish()
    with pytest.raises(ServiceLostError):
        engine.enter()


async def test_each_who_waits_gets_an_error_of_its_own() -> None:
    far = FarEngine()
    async with asleep(far) as engine:
        far.before = refuses
        errors = await asyncio.gather(*(engine.wake() for _ in range(3)), return_exceptions=True)
        assert len({id(error) for error in errors}) == 3
        assert {type(error) for error in errors} == {RestoreError}


async def test_a_server_of_ours_that_ends_in_the_last_moment_was_not_woken() -> None:
    far = FarEngine()
    far.die()
    engine, deaths = far.driver(server=FarServer(far))
    await engine.wake()
    await engine.sleep()
    check = far.check

    async def dies() -> None:
        await check()
        far.die()
        engine.died("it was killed")  # told while the wake is under way

    engine._transitions._check = dies
    with pytest.raises(RestoreError, match="ended as it was awake again"):
        await engine.wake()
    assert deaths == []
    assert engine.state is State.LOST
    engine._transitions._check = check
    await engine.wake()
    await engine.aclose()


async def test_what_was_not_foreseen_is_an_error_and_not_silence() -> None:
    far = FarEngine()

    async def fails(what: str) -> None:
        raise KeyError(what)

    async with asleep(far) as engine:
        far.before = fails
        with pytest.raises(StillHeldError, match="KeyError: 'wake'"):
            await engine.wake()
        far.before = far._nothing
        await engine.wake()


# All of it.


class Fate:
    """What a server does about a transition, drawn anew each time."""

    def __init__(self, far: FarEngine, draw: random.Random) -> None:
        self.far = far
        self.draw = draw
        self.is_quiet = False

    async def before(self, what: str) -> None:
        self.far.frees = self.is_quiet or self.draw.random() > 0.1
        match 9 if self.is_quiet else self.draw.randrange(10):
            case 0:
                await refuses(what)
            case 1:
                await breaks(what)
            case 2:
                await asyncio.sleep(self.draw.uniform(0, 40))
            case 3:
                self.far.die()
                await breaks(what)
            case _:
                pass

    async def after(self, what: str) -> None:
        if what == "wake":
            self.far.answers = self.is_quiet or self.draw.random() > 0.1
        match 9 if self.is_quiet else self.draw.randrange(10):
            case 0:
                await refuses(what)
            case 1:
                await breaks(what)
            case 2:
                self.far.die()
            case _:
                pass


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("seed", range(40))
async def test_whatever_happens_its_word_about_memory_holds(own: bool, seed: int) -> None:
    draw = random.Random(seed)
    far = FarEngine()
    server = FarServer(far) if own else None
    engine, _ = far.driver(server=server)
    await engine.wake()
    fate = Fate(far, draw)
    far.before, far.after = fate.before, fate.after
    for _ in range(30):
        if not own and far.seen is Seen.GONE and engine.state is State.LOST and draw.random() < 0.5:
            far.seen, far.used = Seen.AWAKE, 8000  # whoever it belongs to starts it again
        if draw.random() < 0.5:
            try:
                await engine.wake()
            except StillHeldError:
                continue
            except RestoreError:
                assert far.used <= 1000 or far.seen is Seen.AWAKE, "it failed, and holds its memory"
                continue
            assert far.answers or far.seen is not Seen.AWAKE
            if draw.random() < 0.5 and engine.state is State.AWAKE:
                engine.enter()
                asyncio.get_running_loop().call_later(draw.uniform(0, 5), engine.leave)
        else:
            try:
                await engine.sleep()
            except RestoreError:
                continue
            assert far.used <= 1500, "it says that it gave its memory up"
    fate.is_quiet = True
    far.answers = far.frees = True
    await asyncio.sleep(100)
    if far.seen is Seen.GONE:
        far.seen, far.used = Seen.AWAKE, 8000
    with contextlib.suppress(RestoreError):
        await engine.sleep()  # what was left over
    far.used = min(far.used, 1000)
    await engine.sleep()
    await engine.wake()
    assert engine.state is State.AWAKE
    await engine.aclose()
