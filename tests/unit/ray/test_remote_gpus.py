"""The GPUs of a node as clients have them: seats that the owner decides, and services that are called."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_lines import AgentHost, ScriptedOwner, node, shape_of
from arl_tangram.errors import (
    LeaseLostError,
    NoServiceError,
    OwnerLostError,
    RemoteError,
    RestoreError,
    ResultError,
    ServiceLostError,
    UsageError,
)
from arl_tangram.integrations.ray.client.gpus import GrantedSeat, RemoteGpuLease, RemoteGpus
from arl_tangram.integrations.ray.wire import (
    Drop,
    EndSession,
    Evict,
    NodeReady,
    Restored,
    RestoreFailed,
    SessionEnded,
    Take,
)
from arl_tangram.model.gpu import Chunk, Instance, Seat
from arl_tangram.testing import FakeGpuPool, FakePool, FakeService
from virtual_time import turns, virtual

JUDGE, TEACHER = Instance("judge", 1), Instance("teacher", 1)
FIRST = Chunk(0, 1)


class Bed:
    """An agent with two services and one GPU, the owner that decides, and a client."""

    def __init__(self, host: AgentHost, owner: ScriptedOwner, gpus: RemoteGpus) -> None:
        self.host, self.owner, self.gpus = host, owner, gpus

    def sit(self, lease: int, seat: Seat, *, is_told: bool = True) -> RemoteGpuLease:
        """Decide a seat, as the owner does: the agent and the client are told of it."""
        if is_told:
            self.owner.tell(Take(lease, "client-1", seat))
        return self.gpus.take(GrantedSeat.of(seat, lease))


@asynccontextmanager
async def bed(
    on_call: Callable[..., Any] = lambda *args, **kwargs: (args, kwargs),
    on_restore: Callable[[int], None] = lambda _dop: None,
) -> AsyncIterator[Bed]:
    services = (FakeService("judge", on_call=on_call, on_restore=on_restore), FakeService("teacher"))
    owner = ScriptedOwner()
    async with node(FakeGpuPool(*services, gib=1), FakePool(), owner=owner) as (_, host, shape):
        yield Bed(host, owner, RemoteGpus("client-1", shape, lambda _node: host))


@virtual
async def test_a_seat_is_ready_when_its_service_is_and_then_it_answers() -> None:
    async with bed() as b:
        lease = b.sit(7, Seat(FIRST, JUDGE, restores=True))
        assert lease.devices == ("fake:0",)
        with pytest.raises(UsageError, match="is not ready"):
            _ = lease.service
        started_s = asyncio.get_running_loop().time()
        await lease.ready()
        assert asyncio.get_running_loop().time() - started_s == pytest.approx(1.0)
        service = lease.service
        assert (service.name, service.dop, service.devices) == ("judge", 1, ("fake:0",))
        assert await service.call(1, "two", three=[3]) == ((1, "two"), {"three": [3]})
        assert (await b.owner.until(Restored)).instance == JUDGE
        lease.release()
        lease.release()
        with pytest.raises(UsageError, match="has ended"):
            await service.call(1)
        assert [service.name for service in b.gpus.services] == ["judge", "teacher"]


@virtual
async def test_a_client_may_be_told_of_its_seat_before_the_node_is() -> None:
    async with bed() as b:
        seat = Seat(FIRST, JUDGE, restores=True)
        lease = b.sit(7, seat, is_told=False)
        waiting = asyncio.create_task(lease.ready())
        await asyncio.sleep(5)
        assert not waiting.done()
        b.owner.tell(Take(7, "client-1", seat))
        await waiting
        assert await lease.service.call(1) == ((1,), {})


@virtual
async def test_a_decision_that_never_comes_is_an_error_of_the_infrastructure() -> None:
    async with bed() as b:
        with pytest.raises(ServiceLostError, match="was not told of the seat 7 within 30 s"):
            await b.sit(7, Seat(FIRST, JUDGE, restores=True), is_told=False).ready()


@virtual
async def test_seats_are_given_back_and_taken_in_the_order_of_decisions() -> None:
    """The next one evicts what this one used: told out of order, that would be under a running action."""
    async with bed() as b:
        first = b.sit(1, Seat(FIRST, JUDGE, restores=True))
        await first.ready()
        first.release()
        b.owner.tell(Drop(1))
        second = b.sit(2, Seat(FIRST, TEACHER, restores=True, evicts=(JUDGE,)))
        await second.ready()
        b.owner.tell(Drop(2), Evict((TEACHER,)))
        third = b.sit(3, Seat(FIRST))
        await third.ready()
        with pytest.raises(NoServiceError):
            _ = third.service
        with pytest.raises(UsageError, match="seat 1 on the node was given back"):
            await first.ready()
        b.owner.tell(Drop(3), Drop(3))


@virtual
async def test_a_restore_that_fails_is_told_to_both() -> None:
    def fail(_dop: int) -> None:
        raise RestoreError("no memory")

    async with bed(on_restore=fail) as b:
        with pytest.raises(RestoreError, match="no memory"):
            await b.sit(7, Seat(FIRST, JUDGE, restores=True)).ready()
        told = await b.owner.until(RestoreFailed)
        assert told.instance == JUDGE
        assert "no memory" in str(told.error)


@virtual
async def test_a_session_that_is_over_has_no_seats() -> None:
    async with bed() as b:
        lease = b.sit(7, Seat(FIRST, JUDGE, restores=True))
        await lease.ready()
        b.owner.tell(EndSession("client-1"))
        await b.owner.until(SessionEnded)
        with pytest.raises(LeaseLostError):
            await lease.service.call(1)
        b.owner.tell(Take(8, "client-2", Seat(FIRST, TEACHER, restores=True, evicts=(JUDGE,))))
        await asyncio.sleep(5)


@virtual
async def test_an_owner_that_was_started_again_begins_with_nothing_resident() -> None:
    async with bed() as b:
        lease = b.sit(7, Seat(FIRST, JUDGE, restores=True))
        await lease.ready()
        b.owner.restart()
        await asyncio.sleep(10)
        with pytest.raises(OwnerLostError, match="was started again"):
            await lease.service.call(1)
        fresh = b.sit(1001, Seat(FIRST, JUDGE, restores=True))
        await fresh.ready()
        assert await fresh.service.call(2) == ((2,), {})
        assert [told.instance for told in b.owner.told if isinstance(told, Restored)] == [JUDGE, JUDGE]


@virtual
async def test_a_node_that_was_cut_off_is_offered_with_nothing_resident() -> None:
    async with bed() as b:
        lease = b.sit(7, Seat(FIRST, JUDGE, restores=True))
        await lease.ready()
        b.owner.is_cut = True
        await asyncio.sleep(40)
        b.owner.is_cut = False
        await b.owner.until(NodeReady, times=2)
        b.owner.tell(Take(8, "client-2", Seat(FIRST, TEACHER, restores=True)))
        other = RemoteGpus("client-2", b.gpus._shape, lambda _node: b.host)
        await other.take(GrantedSeat(FIRST, TEACHER, restores=True, lease=8)).ready()


@virtual
async def test_a_node_that_is_lost_is_a_service_that_is_lost() -> None:
    async with bed() as b:
        lease, agent = b.sit(7, Seat(FIRST, JUDGE, restores=True)), b.host.agent
        await lease.ready()
        b.host.agent = None
        with pytest.raises(ServiceLostError, match="judge: the node is lost"):
            await lease.service.call(1)
        with pytest.raises(ServiceLostError, match="the node is lost"):
            await lease.ready()
        b.host.agent = agent


@virtual
async def test_calls_end_when_the_session_of_the_client_does() -> None:
    async def never(*_args: object) -> None:
        await asyncio.sleep(1000)

    async with bed(on_call=never) as b:
        lease = b.sit(7, Seat(FIRST, JUDGE, restores=True))
        await lease.ready()
        calling = asyncio.create_task(lease.service.call(1))
        await turns(5)
        b.gpus.lost(LeaseLostError("cut off"))
        with pytest.raises(LeaseLostError, match="cut off"):
            await calling


@virtual
async def test_only_what_was_granted_is_a_seat() -> None:
    gpus = RemoteGpus("client-1", shape_of(), lambda _node: AgentHost(None))
    with pytest.raises(UsageError, match="was not granted"):
        gpus.take(Seat(FIRST, JUDGE))
    with pytest.raises(UsageError, match="no node of the shared pool has GPUs"):
        gpus.take(GrantedSeat(FIRST, JUDGE, lease=1))


# What only one side can import, or nobody pickle.


class Unpicklable(Exception):
    """An error that is not what it was once it was pickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first}/{second}")


