from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

import arl_tangram as tangram
from arl_tangram.errors import ConfigurationError, OwnerLostError
from arl_tangram.integrations.verl.owning import Owned, at_end_of_run, open_owned, present
from arl_tangram.integrations.verl.settings import Settings


def pools() -> tangram.Tangram:
    return tangram.Tangram(tangram.Quota("search", concurrency=1))


def no_nodes() -> str:
    return "everywhere"


def test_what_ends_a_run_closes_ours_first_and_once() -> None:
    closed: list[str] = []
    queue = SimpleNamespace(close=lambda: closed.append("theirs"))
    original = queue.close

    at_end_of_run(lambda: closed.append("ours"), queue)
    queue.close()

    assert closed == ["ours", "theirs"]
    assert queue.close is original
    queue.close()
    assert closed == ["ours", "theirs", "theirs"]


def test_theirs_is_closed_whatever_ours_raises(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[str] = []
    queue = SimpleNamespace(close=lambda: closed.append("theirs"))

    def fails() -> None:
        raise ConfigurationError("broken")

    at_end_of_run(fails, queue)
    with caplog.at_level(logging.ERROR):
        queue.close()

    assert closed == ["theirs"]
    assert "broken" in caplog.text


async def test_groups_are_cancelled_off_the_loop_and_counted_once() -> None:
    cancelled: list[str] = []

    async def cancel_group(group: str) -> int:
        cancelled.append(group)
        return 0

    # `asyncio.run` refuses where a loop runs, as `wait` of a runtime does; a trainer's constructor may block its loop.
    owned = Owned(cast("Any", SimpleNamespace(cancel_group=cancel_group, wait=asyncio.run)), 2)
    owned.cancel([])
    owned.cancel(["a", "b"])

    assert cancelled == ["a", "b"]
    assert (owned.take_cancelled(), owned.take_cancelled()) == (2, 0)


def test_a_runtime_that_does_not_answer_does_not_end_the_training(caplog: pytest.LogCaptureFixture) -> None:
    async def cancel_group(group: str) -> int:
        raise OwnerLostError("it is gone")

    owned = Owned(cast("Any", SimpleNamespace(cancel_group=cancel_group, wait=asyncio.run)), 2)
    owned.cancel(["a"])
    assert "stale rollouts are not cancelled: it is gone" in caplog.text


def test_nothing_is_owned_at_first() -> None:
    assert present() is None


def test_pools_that_lead_nowhere_are_told_with_the_key() -> None:
    with pytest.raises(ConfigurationError, match=r"tangram\.pools: .*no_such_agent"):
        open_owned(Settings("no_such_agent:pools"))


def test_nodes_that_are_none_are_refused() -> None:
    here = f"{__name__}:pools"
    with pytest.raises(ConfigurationError, match=r"tangram\.nodes: .* returns a sequence of Node, not 'everywhere'"):
        open_owned(Settings(here, nodes=f"{__name__}:no_nodes"))
