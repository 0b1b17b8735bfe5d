"""The whole runtime with real sandboxes, worker processes, threads and loops: nothing is lost, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import arl_tangram as tangram
from arl_tangram import GroupCancelledError, LocalPool, Quota, RunTimeout, Tangram
from arl_tangram.testing import assert_idle
from leftovers import Snapshot
from property.real_bodies import ACTIONS, ENDS, OwnError

ACTIONS_IN_ALL = {"light": 100, "nightly": 4_000}
"""How many at least; the profile of Hypothesis that is not here has `USUAL_ACTIONS`."""
USUAL_ACTIONS = 400
MOST_AT_ONCE = 20
TIMEOUT_S = 0.05
HOWS = ("ok", "ok", "ok", "fail", "slow", "leave")
CALLERS = ("task", "task", "cancelled", "thread", "loop")


@dataclass(eq=False)
class Asked:
    """A call, and what may come of it.

    Attributes:
        kind: a name of `ACTIONS`.
        how: what the body does.
        caller: who asks: a task, one that is cancelled, a thread without a loop, or another loop on another thread.
        answers: what came of it; exactly one when all is over.
        in_group: whether it was made in a group that is cancelled meanwhile.
    """

    number: int
    kind: str
    how: str
    caller: str
    in_group: bool = False
    answers: list[Any] = field(default_factory=list)

    def action(self) -> Any:
        """Return what is called."""
        return ACTIONS[self.kind].with_options(timeout=TIMEOUT_S if self.how == "slow" else None)

    def check(self) -> None:
        """See that it was answered once, with what its body has done."""
        assert len(self.answers) == 1, f"{self} was answered {len(self.answers)} times"
        (answer,) = self.answers
        if self.caller == "cancelled" and isinstance(answer, asyncio.CancelledError):
            return
        if self.in_group and isinstance(answer, GroupCancelledError):
            return
        expected = {"fail": OwnError, "slow": RunTimeout}.get(self.how) or ENDS.get((self.kind, self.how))
        if expected is None:
            assert answer == self.number, self
        else:
            assert isinstance(answer, expected), self
            assert not isinstance(answer, OwnError) or answer.args == (self.number,), self

    async def run(self) -> None:
        """Make the call on the running loop."""
        try:
            self.answers.append(await self.action()(self.number, self.how))
        except BaseException as error:  # noqa: BLE001 - checked later
            self.answers.append(error)

    def block(self) -> None:
        """Make the call on a thread without a loop."""
        try:
            self.answers.append(tangram.run_sync(self.action(), self.number, self.how))
        except BaseException as error:  # noqa: BLE001 - checked later
            self.answers.append(error)


class Wave:
    """Calls of all kinds at once, and what is done to them."""

    def __init__(self, tg: Tangram, chance: random.Random, first: int) -> None:
        self._tg = tg
        self._chance = chance
        self._first = first
        self.asked: list[Asked] = []

    async def run(self) -> None:
        """Make them, wait for all, and check what came of them."""
        count = self._chance.randint(4, MOST_AT_ONCE)
        group = self._chance.choice([None, "a"])
        cancels_group = group is not None and self._chance.random() < 0.5
        inside = [self._ask(i, in_group=cancels_group) for i in range(count // 2)]
        outside = [self._ask(i) for i in range(count // 2, count)]
        others = [self._steer(), self._rollout(inside, group if cancels_group else None)]
        await asyncio.gather(*(self._make(asked) for asked in outside if asked.kind != "sandbox"), *others)
        self.asked = [*inside, *(asked for asked in outside if asked.kind != "sandbox")]
        for asked in self.asked:
            asked.check()

    def _ask(self, i: int, *, in_group: bool = False) -> Asked:
        choose = self._chance.choice
        return Asked(self._first + i, choose(list(ACTIONS)), choose(HOWS), choose(CALLERS), in_group)

    async def _rollout(self, inside: list[Asked], cancelled_group: str | None) -> None:
        async with tangram.trajectory(memory_gib=0.0625, group=cancelled_group):
            calls = asyncio.gather(*(self._make(asked) for asked in inside))
            if cancelled_group is not None:
                await asyncio.sleep(self._chance.random() / 20)
                ended = await self._tg.cancel_group(cancelled_group)
                assert 0 <= ended <= 2 * len(inside)  # some call another one
            await calls

    async def _steer(self) -> None:
        """Pause, drain, and change what there is, while all goes on."""
        await asyncio.sleep(self._chance.random() / 50)
        if self._chance.random() < 0.3:
            await self._tg.drain()
            assert not self._tg.statistics().running
            self._tg.resume()
        if self._chance.random() < 0.3:
            self._tg.set_capacity("cpu", 1)
            await asyncio.sleep(0.01)
            self._tg.set_capacity("cpu", 2)

    async def _make(self, asked: Asked) -> None:
        if asked.caller == "thread":
            await _on_thread(asked.block)
        elif asked.caller == "loop":
            await _on_thread(lambda: asyncio.run(asked.run()))
        elif asked.caller == "cancelled":
            task = asyncio.ensure_future(asked.run())
            await asyncio.sleep(self._chance.random() / 20)
            task.cancel()
            await asyncio.wait([task])
        else:
            await asked.run()


async def _on_thread(work: Callable[[], None]) -> None:
    """Do something on a thread of its own, in this context."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    context = copy_context()

    def run() -> None:
        try:
            context.run(work)
        finally:
            loop.call_soon_threadsafe(done.set)

    thread = threading.Thread(target=run, name="a caller")
    thread.start()
    await done.wait()
    thread.join()


