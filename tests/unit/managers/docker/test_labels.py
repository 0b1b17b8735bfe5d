from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime

import pytest

from arl_tangram.managers.docker.answers import Listed
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.labels import BOOT, HOST, OWNER, STALE_S, Mark, left_behind, read_mark, sweep
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.managers.host.owner import new_name
from fake_engine import FakeEngine, Fault, response

NOW_S = 10_000.0
MARK = Mark("here", "", str(os.stat("/proc/self/ns/pid").st_ino))
ALIVE = new_name()
DEAD = f"{MARK.namespace}-{os.getpid()}-1-abcdef"
ELSEWHERE = "77-1-1-abcdef"  # another number space: its processes cannot be seen


def left(
    owner: str,
    state: str = "running",
    host: str = "here",
    boot: str | None = None,
    *,
    age_s: float = 0,
    ended_s_ago: float = 0,
) -> bool:
    labels = {OWNER: owner, HOST: host} | ({} if boot is None else {BOOT: boot})
    containers = [Listed("c", labels, state, int(NOW_S - age_s))]
    return bool(left_behind(containers, MARK, NOW_S, {"c": NOW_S - ended_s_ago}))


@pytest.mark.parametrize("state", ["running", "paused", "created", "exited", "dead"])
def test_what_a_dead_owner_of_this_boot_had_is_left_behind(state: str) -> None:
    assert left(DEAD, state)


@pytest.mark.parametrize("state", ["running", "paused", "created", "exited", "dead"])
def test_what_a_living_owner_has_is_not(state: str) -> None:
    assert not left(ALIVE, state, age_s=STALE_S + 1, ended_s_ago=STALE_S + 1)


def test_another_boot_of_this_machine_left_it_behind() -> None:
    assert left(ALIVE, boot="an earlier one")
    assert not left(ALIVE, host="there", boot="another")


@pytest.mark.parametrize(
    "owner", [ALIVE, DEAD, ELSEWHERE, "", "nonsense"], ids=["alive", "dead", "elsewhere", "none", "odd"]
)
def test_of_another_machine_only_what_has_stopped_long_ago_is_left_behind(owner: str) -> None:
    for state in ("running", "paused", "restarting", "removing", "created"):
        assert not left(owner, state, host="there")
    for state in ("exited", "dead"):
        assert not left(owner, state, host="there", age_s=STALE_S + 1, ended_s_ago=STALE_S - 1)
        assert left(owner, state, host="there", age_s=STALE_S + 1, ended_s_ago=STALE_S + 1)
    assert left(owner, "created", host="there", age_s=STALE_S + 1)


def test_of_an_owner_that_cannot_be_seen_from_here_only_what_has_stopped_long_ago() -> None:
    assert not left(ELSEWHERE)
    assert not left(ELSEWHERE, "exited"), "it has just ended, and its owner may ask why"
    assert left(ELSEWHERE, "exited", ended_s_ago=STALE_S + 1)


async def test_the_mark_is_the_same_each_time_and_labels_say_all() -> None:
    mark = await read_mark()
    assert mark == await read_mark()
    assert mark.labels("me", "s1", 60.0) == {
        "arl_tangram.owner": "me", "arl_tangram.host": mark.host, "arl_tangram.boot": mark.boot,
        "arl_tangram.sandbox": "s1", "arl_tangram.lease_s": "60",
    }  # fmt: skip


async def test_a_sweep_removes_what_is_left_and_nothing_else() -> None:
    mark = await read_mark()
    async with FakeEngine() as daemon:
        daemon.run("dead", arl_tangram__owner=DEAD, arl_tangram__host=mark.host, arl_tangram__boot=mark.boot)
        daemon.run("stuck", arl_tangram__owner=DEAD, arl_tangram__host=mark.host, arl_tangram__boot="x")
        daemon.run("alive", arl_tangram__owner=ALIVE, arl_tangram__host=mark.host, arl_tangram__boot=mark.boot)
        daemon.run("other")
        daemon.fault(
            f"DELETE containers/{daemon.find('stuck').id}",  # type: ignore[union-attr]
            Fault(response(500, b'{"message": "busy"}'), does=False),
        )
        engine = Engine(daemon.url, LatencyMeter())
        await engine.open()
        assert await sweep(engine) == 1
        assert {container.name for container in daemon.containers.values()} == {"stuck", "alive", "other"}
        assert await sweep(engine) == 1
        assert {container.name for container in daemon.containers.values()} == {"alive", "other"}
        await engine.aclose()


async def test_a_sweep_removes_several_at_once_which_may_be_suspended() -> None:
    mark = await read_mark()
    async with FakeEngine() as daemon:
        left = [
            daemon.run(f"dead{number}", arl_tangram__owner=DEAD, arl_tangram__host=mark.host, arl_tangram__boot="x")
            for number in range(2)
        ]
        left[1].state = "exited"
        both = asyncio.Event()
        for each in left:
            daemon.fault(f"DELETE containers/{each.id}", Fault(after=both))
        engine = Engine(daemon.url, LatencyMeter())
        await engine.open()
        sweeping = asyncio.ensure_future(sweep(engine))
        for each in left:
            await daemon.wait_for(f"DELETE containers/{each.id}")
        both.set()
        assert await sweeping == 2
        quotas = [[(each["CpuQuota"], each["CpuShares"]) for each in container.updates] for container in left]
        assert quotas == [[(-1, 1024)], []]
        await engine.aclose()


async def test_a_sweep_asks_the_daemon_when_those_of_another_machine_ended() -> None:
    now_s = time.time()
    async with FakeEngine() as daemon:
        for name, created_s_ago, ended_s_ago in [
            ("young", 60, 30), ("just ended", 3 * STALE_S, 30), ("long over", 3 * STALE_S, 2 * STALE_S),
            ("never ran", 3 * STALE_S, None), ("cannot be asked", 3 * STALE_S, 2 * STALE_S),
        ]:  # fmt: skip
            container = daemon.run(name, arl_tangram__owner=ELSEWHERE, arl_tangram__host="there")
            container.state = "exited"
            container.created = int(now_s - created_s_ago)
            if ended_s_ago is not None:
                container.finished_at = datetime.fromtimestamp(now_s - ended_s_ago, UTC).isoformat()
        asked = daemon.find("cannot be asked")
        assert asked is not None
        daemon.fault(f"GET containers/{asked.id}/json", Fault(response(500, b'{"message": "busy"}'), does=False))
        engine = Engine(daemon.url, LatencyMeter())
        await engine.open()
        assert await sweep(engine) == 2
        assert {container.name for container in daemon.containers.values()} == {
            "young",
            "just ended",
            "cannot be asked",
        }
        await engine.aclose()
