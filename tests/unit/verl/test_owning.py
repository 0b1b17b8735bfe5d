from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

import arl_tangram as tangram
from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.verl.owning import at_end_of_run, open_owned, present
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


def test_nothing_is_owned_at_first() -> None:
    assert present() is None


def test_pools_that_lead_nowhere_are_told_with_the_key() -> None:
    with pytest.raises(ConfigurationError, match=r"tangram\.pools: .*no_such_agent"):
        open_owned(Settings("no_such_agent:pools"))


def test_nodes_that_are_none_are_refused() -> None:
    here = f"{__name__}:pools"
    with pytest.raises(ConfigurationError, match=r"tangram\.nodes: .* returns a sequence of Node, not 'everywhere'"):
        open_owned(Settings(here, nodes=f"{__name__}:no_nodes"))
