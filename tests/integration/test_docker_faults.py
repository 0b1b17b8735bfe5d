"""Docker sandboxes under attack: what the trainer hears, how soon its cores are back, and what is left (nothing)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import arl_tangram as tangram
from arl_tangram import ExecResult, OutOfMemoryError, SandboxLostError, SandboxStartError
from contract.sandbox_contract import longest_turn_s, mark, peak_kib, processes, reset_peak_kib, until_there_is
from docker_engine import PrivateEngine
from docker_images import Images
from faulty_engine import faulty_engine
from integration.docker_actions import (
    EVERYWHERE,
    command,
    container,
    cores_back_s,
    docker_runtime,
    engine_call,
    rollout,
    until,
)
from integration.docker_managers import containers, docker_manager

TESTS = Path(__file__).parent.parent
both = pytest.mark.parametrize("grants", ["direct", "api"])


@both
async def test_a_container_that_is_killed_ends_its_command_at_once(
    docker_url: str, images: Images, grants: str
) -> None:
    mine = mark()
    async with docker_runtime(docker_url, images.busybox, grants=grants) as tg:
        async with tangram.trajectory():
            box = await container()
            running = asyncio.ensure_future(command("sh", "-c", EVERYWHERE.format(mine)))
            await until_there_is(f"sleep\0{mine}")
            killed_s = time.monotonic()
            os.kill(box.container.pid, signal.SIGKILL)
            with pytest.raises(SandboxLostError, match=r"137|killed"):
                await running
            assert await cores_back_s(tg, killed_s) < 2
            assert not processes(mine)
            with pytest.raises(SandboxLostError):
                await command("true")
        assert (await rollout("echo", "on")).stdout == b"on\n"


@both
async def test_memory_beyond_the_limit_fails_the_command_not_the_sandbox(
    docker_url: str, images: Images, grants: str
) -> None:
    async with (
        docker_runtime(docker_url, images.busybox, grants=grants) as tg,
        tangram.trajectory(memory_gib=1 / 16),
    ):
        await command("touch", "kept")
        started_s = time.monotonic()
        done = await command("tail", "/dev/zero", timeout=60)  # remembers a line that never ends
        assert (done.exit_code, done.timed_out) == (137, False)
        assert await cores_back_s(tg, started_s) < 30
        assert (await command("ls")).stdout == b"kept\n"


async def test_memory_that_nobody_gives_back_is_told_as_such(docker_url: str, images: Images) -> None:
    """Files in memory fill the sandbox: whoever is killed for it, it is told, and no other sandbox suffers."""
    async with docker_runtime(docker_url, images.busybox) as tg:
        async with tangram.trajectory(memory_gib=1 / 16):
            ended: ExecResult | OutOfMemoryError
            try:
                ended = await command("sh", "-c", "dd if=/dev/zero of=/dev/shm/full bs=1M count=60", timeout=60)
            except OutOfMemoryError as error:
                ended = error
            assert isinstance(ended, OutOfMemoryError) or not ended.timed_out
            assert await cores_back_s(tg, time.monotonic()) < 2
        assert (await rollout("echo", "on")).stdout == b"on\n"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("live_restore", [False, True], ids=["plain", "live-restore"])
@both
async def test_a_daemon_that_is_killed_and_restarted(
    private_engine: Callable[..., PrivateEngine], live_restore: bool, grants: str
) -> None:
    engine = await asyncio.to_thread(private_engine, live_restore=live_restore)
    images = Images(engine.api, "restarted")
    image = images.busybox
    mine = mark()
    async with docker_runtime(engine.url, image, grants=grants) as tg:
        async with tangram.trajectory():
            running = asyncio.ensure_future(command("sh", "-c", EVERYWHERE.format(mine)))
            await until_there_is(f"sleep\0{mine}")
            killed_s = time.monotonic()
            await asyncio.to_thread(engine.kill)
            with pytest.raises(SandboxLostError):
                await running
            assert await cores_back_s(tg, killed_s) < 15
            if grants == "direct":
                assert not processes(mine), "killed without the daemon"
            await asyncio.to_thread(engine.start)
            # Containerd keeps the input of a command open for a daemon that has crashed, so its guard hears nothing:
            # what only the daemon can kill lives until that is back.
            await until(lambda: not processes(mine), 20)
        assert (await rollout_when_back()).stdout == b"on\n"
    assert not processes(mine)


async def rollout_when_back() -> ExecResult:
    """Run a command in a new sandbox; while the daemon is not back, a start may fail, and says so."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await rollout("echo", "on")
            except (SandboxStartError, SandboxLostError):
                await asyncio.sleep(0.2)


