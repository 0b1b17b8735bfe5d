"""Cases 71 to 93: Docker containers that die, hang, are slow or lie. The engine is real; a fake injects its faults."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import statistics
import time
from pathlib import Path

import pytest

import arl_tangram as tangram
from arl_tangram import AllocationError, ExecResult, SandboxLostError, SandboxStartError
from arl_tangram.managers.docker.stream import ExecStream
from contract.sandbox_contract import mark, processes, until_there_is
from docker_engine import EngineApi
from docker_images import Images
from faulty_engine import faulty_engine
from integration.docker_actions import command, container, cores_back_s, docker_runtime, engine_call, rollout, until
from integration.docker_managers import containers, own_containers
from integration.test_docker_faults import killed_trainer, rollout_when_back

both = pytest.mark.parametrize("grants", ["direct", "api"])


@both
async def test_case_71_a_timeout_kills_what_left_its_session_and_nothing_happens_later(
    docker_url: str, images: Images, grants: str
) -> None:
    mine = mark()
    async with docker_runtime(docker_url, images.busybox, cores=1, grants=grants), tangram.trajectory():
        script = f"setsid sleep {mine} & (sleep 2; touch late-{mine}) & wait"
        started_s = time.monotonic()
        done = await command("sh", "-c", script, timeout=0.5)
        assert done.timed_out
        assert not processes(mine)  # nor the shell that would touch the file
        await asyncio.sleep(2.5 - (time.monotonic() - started_s))
        assert (await command("test", "-e", f"late-{mine}")).exit_code == 1


async def test_case_71_a_grandchild_that_holds_the_output_does_not_hold_up_its_end(
    docker_url: str, images: Images
) -> None:
    mine = mark()
    async with docker_runtime(docker_url, images.busybox), tangram.trajectory():
        async with asyncio.timeout(20):
            done = await command("sh", "-c", f"setsid sleep {mine} & echo done")
        assert done.stdout == b"done\n"
        assert done.duration_s < 1
        assert not processes(mine), "it ends with its action"


@both
async def test_case_73_a_guard_inside_ends_what_runs_when_the_trainer_is_gone(
    docker_url: str, images: Images, grants: str
) -> None:
    box = await killed_trainer(docker_url, images.busybox, grants)  # it waits until the command is gone
    async with docker_runtime(docker_url, images.busybox, grants=grants):
        assert box not in await asyncio.to_thread(containers, docker_url), "the next start removes the container"


@both
async def test_case_75_after_a_timeout_the_sandbox_is_as_it_was_and_the_output_is_there(
    docker_url: str, images: Images, grants: str
) -> None:
    async with docker_runtime(docker_url, images.busybox, grants=grants), tangram.trajectory():
        await command("sh", "-c", "mkdir here; echo kept > here/file")
        done = await command("sh", "-c", "echo a; sleep 99", timeout=1)
        assert (done.timed_out, done.stdout) == (True, b"a\n")
        assert (await command("sh", "-c", 'cat file; echo "$B"', cwd="here", env={"B": "b"})).stdout == b"kept\nb\n"


@both
async def test_case_77_a_container_that_is_killed_is_told_at_once(docker_url: str, images: Images, grants: str) -> None:
    async with docker_runtime(docker_url, images.busybox, grants=grants) as tg, tangram.trajectory():
        box, mine = await container(), mark()
        running = asyncio.ensure_future(command("sleep", mine))
        await until_there_is(f"sleep\0{mine}")
        killed_s = time.monotonic()
        await engine_call(docker_url, "POST", f"/containers/{box.container.id}/kill")
        with pytest.raises(SandboxLostError, match=r"137|killed"):
            await running
        assert await cores_back_s(tg, killed_s) < 2


async def test_case_77_out_of_memory_is_told_at_once(docker_url: str, images: Images) -> None:
    async with docker_runtime(docker_url, images.busybox) as tg, tangram.trajectory(memory_gib=1 / 16):
        done = await command("tail", "/dev/zero", timeout=60)
        ended_s = time.monotonic()
        assert (done.exit_code, done.timed_out) == (137, False)
        assert await cores_back_s(tg, ended_s) < 2
        assert (await command("echo", "on")).stdout == b"on\n", "the sandbox goes on"


@pytest.mark.timeout(240)
async def test_case_79_a_command_at_the_moment_of_the_end_never_hangs(docker_url: str, images: Images) -> None:
    generator = random.Random(79)
    kinds: set[str] = set()
    async with docker_runtime(docker_url, images.busybox, warm=4) as tg:
        for _ in range(40):
            async with tangram.trajectory():
                box = await container()
                running = asyncio.ensure_future(command("true"))
                await asyncio.sleep(generator.random() * 0.006)
                os.kill(box.container.pid, 9)
                killed_s = time.monotonic()
                ended = (await asyncio.gather(running, return_exceptions=True))[0]
                assert isinstance(ended, (ExecResult, SandboxLostError)), ended
                assert time.monotonic() - killed_s < 5
                kinds.add(type(ended).__name__)
                async with asyncio.timeout(5):
                    await until_lost()
        assert await cores_back_s(tg, time.monotonic()) < 1
    assert kinds == {"ExecResult", "SandboxLostError"}, "the moments were before and after the end"


async def until_lost() -> None:
    """Run commands until the sandbox is said to be lost."""
    with contextlib.suppress(SandboxLostError):
        while True:
            await command("true")


@both
async def test_case_81_all_streams_end_and_the_daemon_is_away_for_a_while(
    docker_url: str, images: Images, tmp_path: Path, grants: str
) -> None:
    mine = mark()
    before = len(os.listdir("/proc/self/fd"))
    async with faulty_engine(docker_url, tmp_path) as faulty:
        async with docker_runtime(faulty.url, images.busybox, grants=grants) as tg:
            async with tangram.trajectory():
                running = asyncio.ensure_future(command("sh", "-c", f"echo ran >> ran; sleep {mine}"))
                await until_there_is(f"sleep\0{mine}")
                faulty.go_away()
                away_s = time.monotonic()
                with pytest.raises(SandboxLostError):
                    await running
                assert await cores_back_s(tg, away_s) < 20
                await until(lambda: not processes(mine), 20)
                await asyncio.sleep(max(0.0, 3 - (time.monotonic() - away_s)))
                faulty.heal()
                # What only the daemon can kill may be alive, so without it the sandbox was given up.
                if grants == "api":
                    with pytest.raises(SandboxLostError):
                        await command("true")
                else:  # the command was run once, and limits hold
                    assert (await command("cat", "ran")).stdout == b"ran\n"
                    assert (await command("env", "-u", "OMP_NUM_THREADS", "nproc")).stdout == b"1\n"
            assert (await rollout_when_back()).stdout == b"on\n"
        assert not processes(mine)
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before, 5)


async def test_case_81_a_stream_that_breaks_is_not_the_end_of_the_container(
    docker_url: str, images: Images, tmp_path: Path
) -> None:
    """The daemon is well, one moment later: what ran is lost and has run once, and it is said."""
    mine = mark()
    async with faulty_engine(docker_url, tmp_path) as faulty, docker_runtime(faulty.url, images.busybox) as tg:
        async with tangram.trajectory():
            running = asyncio.ensure_future(command("sh", "-c", f"echo ran >> ran; sleep {mine}"))
            await until_there_is(f"sleep\0{mine}")
            faulty.cut_all()
            with pytest.raises(SandboxLostError):
                await running
            assert await cores_back_s(tg, time.monotonic()) < 10
            assert not processes(mine)
        assert (await rollout("echo", "on")).stdout == b"on\n"


async def test_case_83_a_daemon_that_ignores_what_it_is_asked_for_is_found_out(
    docker_url: str, images: Images, tmp_path: Path
) -> None:
    async with (
        faulty_engine(docker_url, tmp_path) as faulty,
        docker_runtime(faulty.url, images.busybox, grants="api") as tg,
        tangram.trajectory(),
    ):
        assert (await command("true")).exit_code == 0
        await asyncio.sleep(1)  # it is idle again
        faulty.answer("POST /containers/.*/update", 200, '{"Warnings": null}')
        with pytest.raises(AllocationError, match=r"wanted 1 .*0\.1"):
            await command("true")
        assert await cores_back_s(tg, time.monotonic()) < 5
        faulty.heal()
        assert (await command("echo", "on")).stdout == b"on\n"


async def test_case_83_a_daemon_that_refuses_is_told(docker_url: str, images: Images, tmp_path: Path) -> None:
    async with (
        faulty_engine(docker_url, tmp_path) as faulty,
        docker_runtime(faulty.url, images.busybox, grants="api"),
        tangram.trajectory(),
    ):
        faulty.answer("POST /containers/.*/update", 500, '{"message": "runc did not terminate successfully"}')
        with pytest.raises(AllocationError, match="runc did not terminate successfully"):
            await command("true")
        faulty.heal()
        assert (await command("echo", "on")).stdout == b"on\n"


async def test_case_91_starts_that_fail_leave_no_container(docker_url: str, images: Images, tmp_path: Path) -> None:
    async with faulty_engine(docker_url, tmp_path) as faulty:
        async with docker_runtime(faulty.url, images.busybox, start_timeout_s=1) as tg:
            for what in ("POST /containers/.*/exec", "POST /exec/.*/start", "POST /containers/.*/start"):
                faulty.hang(what)
                for _ in range(3):
                    with pytest.raises(SandboxStartError):
                        await rollout("true")
                faulty.heal()
            for what in ("POST /containers/create", "POST /containers/.*/start"):
                faulty.lose_answer(what)
                with pytest.raises(SandboxStartError):
                    await rollout("true")
                faulty.heal()
            assert tg.statistics().trajectories == 0
            async with asyncio.timeout(30):
                while await asyncio.to_thread(own_containers, docker_url):  # noqa: ASYNC110 - the engine tells nobody
                    await asyncio.sleep(0.05)
        async with docker_runtime(faulty.url, images.busybox):
            assert (await rollout("echo", "on")).stdout == b"on\n"


@pytest.mark.timeout(300)
async def test_case_93_thousands_of_commands_in_one_container_leave_nothing_that_grows(
    docker_url: str, images: Images
) -> None:
    many = 5_000
    took_s: list[float] = []
    async with docker_runtime(docker_url, images.busybox) as tg, tangram.trajectory():
        box = await container()
        await series(took_s, 100)
        gc.collect()
        objects = len(gc.get_objects())
        await series(took_s, many - 100)
        gc.collect()
        assert len(gc.get_objects()) - objects < many // 2, "less than one object for two commands"
        assert sum(type(each) is ExecStream for each in gc.get_objects()) < 10
        record = EngineApi(docker_url).get(f"/containers/{box.container.id}/json")
        assert len(record["ExecIDs"] or []) < 10
        assert tg.statistics().running == 0
    assert typical_s(took_s[-100:]) <= 1.5 * typical_s(took_s[:100])


def typical_s(took_s: list[float]) -> float:
    """Return the median of the fastest of each five: what else the machine does is not what is measured."""
    return statistics.median(min(took_s[at : at + 5]) for at in range(0, len(took_s), 5))


async def series(took_s: list[float], count: int) -> None:
    for _ in range(count):
        started_s = time.perf_counter()
        assert (await command("true")).exit_code == 0
        took_s.append(time.perf_counter() - started_s)
