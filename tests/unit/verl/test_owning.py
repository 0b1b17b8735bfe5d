from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

import arl_tangram as tangram
from arl_tangram.errors import ConfigurationError, OwnerLostError, UsageError
from arl_tangram.integrations.verl.owning import Owned, at_end_of_run, own, present
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


def owned(cancel_group: Callable[[str], Coroutine[Any, Any, int]]) -> Owned:
    """Return what owns a runtime that cancels like this; a group is too old in the step after its own."""
    # `asyncio.run` refuses where a loop runs, as `wait` of a runtime does.
    runtime = SimpleNamespace(cancel_group=cancel_group, wait=asyncio.run, is_over=False, is_open=True)
    return Owned(cast("Any", runtime), 2, 1)


def await_cancelled() -> None:
    for thread in threading.enumerate():
        if thread.name == "arl_tangram cancel":
            thread.join()


async def test_groups_are_cancelled_together_while_the_trainer_goes_on_and_counted_if_a_call_has_ended() -> None:
    begun: set[str] = set()
    goes_on, together = threading.Event(), asyncio.Barrier(3)

    async def cancel_group(group: str) -> int:
        begun.add(group)
        await asyncio.to_thread(goes_on.wait, 60)
        await together.wait()  # one after the other, this would be for ever
        return {"a": 3, "b": 0, "c": 1}[group]

    owner = owned(cancel_group)
    owner.begin("abcd", 1)
    owner.ended("d")
    owner.begin("e", 2)
    goes_on.set()
    await_cancelled()

    assert begun == {"a", "b", "c"}
    assert (owner.take_cancelled(), owner.take_cancelled()) == (2, 0)


def test_a_runtime_that_does_not_answer_does_not_end_the_training(caplog: pytest.LogCaptureFixture) -> None:
    async def cancel_group(group: str) -> int:
        if group == "a":
            raise OwnerLostError("it is gone")
        return 1

    owner = owned(cancel_group)
    owner.begin("ab", 1)
    owner.begin("", 2)
    await_cancelled()
    assert "of 2 stale groups, some are not cancelled: it is gone" in caplog.text
    assert owner.take_cancelled() == 1

    owner.runtime.wait = cast("Any", broken)  # type: ignore[method-assign]
    owner.begin("c", 3)
    owner.begin("", 4)
    await_cancelled()
    assert "of 1 stale groups, some are not cancelled: it is closed" in caplog.text


def test_a_step_whose_figures_nobody_tells_has_none(caplog: pytest.LogCaptureFixture) -> None:
    def figures() -> Any:
        raise OwnerLostError("it is gone")

    assert Owned(cast("Any", SimpleNamespace(figures=figures)), 2).take_figures() == {}
    assert "no figures of the shared runtime in this step: it is gone" in caplog.text


def broken(coroutine: Coroutine[Any, Any, Any]) -> None:
    coroutine.close()
    raise UsageError("it is closed")


@pytest.mark.parametrize("gone", [{"is_over": True}, {"is_open": False}])
def test_a_runtime_that_is_gone_for_good_is_told(gone: dict[str, bool]) -> None:
    runtime = SimpleNamespace(is_over=False, is_open=True)
    Owned(cast("Any", runtime), 2).check()
    vars(runtime).update(gone)
    with pytest.raises(OwnerLostError, match="gone for good"):
        Owned(cast("Any", runtime), 2).check()


def test_nothing_is_owned_at_first() -> None:
    assert present() is None


def test_pools_that_lead_nowhere_are_told_with_the_key() -> None:
    with pytest.raises(ConfigurationError, match=r"tangram\.pools: .*no_such_agent"):
        own(Settings("no_such_agent:pools"), 2)


def test_nodes_that_are_none_are_refused() -> None:
    here = f"{__name__}:pools"
    with pytest.raises(ConfigurationError, match=r"tangram\.nodes: .* returns a sequence of Node, not 'everywhere'"):
        own(Settings(here, nodes=f"{__name__}:no_nodes"), 2)
