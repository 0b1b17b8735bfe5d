"""What a server that can only be started and stopped has taken, and whether that is free after its end."""

from __future__ import annotations

import asyncio

import pytest

from arl_tangram.services.processes.memory import ServerMemory
from arl_tangram.services.servers.memory import Meter

GIB = 1 << 30

pytestmark = pytest.mark.looptime


class Cards:
    """The free memory of one device, and what has it."""

    def __init__(self) -> None:
        self.server = 0
        self.others = 0

    def __call__(self, name: str) -> int:
        return 10 * GIB - self.server - self.others


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Cards:
    """Return a device that is read without a thread, whose time would not be virtual."""
    cards = Cards()

    async def measured(_meter: Meter) -> tuple[int, ...]:
        return (cards("a"),)

    monkeypatch.setattr(Meter, "_measured", measured)
    return cards


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def up(cards: Cards, *, takes: int, most: int) -> ServerMemory:
    memory = ServerMemory(["a"], cards, most=most)
    async with memory.turn():
        cards.server = takes
        await memory.is_up()
    return memory


async def end(memory: ServerMemory) -> str | None:
    async with memory.turn():
        await memory.ends()
        return await memory.left(10.0)


async def test_no_more_is_missed_than_it_was_given(cards: Cards) -> None:
    memory = await up(cards, takes=5 * GIB, most=4 * GIB)
    cards.server, cards.others = 4 * GIB, GIB  # one of the five was its neighbour's
    async with memory.turn():
        await memory.ends()
        cards.server = 0
        assert await memory.left(10.0) is None


async def test_nothing_is_missed_of_one_that_was_given_nothing(cards: Cards) -> None:
    memory = await up(cards, takes=GIB, most=0)
    cards.others = GIB
    began_s = now_s()
    assert await end(memory) is None
    assert now_s() == began_s


async def test_what_is_missing_for_long_is_somebody_elses(cards: Cards, caplog: pytest.LogCaptureFixture) -> None:
    memory = await up(cards, takes=4 * GIB, most=4 * GIB)
    began_s = now_s()
    async with memory.turn():
        await memory.ends()
        cards.server, cards.others = 0, 2 * GIB  # between the measurement and its end
        words = "its server has ended, and 2.00 GiB of a became free instead of 4.00"
        assert await memory.left(10.0) == words
    assert now_s() - began_s == pytest.approx(10, abs=0.1)
    await asyncio.sleep(30)
    assert await end(memory) == words
    assert now_s() - began_s == pytest.approx(40, abs=0.2)  # it had its ten seconds
    assert not caplog.records
    await asyncio.sleep(20)
    assert await end(memory) is None
    assert [record.getMessage() for record in caplog.records] == [
        f"{words}; its room is given away, as others must have taken that"
    ]


async def test_what_comes_back_late_after_a_death_is_waited_for(cards: Cards) -> None:
    memory = await up(cards, takes=4 * GIB, most=4 * GIB)
    began_s = now_s()
    missed = "its server has died, and 4.00 GiB of a are not free that were before it began"
    assert await memory.lost(1.0) == missed
    assert now_s() - began_s == pytest.approx(1, abs=0.1)
    asyncio.get_running_loop().call_at(began_s + 5, setattr, cards, "server", 0)
    assert await end(memory) is None
    assert now_s() - began_s == pytest.approx(5, abs=0.1)


async def test_others_measure_rightly_while_it_is_waited_for_after_a_death(cards: Cards) -> None:
    memory = await up(cards, takes=4 * GIB, most=4 * GIB)
    other = Meter(["a"], cards)
    before = await other.free()
    assert await memory.lost(1.0) is not None
    assert await other.free() == before
    cards.server = 0
    assert await end(memory) is None
    assert await other.free() == before


async def test_a_death_after_which_all_is_free_holds_nothing_up(cards: Cards) -> None:
    memory = await up(cards, takes=4 * GIB, most=4 * GIB)
    other = Meter(["a"], cards)
    before = await other.free()
    cards.server = 0
    began_s = now_s()
    assert await memory.lost(1.0) is None
    assert now_s() == began_s
    assert await other.free() == before