@pytest.fixture
def here_only() -> Any:
    """A class in a module that is there while it is pickled, and not afterwards."""
    module = types.ModuleType("of_one_side")
    thing = type("Thing", (), {"__module__": "of_one_side"})
    module.Thing = thing  # type: ignore[attr-defined]
    sys.modules["of_one_side"] = module
    yield thing
    sys.modules.pop("of_one_side", None)


async def called(b: Bed, argument: Any) -> Any:
    lease = b.sit(7, Seat(FIRST, JUDGE, restores=True))
    await lease.ready()
    return await lease.service.call(argument)


def forget_module(what: str) -> None:
    if what == "serve":
        sys.modules.pop("of_one_side")


def test_arguments_that_the_node_cannot_load(here_only: Any) -> None:
    @virtual
    async def main() -> None:
        async with bed() as b:
            b.host.on_arrival = forget_module
            with pytest.raises(RemoteError, match=r"No module named 'of_one_side' \(judge: its arguments") as raised:
                await called(b, here_only())
            assert raised.value.error == "ModuleNotFoundError"
            assert "of_one_side" in raised.value.traceback

    main()


def test_an_answer_that_this_side_cannot_load(here_only: Any) -> None:
    @virtual
    async def main() -> None:
        async with bed(on_call=lambda _argument: here_only()) as b:
            b.host.on_answer = forget_module
            with pytest.raises(ResultError, match="judge: its answer came back and cannot be made again here: Mod"):
                await called(b, 1)

    main()


@virtual
async def test_what_cannot_be_pickled_is_named() -> None:
    async with bed(on_call=lambda _argument: lambda: None) as b:
        with pytest.raises(ResultError, match="judge: its answer cannot be sent back from the node"):
            await called(b, 1)
    async with bed() as b:
        with pytest.raises(TypeError, match="judge: its arguments cannot be sent to the node of the service"):
            await called(b, lambda: None)


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (KeyError("x"), KeyError, "x"),
        (Unpicklable("a", "b"), RemoteError, "Unpicklable: a/b"),
        (asyncio.CancelledError("its own"), RemoteError, "CancelledError: its own"),
        (ServiceLostError("it died"), ServiceLostError, "it died"),
    ],
    ids=repr,
)
def test_what_a_service_raises_is_raised_here(raised: BaseException, kind: type[Exception], text: str) -> None:
    async def fail(_argument: object) -> None:
        raise raised

    @virtual
    async def main() -> None:
        async with bed(on_call=fail) as b:
            with pytest.raises(kind, match=text) as caught:
                await called(b, 1)
            assert "in fail" in str(caught.value.__cause__), "the traceback there is the cause"

    main()
