"""When an owner that was started again knows all that is held, and what it does not take for that."""

from __future__ import annotations

import asyncio

from arl_tangram.errors import LeaseLostError
from arl_tangram.integrations.ray.owner.nodes import Nodes
from arl_tangram.integrations.ray.owner.recovering import Recovering
from arl_tangram.integrations.ray.owner.roster import Session
from arl_tangram.integrations.ray.sessions.greeting import greeting
from arl_tangram.integrations.ray.wire import (
    ClientFrame,
    EndSession,
    HeldCall,
    HeldTrajectory,
    Kept,
    NodeOffer,
    Open,
    Resume,
    Shape,
    Submit,
)
from arl_tangram.testing import FakePool
from shared_world import SharedWorld
from virtual_time import turns, virtual

OFFERS = (NodeOffer("a", "a", ()), NodeOffer("b", "b", ()))
SHAPE = Shape(1, (), OFFERS)
LIMIT_S = 20.0


class Beginning:
    """An owner that begins again, with two nodes."""

    def __init__(self) -> None:
        self.nodes = Nodes()
        self.ended_s: list[float] = []
        loop = asyncio.get_running_loop()
        self.recovering = Recovering(self.nodes, LIMIT_S, lambda: self.ended_s.append(loop.time()))

    def node(self, offer: NodeOffer, sessions: tuple[str, ...] | None = None) -> Session:
        """A node is there, which resumes if it knows of sessions."""
        session = Session(f"node {offer.name}", {"kind": "node"}, lambda *_: None)
        known = self.nodes.find(offer.name)
        if known is None:
            self.nodes.add(offer, session)
        else:
            known.session = session
        if sessions is None:
            self.recovering.node_ready(SHAPE)
        else:
            self.recovering.node(session, offer.name, Resume(SHAPE, offer=offer, sessions=sessions))
        return session

    def loses(self, name: str) -> None:
        node = self.nodes.find(name)
        assert node is not None
        node.session = None
        self.recovering.node_lost(name)

    def client(self, name: str) -> None:
        self.recovering.client(Session(name, {"kind": "client"}, lambda *_: None), Resume(SHAPE))


async def told(session: Session) -> list[object]:
    return list((await session.exchange(ClientFrame("e", "s", 1, (), 0), "e")).events)


@virtual
async def test_it_ends_when_all_nodes_and_all_clients_that_they_know_are_there() -> None:
    begin = Beginning()
    begin.client("one")
    begin.node(OFFERS[0], ("one", "two"))
    begin.node(OFFERS[1], ("one",))
    assert not begin.ended_s
    begin.client("two")
    assert begin.ended_s == [0]


@virtual
async def test_who_does_not_come_back_is_ended_on_the_nodes_first() -> None:
    begin = Beginning()
    nodes = [begin.node(offer, ("one",)) for offer in OFFERS]
    await asyncio.sleep(LIMIT_S + 1)
    assert [await told(node) for node in nodes] == [[EndSession("one")]] * 2
    begin.recovering.session_ended("one", "a")
    assert not begin.ended_s
    assert begin.recovering.is_ended("one")
    begin.recovering.session_ended("one", "b")
    assert begin.ended_s == [LIMIT_S + 1]


@virtual
async def test_a_node_that_is_lost_and_back_has_nothing_left_to_end() -> None:
    begin = Beginning()
    for offer in OFFERS:
        begin.node(offer, ("one",))
    await asyncio.sleep(LIMIT_S + 1)
    begin.loses("b")
    begin.node(OFFERS[1])
    begin.recovering.session_ended("one", "a")
    assert begin.ended_s == [LIMIT_S + 1]


@virtual
async def test_where_no_node_knows_the_clients_they_are_waited_for() -> None:
    begin = Beginning()
    begin.client("one")
    for offer in OFFERS:
        begin.node(offer)
    await asyncio.sleep(LIMIT_S - 1)
    assert not begin.ended_s
    await asyncio.sleep(2)
    assert begin.ended_s == [LIMIT_S]


@virtual
async def test_a_session_that_a_node_was_ending_is_ended_on_all() -> None:
    begin = Beginning()
    first = begin.node(OFFERS[0], ("one",))
    second = begin.node(OFFERS[1], ())
    begin.recovering.session_ended("one", "a")
    assert await told(first) == await told(second) == [EndSession("one")]
    assert not begin.ended_s
    begin.recovering.session_ended("one", "b")
    assert begin.ended_s == [0]


@virtual
async def test_a_node_that_comes_later_is_told_of_sessions_that_others_have_ended() -> None:
    begin = Beginning()
    first = begin.node(OFFERS[0], ())
    begin.recovering.session_ended("one", "a")
    begin.client("two")
    begin.recovering.left("two")
    assert await told(first) == [EndSession("one"), EndSession("two")]
    begin.recovering.session_ended("one", "a")
    begin.recovering.session_ended("two", "a")
    second = begin.node(OFFERS[1], ("one", "two"))
    assert await told(second) == [EndSession("one"), EndSession("two")]
    begin.recovering.session_ended("one", "b")
    assert not begin.ended_s
    begin.recovering.session_ended("two", "b")
    assert begin.ended_s == [0]


@virtual
async def test_of_two_greetings_that_resume_the_one_sent_later_counts() -> None:
    async with SharedWorld(nodes={"a": [FakePool(cores=1)]}) as world:
        world.kill_owner()
        world.start_owner()
        about = {"kind": "client", "name": "c", "host": "h"}
        resumed = {"epoch": "e1", "session": "client-e1-2", "resume": Resume(SHAPE)}
        early, late = (greeting(about, f"token {n}", turn=n, **resumed) for n in (1, 2))  # type: ignore[arg-type]
        assert (await world.owner.hello(late))["session"] == "client-e1-2"
        refused = await world.owner.hello(early)
        assert refused["error"][0] == LeaseLostError.__name__
        session = world.owner._roster.find("client-e1-2")
        assert session is not None
        assert session.ended is None
        await turns(3)


def test_what_was_told_a_while_ago_is_older_by_that() -> None:
    call = Submit(1, 1, "", None, False, None, 1.0, 5.0)
    trajectory = Open(2, 1, None, 2.0)
    told = Resume(
        SHAPE,
        trajectories=(HeldTrajectory(trajectory, 0),),
        running=(HeldCall(call._replace(first_age_s=None), None, 0, False, None, None, 3.0),),
        waiting=(call, trajectory),
        charges=((0, 1, 4.0),),
        kept=Kept(1, pauses=(("a", 10.0), ("b", 50.0)), charges=((0, 1, 4.0),)),
    ).aged(10.0)
    assert [held.open.age_s for held in told.trajectories] == [12.0]
    assert [(held.submit.age_s, held.submit.first_age_s, held.ran_s) for held in told.running] == [(11.0, None, 13.0)]
    assert told.waiting == (call._replace(age_s=11.0, first_age_s=15.0), trajectory._replace(age_s=12.0))
    assert told.charges == ((0, 1, 14.0),)
    assert told.kept == Kept(1, pauses=(("b", 40.0),), charges=((0, 1, 14.0),))
