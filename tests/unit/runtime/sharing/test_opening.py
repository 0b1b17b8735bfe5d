"""Opening a pool whose running actions share their cores: what it says, what it refuses, and policies of one's own."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from arl_tangram import ConfigurationError, Tangram, policies
from arl_tangram.testing import FakeManager, FakePool, assert_idle
from arl_tangram.timed_policy import TimedShare, watched_share
from arl_tangram.trace.reader import read_trace
from unit.runtime.sharing.scenes import EQUAL, begin, in_a_sandbox, pool_of, steady, with_urgent
from virtual_time import virtual


@virtual
async def test_where_cores_cannot_be_changed_all_is_as_without(caplog: pytest.LogCaptureFixture) -> None:
    class Manager(FakeManager):
        def cannot_resize(self) -> str | None:
            return "no cgroups here"

    with caplog.at_level(logging.WARNING, "arl_tangram"):
        async with Tangram(pool_of(Manager, cores=2, share=EQUAL)) as tg:
            first, second = with_urgent(in_a_sandbox(steady, 1.0))
            assert (await first, await second) == (1.0, 2.0)
            assert tg.describe().endswith("running actions keep their cores, for all that share= says: no cgroups here")
            assert "no cgroups here" in tg.report()
    assert "share=equal shares is without effect" in caplog.text


@virtual
async def test_what_is_shared_is_said() -> None:
    async with Tangram(FakePool(share="resize")) as tg:
        assert tg.describe() == "fake pool of 8 cores; running actions share their cores by size-aware"
    async with Tangram(FakePool()) as tg:
        assert tg.describe() == "fake pool of 8 cores"


def test_a_trace_names_the_policy_of_shared_cores(tmp_path: Path) -> None:
    with Tangram(FakePool(share="resize"), trace=tmp_path / "run.jsonl"):
        pass
    assert read_trace(tmp_path / "run.jsonl").header.policy == "elastic, share=size-aware"


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"FakePool\(share=\) takes 'resize', a policy .*, not 'always'"):
        FakePool(share=cast(Any, "always"))
    with pytest.raises(ConfigurationError, match=r"not <class .*EqualShares'>; call it$"):
        FakePool(share=cast(Any, policies.EqualShares))
    with pytest.raises(ConfigurationError, match=r"not Elastic\(\), which decides what starts .* Tangram\(policy=\)$"):
        FakePool(share=cast(Any, policies.elastic()))
    with pytest.raises(ConfigurationError, match=r"; it lacks rank, next_s, share$"):
        FakePool(share=cast(Any, SimpleNamespace(name="own")))
    with pytest.raises(ConfigurationError, match=r"not EqualShares\(\), which is for share= of a pool$"):
        Tangram(FakePool(), policy=cast(Any, policies.equal_shares()))
    with pytest.raises(ConfigurationError, match=r"OwnPool\(share=\) takes 'resize', a policy .*, not 'always'"):
        Tangram(OwnPool())
    with pytest.raises(
        ConfigurationError, match=r"policy=reserved.* and FakePool\(share=\) lets running actions share"
    ):
        Tangram(FakePool(share="resize"), policy=policies.reserved(1))


class OwnPool:
    """A pool of the user's own, with what no pool takes."""

    share = "always"

    def manager(self) -> FakeManager:
        raise AssertionError("it is not opened")


class Own:
    """A policy of the user's own: whoever came first."""

    name = "own"

    def __init__(self, takes_s: float = 0.0, fails_at: int = -1) -> None:
        self.takes_s = takes_s
        self.fails_at = fails_at
        self.asked = 0

    def rank(self, sharer: policies.Sharer) -> float:
        return 0.0

    def next_s(self, sharer: policies.Sharer) -> float:
        return float("inf")

    def share(self, sharers: Sequence[policies.Sharer], cores: int, present: int) -> list[int]:
        self.asked += 1
        if self.takes_s:
            time.sleep(self.takes_s)
        if self.asked == self.fails_at:
            raise ValueError("cannot decide")
        return EQUAL.share(sharers, cores, present)


@virtual
async def test_a_policy_of_ones_own_decides_until_it_fails(caplog: pytest.LogCaptureFixture) -> None:
    own = Own(fails_at=3)
    async with Tangram(FakePool(cores=2, share=own)) as tg:
        calls = begin(*(in_a_sandbox(steady, 1.0, after_s=0.25 * number) for number in range(4)))
        await asyncio.gather(*calls)
        assert_idle(tg)
        assert "running actions share their cores equally, as own was refused" in tg.report()
    assert own.asked == 3
    assert "the policy of shared cores was refused: ValueError: cannot decide" in caplog.text


def test_a_policy_that_holds_up_the_loop_fails() -> None:
    assert watched_share(EQUAL) is EQUAL
    slow = watched_share(Own(takes_s=0.002))
    assert slow.name == "own"
    assert slow.share([], 2, 0) == []
    assert slow.rank(cast(Any, None)) == 0.0
    assert slow.next_s(cast(Any, None)) == float("inf")
    with pytest.raises(TimeoutError, match=r"planned for 0\.\d+ s; 0\.001 s are the most"):
        TimedShare(Own(takes_s=0.002), 0.001).share([], 2, 0)