async def _waves(tg: Tangram, chance: random.Random, goal: int) -> int:
    made = 0
    while made < goal:
        wave = Wave(tg, chance, made)
        await wave.run()
        made += len(wave.asked)
        await _until_idle(tg)
        assert_idle(tg)
    return made


async def _until_idle(tg: Tangram) -> None:
    """Wait for bodies on threads that linger; nothing else may."""
    while tg.statistics().lingering:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.01)


@pytest.mark.timeout(1200)
def test_nothing_is_lost_or_left_by_real_bodies_of_every_kind(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    profile = settings.get_current_profile_name()
    goal = ACTIONS_IN_ALL.get(profile, USUAL_ACTIONS)
    chosen = request.config.getoption("hypothesis_seed", None)
    drawn = random.SystemRandom().randrange(1 << 32) if profile == "nightly" else 0
    seed = drawn if chosen is None else int(chosen)
    print(f"seed: {seed}; --hypothesis-seed={seed} repeats this run")
    root = tmp_path / "root"
    cgroups: list[Path] = []

    async def main(goal: int) -> int:
        pool = LocalPool(cores=2, memory_gib=0.5, isolation="none", root=root)
        quota = Quota("api", calls=50, period_s=0.1, concurrency=5)
        async with Tangram(pool, quota, max_threads=8, max_processes=3, kill_grace_s=1.0) as tg:
            made = await _waves(tg, random.Random(seed), goal)
            cgroups.extend(_cgroups())
        return made

    asyncio.run(main(MOST_AT_ONCE))  # what a first run makes for good (imports, a server of forks) is none of this
    before = Snapshot.take(with_descriptors=True)
    made = asyncio.run(main(goal))
    assert made >= goal
    assert not before.leftovers()
    assert not [path for path in cgroups if path.exists()], "cgroups were left behind"
    left = [path for path in root.rglob("*") if path.name in {"work", "home"}]
    assert not left, f"folders were left behind: {left}"


def _cgroups() -> list[Path]:
    """Return the cgroups that this process has made."""
    base = Path("/sys/fs/cgroup")
    return [path for path in base.rglob("arl_tangram*") if path.is_dir() and str(os.getpid()) in path.name]
