"""The owner's end of a session: who listens is answered when there is something new for him, and only then."""

from __future__ import annotations

import asyncio

import pytest

from arl_tangram.errors import LeaseLostError
from arl_tangram.integrations.ray.owner.roster import Session, Sessions
from arl_tangram.integrations.ray.sessions.numbering import MOST_PER_FRAME
from arl_tangram.integrations.ray.wire import ClientFrame, Command, Expired, OwnerFrame, Withdraw
from virtual_time import turns, virtual


def session(took: list[Command] | None = None) -> Session:
    taken = [] if took is None else took
    return Session("s", {"kind": "client"}, lambda _, command: taken.append(command))


def exchange(to: Session, wait_s: float, ack: int = 0, first: int = 1, *commands: Command) -> asyncio.Task[OwnerFrame]:
    return asyncio.ensure_future(to.exchange(ClientFrame("e", "s", first, commands, ack, wait_s), "e"))


def now() -> float:
    return asyncio.get_running_loop().time()


@virtual
async def test_who_listens_is_answered_in_the_turn_in_which_there_is_something() -> None:
    one = session()
    listening = exchange(one, 5.0)
    await asyncio.sleep(2)
    one.tell(Expired(1))
    one.tell(Expired(2))
    assert (await listening).events == (Expired(1), Expired(2))
    assert now() == 2


@virtual
async def test_what_goes_with_the_answer_to_an_exchange_wakes_nobody_else() -> None:
    took: list[Command] = []
    one = session(took)
    listening = exchange(one, 5.0)
    await asyncio.sleep(1)
    exchanged = exchange(one, 0.0, 0, 1, Withdraw(1))
    await asyncio.sleep(0)
    one.tell(Expired(1))  # decided in the same turn
    answer = await exchanged
    assert (took, answer.events, answer.ack) == ([Withdraw(1)], (Expired(1),), 1)
    await turns(20)
    assert not listening.done()
    assert (await listening).events == (Expired(1),)
    assert now() == 5


@virtual
async def test_what_is_too_much_for_one_answer_does_not_wait_for_the_next_beat() -> None:
    def take(one: Session, _: Command) -> None:
        for number in range(MOST_PER_FRAME + 5):
            one.tell(Expired(number))

    one = Session("s", {"kind": "client"}, take)
    listening = exchange(one, 5.0)
    await asyncio.sleep(1)
    assert len((await exchange(one, 0.0, 0, 1, Withdraw(1))).events) == MOST_PER_FRAME
    await listening
    assert (await exchange(one, 5.0, MOST_PER_FRAME)).events[-1] == Expired(MOST_PER_FRAME + 4)
    assert now() == 1


@virtual
async def test_an_answer_to_who_listened_that_was_lost_is_given_again_at_once() -> None:
    one = session()
    lost = exchange(one, 5.0)
    await asyncio.sleep(1)
    one.tell(Expired(1))
    await lost  # it never arrives, and so is not acknowledged
    assert (await exchange(one, 5.0, 0)).events == (Expired(1),)
    assert now() == 1
    assert (await exchange(one, 5.0, 1)).events == ()
    assert now() == 6, "what it has is no news"


@virtual
async def test_who_listens_hears_of_the_end_at_once() -> None:
    one = session()
    listening = exchange(one, 5.0)
    acked = asyncio.ensure_future(one.until_acked())
    await asyncio.sleep(1)
    one.end(LeaseLostError("it is over"))
    assert isinstance((await listening).ended, LeaseLostError)
    await acked
    assert now() == 1


@virtual
async def test_it_is_over_when_it_was_silent_for_too_long() -> None:
    silent: list[tuple[float, Session]] = []
    roster = Sessions(10.0, lambda one: silent.append((now(), one)))
    one = session()
    roster.add(one, "token")
    for _ in range(5):
        await asyncio.sleep(9)
        roster.heard(one)
    await asyncio.sleep(11)
    assert silent == [(pytest.approx(55), one)]
    roster.end(one, LeaseLostError("silence"))
    assert roster.begun("token") is one
    assert isinstance(roster.why_over("s"), LeaseLostError)
