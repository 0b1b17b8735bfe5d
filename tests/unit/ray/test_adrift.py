"""What is called while there is no session: it is asked for when one begins, unless the pools are others by then."""

from __future__ import annotations

import asyncio

import pytest

from arl_tangram.errors import InfeasibleError, LeaseLostError
from arl_tangram.integrations.ray.client.dispatcher import RemoteDispatcher
from arl_tangram.integrations.ray.wire import Command, Declare, Granted, Refused, Shape, Submit
from arl_tangram.model.lifecycle import Demand, PendingAction, RunningAction
from arl_tangram.model.topology import Dimension
from virtual_time import virtual

CPU, QUOTA = Dimension("cpu@a", 4), Dimension("quota:api/concurrency", 2)


class Waits:
    """A waiter that takes down how it failed."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def granted(self, running: RunningAction | None) -> None:
        raise AssertionError("not granted")

    def expired(self) -> None:
        raise AssertionError("no deadline")

    def failed(self, error: Exception) -> None:
        self.error = error

    def shut_down(self) -> None:
        raise AssertionError("not closed")


class Started(Waits):
    """A waiter that starts."""

    def granted(self, running: RunningAction | None) -> None:
        pass


@virtual
async def test_what_goes_wrong_with_one_event_is_not_the_end_of_those_behind_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    remote = RemoteDispatcher(lambda _: None, Shape(1, (CPU,), ()), call_off=lambda *_: None, on_shape=lambda _: None)
    waiters = [Waits(), Waits()]
    for number, waiter in enumerate(waiters, 1):
        remote.submit(PendingAction(number, Demand("search", ((0, 1),), dimensions=1), remote.time()), waiter)
    remote.tell([Granted(1, 0.0, 7, 0, 0.0, None, 0), Refused(2, InfeasibleError("too much"))])  # it has no 8th place
    assert isinstance(waiters[1].error, InfeasibleError)
    assert "Granted" in caplog.text


@virtual
async def test_what_is_called_without_a_session_is_asked_for_in_the_next_one() -> None:
    said: list[Command] = []
    shape = Shape(1, (CPU, QUOTA), ())
    remote = RemoteDispatcher(said.append, shape, call_off=lambda *_: None, on_shape=lambda _: None)
    demand = Demand("search", ((1, 1),), dimensions=2)

    def call() -> Waits:
        waiter = Waits()
        remote.submit(PendingAction(remote.new_id(), demand, remote.time()), waiter)
        return waiter

    first = call()
    assert [type(command) for command in said] == [Declare, Submit]
    remote.lost(LeaseLostError("cut off"))
    assert isinstance(first.error, LeaseLostError)
    said.clear()
    second = call()
    withdrawn = call()
    remote.withdraw(3)
    assert said == []
    assert remote.renew(Shape(1, (CPU, QUOTA), ()))
    assert [type(command) for command in said] == [Declare, Submit]
    assert second.error is withdrawn.error is None

    remote.lost(LeaseLostError("cut off"))
    said.clear()
    third = call()
    assert not remote.renew(Shape(1, (QUOTA,), ()))  # what was number 1 there is nothing here
    assert said == []
    assert third.error is None


@virtual
async def test_what_was_taken_of_rates_is_told_as_long_as_the_session_lasts() -> None:
    shape = Shape(1, (CPU, Dimension("quota:api/calls", 9, 1, 60.0)), ())
    remote = RemoteDispatcher(lambda _: None, shape, call_off=lambda *_: None, on_shape=lambda _: None)
    demand = Demand("search", ((1, 2),), dimensions=2)

    def start() -> int:
        number = remote.new_id()
        remote.submit(PendingAction(number, demand, remote.time()), Started())
        remote.tell([Granted(number, 0.0, None, 0, 0.0, None, 0)])
        return number

    remote.finish(start(), remote.time(), 1.0)
    more = start()
    await asyncio.sleep(10.0)
    remote.settle(more, [(1, 5)])
    remote.finish(more, remote.time(), 10.0)
    assert sum(units for _, units, _ in remote.held().charges) == 7
    await asyncio.sleep(51.0)
    assert remote.held().charges == ((1, 3, 51.0),), "of what was settled, those beyond the grant count from then"
    remote.lost(LeaseLostError("cut off"))
    remote.renew(shape)
    assert not remote.held().charges, "that owner knows it"
