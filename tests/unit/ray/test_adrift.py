"""What is called while there is no session: it is asked for when one begins, unless the pools are others by then."""

from __future__ import annotations

import pytest

from arl_tangram.errors import LeaseLostError, OwnerLostError
from arl_tangram.integrations.ray.dispatcher import RemoteDispatcher
from arl_tangram.integrations.ray.wire import Command, Declare, Shape, Submit
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
    remote.renew(Shape(1, (CPU, QUOTA), ()))
    assert [type(command) for command in said] == [Declare, Submit]
    assert second.error is withdrawn.error is None

    remote.lost(LeaseLostError("cut off"))
    said.clear()
    third = call()
    remote.renew(Shape(1, (QUOTA,), ()))  # what was number 1 there is nothing here
    assert isinstance(third.error, OwnerLostError)
    with pytest.raises(OwnerLostError, match="the pools are others"):
        raise third.error
    assert said == []