@pytest.mark.timeout(240)
async def test_a_daemon_that_is_restarted_in_good_order_between_two_actions(
    private_engine: Callable[..., PrivateEngine],
) -> None:
    engine = await asyncio.to_thread(private_engine, live_restore=True)
    images = Images(engine.api, "restarted")
    image = images.busybox
    async with docker_runtime(engine.url, image):
        async with tangram.trajectory():
            await command("touch", "kept")
            before = (await container()).container.id
            await asyncio.to_thread(engine.restart)
            async with asyncio.timeout(60):
                assert (await command("ls")).stdout == b"kept\n", "its container has lived on, and is used again"
            assert (await container()).container.id == before
        assert (await rollout_when_back()).stdout == b"on\n"


@pytest.mark.timeout(240)
@both
async def test_an_action_that_begins_before_anybody_knows_of_the_daemons_death_outlasts_it(
    private_engine: Callable[..., PrivateEngine], grants: str
) -> None:
    engine = await asyncio.to_thread(private_engine, live_restore=True)
    image = Images(engine.api, "outlasted").busybox
    async with docker_runtime(engine.url, image, grants=grants), tangram.trajectory():
        await command("touch", "kept")
        await asyncio.to_thread(engine.kill)
        begun = asyncio.ensure_future(command("ls"))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(engine.start)
        async with asyncio.timeout(60):
            assert (await begun).stdout == b"kept\n"


@pytest.mark.timeout(300)
async def test_a_gibibyte_of_output_takes_little_memory_and_leaves_the_loop_alone(
    docker_url: str, images: Images
) -> None:
    async with docker_runtime(docker_url, images.busybox) as tg, tangram.trajectory():
        await command("true")
        before = reset_peak_kib()
        flood = asyncio.ensure_future(command("dd", "if=/dev/zero", "bs=1M", "count=1024", timeout=240))
        longest_s = await longest_turn_s(flood)
        done = await flood
        ended_s = time.monotonic()
        assert (done.exit_code, done.truncated, len(done.stdout)) == (0, True, 1 << 20)
        assert peak_kib() - before < 50_000
        assert longest_s < 0.05
        assert await cores_back_s(tg, ended_s) < 1
        assert (await command("echo", "on")).stdout == b"on\n"


@both
async def test_a_fork_bomb_ends_in_bounded_time(docker_url: str, images: Images, grants: str) -> None:
    mine = mark()
    bomb = f"exec 2>/dev/null; bomb() {{ bomb {mine} & bomb {mine}; }}; bomb {mine} & exec sleep {mine}"
    async with docker_runtime(docker_url, images.busybox, grants=grants, pids_limit=300) as tg:
        async with tangram.trajectory():
            started_s = time.monotonic()
            done: ExecResult | None = None
            try:
                done = await command("sh", "-c", bomb, timeout=1)
            except SandboxLostError:
                assert grants == "api", "who writes its cgroups can stop it"
            assert await cores_back_s(tg, started_s) < 20
            assert not processes(mine)
            if done is None:  # what could not be stopped through the daemon was destroyed, for good
                with pytest.raises(SandboxLostError):
                    await command("true")
            else:
                assert done.timed_out
                assert (await command("echo", "on")).stdout == b"on\n"
        assert (await rollout("echo", "on")).stdout == b"on\n"


async def test_a_removal_that_fails_is_tried_again(docker_url: str, images: Images, tmp_path: Path) -> None:
    async with faulty_engine(docker_url, tmp_path) as faulty, docker_runtime(faulty.url, images.busybox) as tg:
        faulty.answer("DELETE /containers/", 500, '{"message": "driver failed to remove root filesystem"}')
        mine = mark()
        async with tangram.trajectory():
            box = await container()
            await command("sh", "-c", f"setsid sleep {mine} & :")
            left_s = time.monotonic()
        assert time.monotonic() - left_s < 20, "a removal that fails does not hold up the trajectory for long"
        assert await cores_back_s(tg, left_s) < 20
        assert not processes(mine), "what it ran is gone, although the container is not"
        assert box.container.id in await asyncio.to_thread(containers, docker_url)
        assert (await rollout("echo", "on")).stdout == b"on\n"
        faulty.heal()
    assert box.container.id not in await asyncio.to_thread(containers, docker_url)


