"""The client's end of a session, in virtual time, against an owner that counts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arl_tangram.errors import LeaseLostError, OwnerLostError, TangramError, VersionMismatchError
from arl_tangram.integrations.ray.sessions import greeting as greetings
from arl_tangram.integrations.ray.sessions.pump import WINDOW, Pump
from arl_tangram.integrations.ray.wire import Event, Expired, Resume, Withdraw
from lossy_lines import LossyLine, OwnerHost, Way, random_ways, straight
from unit.ray.counting_owner import GRACE_S, LEASE_S, CountingOwner, Session
from virtual_time import turns, virtual, virtual_loop

ABOUT = {"kind": "client", "name": "c", "host": "here"}


class Client:
    """Posts ascending numbers, from 1 again when all is lost, and takes down what it is told."""

    def __init__(self, host: OwnerHost, **line: Any) -> None:
        self.now = asyncio.get_running_loop().time
        self.line = LossyLine(host, **line)
        self.posted = 0
        self.lost: list[tuple[float, TangramError]] = []
        self.told: list[int] = []
        self.at_s: list[float] = []
        self.resumed = 0
        self.pump = Pump(self.line, ABOUT, self._tell, self._lose, self._held, now=self.now, owner_timeout_s=60)

    def post(self, count: int = 1) -> None:
        for _ in range(count):
            self.posted += 1
            self.pump.post(Withdraw(self.posted))

    def _tell(self, events: Sequence[Event]) -> None:
        for event in events:
            assert isinstance(event, Expired)
            expected = self.told[-1] + 1 if self.told else 1
            assert event.id == expected, "events come in order, each once"
            self.told.append(event.id)
            self.at_s.append(self.now())

    def _lose(self, error: TangramError) -> None:
        self.lost.append((self.now(), error))
        self.posted = 0
        self.told.clear()

    def _held(self) -> Resume:
        self.resumed += 1
        self.told.clear()
        return Resume(None, charges=tuple((number, 0, 0.0) for number in range(1, self.posted + 1)))


def only(owner: CountingOwner) -> Session:
    (session,) = owner.live()
    return session


async def close(client: Client, host: OwnerHost) -> None:
    await client.pump.aclose()
    await host.aclose()


@virtual
async def test_what_some_turns_gather_goes_in_one_frame() -> None:
    host = OwnerHost(owner := CountingOwner("e"))
    client = Client(host)
    await client.pump.open()
    await asyncio.sleep(0.5)
    before = client.line.frames
    client.post(50)
    await asyncio.sleep(0)
    client.post(50)  # a turn later, as when a call has ended and its caller makes the next one
    await asyncio.sleep(0.1)
    assert client.line.frames - before == 1
    assert only(owner).numbers == list(range(1, 101))
    await close(client, host)


@virtual
async def test_a_round_trip_gathers_what_is_posted_meanwhile() -> None:
    host = OwnerHost(owner := CountingOwner("e"))
    client = Client(host, way=lambda: Way((0.1,), 0.1))
    await client.pump.open()
    await asyncio.sleep(0.5)
    before = client.line.frames
    for _ in range(100):
        client.post()
        await asyncio.sleep(0.004)
    await asyncio.sleep(1)
    assert only(owner).numbers == list(range(1, 101))
    assert client.line.frames - before <= 2 * WINDOW + 2, "at most so many at a time, in 0.4 s of round trips of 0.2 s"
    await close(client, host)


@virtual
async def test_nothing_is_asked_again_while_nothing_happens() -> None:
    host = OwnerHost(owner := CountingOwner("e"))
    client = Client(host)
    await client.pump.open()
    await asyncio.sleep(100 * LEASE_S)
    assert client.line.frames <= 601
    assert not client.lost
    only(owner).tell()
    await asyncio.sleep(0)
    at_s = client.now()
    await turns(30)
    assert client.told == [1]
    assert client.at_s == [at_s], "it comes with the exchange that listens, at once"
    await close(client, host)


@virtual
async def test_who_is_cut_off_lets_go_before_the_owner_gives_it_to_others() -> None:
    host = OwnerHost(owner := CountingOwner("e"))
    client = Client(host)
    await client.pump.open()
    client.post(3)
    await asyncio.sleep(20)
    session = only(owner)
    client.line.is_cut = True
    cut_s = client.now()
    only(owner).tell()  # too late: it never hears of it
    await asyncio.sleep(LEASE_S + 0.1)
    ((lost_s, error),) = client.lost
    assert isinstance(error, LeaseLostError)
    assert cut_s < lost_s <= cut_s + LEASE_S
    assert session in owner.live()
    await asyncio.sleep(GRACE_S + 0.1)
    assert owner.live() == []
    client.post()
    client.line.is_cut = False
    await asyncio.sleep(30)
    assert only(owner) is not session
    assert only(owner).numbers == [1]
    assert only(owner).resume is None
    assert client.told == []
    await close(client, host)


@virtual
async def test_an_owner_that_is_started_again_is_told_what_is_held() -> None:
    host = OwnerHost(CountingOwner("one"))
    client = Client(host)
    await client.pump.open()
    client.post(3)
    await asyncio.sleep(1)
    host.kill()
    client.post(2)
    await asyncio.sleep(1.4)
    host.owner = owner = CountingOwner("two")
    await asyncio.sleep(1.5)
    client.post()
    await asyncio.sleep(0.1)
    assert client.resumed == 1
    assert only(owner).resume is not None
    assert only(owner).numbers == [1, 2, 3, 4, 5, 6]
    only(owner).tell()
    await asyncio.sleep(0)
    await turns(30)
    assert client.told == [1]
    assert not client.lost
    await close(client, host)


@virtual
async def test_one_that_comes_back_too_late_has_lost_all() -> None:
    host = OwnerHost(CountingOwner("one"))
    client = Client(host)
    await client.pump.open()
    client.post(3)
    await asyncio.sleep(1)
    host.kill()
    await asyncio.sleep(1)
    host.owner = owner = CountingOwner("two")
    owner.late_resumes = True
    await asyncio.sleep(2)
    ((_, error),) = client.lost
    assert isinstance(error, LeaseLostError)
    client.post()
    await asyncio.sleep(1)
    assert only(owner).numbers == [1]
    await close(client, host)


@virtual
async def test_an_owner_that_does_not_come_back_is_given_up() -> None:
    host = OwnerHost(CountingOwner("one"))
    client = Client(host)
    await client.pump.open()
    client.post()
    await asyncio.sleep(1)
    host.kill()
    frames = client.line.frames
    await asyncio.sleep(LEASE_S)
    client.post()  # in a new session, if there ever is one
    await asyncio.sleep(60)
    (fenced_s, fenced), (lost_s, lost) = client.lost
    assert isinstance(fenced, LeaseLostError)
    assert isinstance(lost, OwnerLostError)
    assert lost_s - fenced_s == pytest.approx(60)
    assert client.line.frames - frames <= 20, "it is asked less and less often"
    await close(client, host)


@virtual
async def test_an_owner_that_is_gone_for_good_is_given_up_at_once() -> None:
    host = OwnerHost(CountingOwner("one"))
    client = Client(host)
    await client.pump.open()
    await asyncio.sleep(1)
    host.kill(for_good=True)
    await asyncio.sleep(0.1)
    ((_, error),) = client.lost
    assert isinstance(error, OwnerLostError)
    assert client.pump.is_over
    client.post()
    await asyncio.sleep(0.1)
    assert len(client.lost) == 2, "who asks later is told, too"
    await close(client, host)


@virtual
async def test_there_may_be_no_owner_to_begin_with() -> None:
    host = OwnerHost()
    client = Client(host)
    opening = asyncio.ensure_future(client.pump.open())
    await asyncio.sleep(5)
    client.post()
    host.owner = owner = CountingOwner("one")
    await opening
    await asyncio.sleep(0.1)
    assert only(owner).numbers == [1]
    await close(client, host)
    host.kill(for_good=True)
    with pytest.raises(OwnerLostError, match="there is no owner"):
        await Client(host).pump.open()


@virtual
async def test_another_version_is_refused_with_both_names(monkeypatch: pytest.MonkeyPatch) -> None:
    host = OwnerHost(owner := CountingOwner("one"))
    monkeypatch.setattr(greetings.arl_tangram, "__version__", "9.9")
    about = greetings.greeting(ABOUT, "t")
    monkeypatch.undo()
    answer = await owner.hello(about)
    with pytest.raises(VersionMismatchError, match=r"'c' at 'here' has arl_tangram 9\.9 .*, and the owner .* has 0\."):
        greetings.read_answer(answer)
    owner.refuse = VersionMismatchError("they differ")
    with pytest.raises(VersionMismatchError, match="they differ"):
        await Client(host).pump.open()
    with pytest.raises(TangramError, match="UnheardOfError: why"):
        greetings.read_answer({"error": ("UnheardOfError", "why")})
    await host.aclose()


@virtual
async def test_closing_ends_the_session_once_all_is_told() -> None:
    host = OwnerHost(owner := CountingOwner("one"))
    client = Client(host, way=lambda: Way((0.1,), 0.1))
    await client.pump.open()
    session = only(owner)
    client.post(3)
    await client.pump.aclose()
    assert session.left
    assert session.numbers == [1, 2, 3]
    assert not client.lost
    await host.aclose()


@virtual
async def test_closing_waits_for_an_owner_but_not_for_long() -> None:
    host = OwnerHost(CountingOwner("one"))
    client = Client(host)
    await client.pump.open()
    await asyncio.sleep(0.1)
    client.line.is_cut = True
    before_s = client.now()
    await client.pump.aclose()
    assert client.now() - before_s == pytest.approx(5)
    await host.aclose()


@virtual
async def test_what_a_bug_raises_is_told_and_loses_nothing() -> None:
    host = OwnerHost(owner := CountingOwner("one"))
    client = Client(host)
    await client.pump.open()
    await asyncio.sleep(0)
    await turns(9)
    only(owner).tell()
    client.told.append(7)  # so that what comes is unexpected
    await asyncio.sleep(0.1)
    (error,) = virtual_loop().errors
    assert isinstance(error["exception"], AssertionError)
    virtual_loop().errors.clear()
    client.post()
    await asyncio.sleep(0.1)
    assert only(owner).numbers == [1]
    await close(client, host)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("post"), st.integers(1, 20)),
        st.tuples(st.just("tell"), st.integers(1, 20)),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 0.3, 1.0, 4.0, 20.0])),
        st.tuples(st.just("cut"), st.sampled_from([0.1, 2.0, 5.0, 8.0, 12.0])),
        st.tuples(st.just("kill"), st.sampled_from([0.0, 1.4, 5.0, 70.0])),
    ),
    max_size=12,
)


@given(steps=STEPS, seed=st.integers(0, 1 << 32), loss=st.sampled_from([0.0, 0.1, 0.4]))
def test_whatever_becomes_of_the_way_and_the_owner(steps: list[tuple[str, float]], seed: int, loss: float) -> None:
    """Numbers arrive in order, each once, in every session; the client lets go before the owner does."""

    @virtual
    async def play() -> None:
        owner = CountingOwner("0")
        host = OwnerHost(owner)
        client = Client(host, way=random_ways(random.Random(seed), loss=loss))
        loose: set[str] = set()

        def expired(of: CountingOwner, session: Session) -> None:
            """The session of a client ends: unless it never knew of that session, it has let go before that."""
            loose.add(session.name)
            link = client.pump._link
            assert link is None or link.session != session.name

        owner.on_expiry.append(expired)
        await client.pump.open()
        for what, how in steps:
            if what == "post":
                client.post(int(how))
            elif what == "tell":
                for session in owner.live() * int(how):
                    session.tell()
            elif what == "wait":
                await asyncio.sleep(how)
                owner.expire()
            elif what == "cut":
                client.line.is_cut = True
                for _ in range(int(how * 10)):
                    await asyncio.sleep(0.1)
                    owner.expire()
                client.line.is_cut = False
            else:
                host.kill()
                await asyncio.sleep(how)
                owner = CountingOwner(str(int(owner.epoch) + 1))
                owner.on_expiry.append(expired)
                host.owner = owner
            for session in owner.sessions.values():
                assert session.numbers == list(range(1, len(session.numbers) + 1))
        client.line.way = straight
        await asyncio.sleep(30)
        (session,) = owner.live()
        assert session.numbers == list(range(1, client.posted + 1))
        await turns(3)
        assert client.told == list(range(1, session.told + 1))
        await close(client, host)

    play()
