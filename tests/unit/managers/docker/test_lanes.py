from __future__ import annotations

import asyncio

import pytest

from arl_tangram.managers.docker.lanes import Lane, Urgency


async def queue(lane: Lane, served: list[str], name: str, urgency: Urgency) -> asyncio.Task[None]:
    async def work() -> None:
        async with lane.turn(urgency):
            served.append(name)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    return task


async def test_the_urgent_go_first_and_otherwise_the_first() -> None:
    lane, served = Lane(1), list[str]()
    async with lane.turn():
        waiting = [
            await queue(lane, served, "create 1", Urgency.CREATE),
            await queue(lane, served, "create 2", Urgency.CREATE),
            await queue(lane, served, "start", Urgency.START),
            await queue(lane, served, "remove", Urgency.REMOVE),
        ]
        assert served == []
    await asyncio.gather(*waiting)
    assert served == ["remove", "start", "create 1", "create 2"]


async def test_no_more_than_its_width_are_inside() -> None:
    lane, inside, most = Lane(3), 0, 0

    async def work() -> None:
        nonlocal inside, most
        async with lane.turn():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(work() for _ in range(50)))
    assert (inside, most) == (0, 3)


@pytest.mark.parametrize("turns", range(4))
async def test_who_is_cancelled_while_waiting_takes_no_turn_with_him(turns: int) -> None:
    lane, served = Lane(1), list[str]()
    await lane.enter()
    first = await queue(lane, served, "first", Urgency.NORMAL)
    second = await queue(lane, served, "second", Urgency.NORMAL)
    if turns % 2:
        first.cancel()
        lane.leave()
    else:
        lane.leave()  # the turn is first's already
        first.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    await lane.enter()  # it is free again
    assert served == ["second"]


async def test_a_turn_that_was_taken_ends_once_by_whoever_is_first() -> None:
    lane, served = Lane(1), list[str]()
    end = await lane.take(60)
    first = await queue(lane, served, "first", Urgency.NORMAL)
    end()
    end()
    await first
    await lane.take(0)
    await queue(lane, served, "after its time", Urgency.NORMAL)
    second = await queue(lane, served, "and another", Urgency.NORMAL)
    await second
    assert served == ["first", "after its time", "and another"]