async def test_a_removal_that_somebody_else_has_done_is_one(docker_url: str, images: Images) -> None:
    async with docker_runtime(docker_url, images.busybox) as tg:
        async with tangram.trajectory():
            box = await container()
            removed_s = time.monotonic()
            await engine_call(docker_url, "DELETE", f"/containers/{box.container.id}?force=1")
            with pytest.raises(SandboxLostError):
                await command("true")
            assert await cores_back_s(tg, removed_s) < 2
        assert (await rollout("echo", "on")).stdout == b"on\n"


# a trainer that is killed


@contextlib.contextmanager
def trainer(url: str, image: str, grants: str, script: str) -> Iterator[subprocess.Popen[bytes]]:
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    program = [sys.executable, str(TESTS / "integration" / "docker_trainer.py"), url, image, grants, script]
    with subprocess.Popen(program, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}) as process:
        try:
            yield process
        finally:
            process.kill()


async def killed_trainer(url: str, image: str, grants: str) -> str:
    """Let a trainer run a command, kill it, and wait until the command is gone; return the container that is left."""
    mine = mark()
    with trainer(url, image, grants, EVERYWHERE.format(mine)) as process:
        assert process.stdout is not None
        box = (await asyncio.to_thread(process.stdout.readline)).decode().strip()
        assert re.fullmatch("[0-9a-f]{64}", box)
        await until_there_is(f"sleep\0{mine}")
        process.kill()
        gone_s = await until(lambda: not processes(mine))
    assert gone_s < 5, "the guard ends what runs as soon as nobody holds the other end"
    return box


@both
async def test_the_next_start_removes_what_a_killed_trainer_left(docker_url: str, images: Images, grants: str) -> None:
    image = images.busybox
    box = await killed_trainer(docker_url, image, grants)
    assert box in await asyncio.to_thread(containers, docker_url)
    async with docker_manager(docker_url, image, grants=grants):
        assert box not in await asyncio.to_thread(containers, docker_url)


async def test_doctor_removes_what_a_killed_trainer_left(private_engine: Callable[..., PrivateEngine]) -> None:
    engine = await asyncio.to_thread(private_engine)
    box = await killed_trainer(engine.url, Images(engine.api, "doctor").busybox, "auto")
    assert box[:12] in await doctor(engine.url)
    assert await asyncio.to_thread(containers, engine.url) == [box], "it only looks"
    assert "removed" in await doctor(engine.url, "--remove")
    assert await asyncio.to_thread(containers, engine.url) == []


async def doctor(url: str, *arguments: str) -> str:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "arl_tangram", "doctor", *arguments,
        env={**os.environ, "DOCKER_HOST": url}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    told, _ = await asyncio.wait_for(program.communicate(), 60)
    return told.decode()


async def test_a_living_trainer_is_left_alone(docker_url: str, images: Images) -> None:
    image, mine = images.busybox, mark()
    with trainer(docker_url, image, "auto", f"sleep {mine}") as process:
        assert process.stdout is not None
        box = (await asyncio.to_thread(process.stdout.readline)).decode().strip()
        await until_there_is(f"sleep\0{mine}")
        async with docker_manager(docker_url, image):
            assert box in await asyncio.to_thread(containers, docker_url)
            assert processes(f"sleep\0{mine}")
    async with docker_manager(docker_url, image):
        assert box not in await asyncio.to_thread(containers, docker_url)


# many at once


async def test_case_66_more_trajectories_than_there_may_be_containers_wait_and_none_fails(
    docker_url: str, images: Images
) -> None:
    most = 0
    async with docker_runtime(docker_url, images.busybox, max_sandboxes=12) as tg:

        async def one() -> int:
            nonlocal most
            async with tangram.trajectory():
                most = max(most, tg.statistics().trajectories)
                return (await command("true")).exit_code

        assert await asyncio.gather(*(one() for _ in range(60))) == [0] * 60
        assert tg.statistics().trajectories == 0
    assert most <= 12
