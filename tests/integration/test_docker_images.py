"""Sandboxes of images of all sorts: other shells, a user without rights, a working folder and variables of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import arl_tangram as tangram
from arl_tangram.managers.docker.sandbox import DockerSandbox
from contract.sandbox_contract import mark, processes, until_there_is
from docker_images import USER, Images
from integration.docker_actions import EVERYWHERE, command, command_on_two, docker_runtime, rollout
from integration.docker_managers import docker_manager

KINDS = ("busybox", "python", "bash", "user", "workdir")


@pytest.mark.parametrize("channel", ["session", "exec"])
@pytest.mark.parametrize("grants", ["direct", "api"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_sandbox_of_any_image_keeps_its_promises(
    kind: str, grants: str, channel: str, docker_url: str, images: Images, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "run").write_text("#!/bin/sh\necho ran in $(pwd)\n")
    (tmp_path / "source" / "run").chmod(0o755)
    image = getattr(images, kind)
    async with docker_manager(docker_url, image, grants=grants, channel=channel) as manager:
        box = await manager.create_sandbox(image=None, memory_bytes=256 << 20)
        assert isinstance(box, DockerSandbox)
        lease = manager.lease(1000, box)
        done = await box.exec(["sh", "-c", 'cat; echo "$A"; echo err >&2; exit 3'], stdin=b"in\n", env={"A": "a b"})
        assert (done.exit_code, done.stdout, done.stderr) == (3, b"in\na b\n", b"err\n")
        await box.write_file("deep/file", bytes(range(256)))
        assert (await box.exec(["cat", "file"], cwd="deep")).stdout == bytes(range(256))
        await box.put_dir(tmp_path / "source", "copy")
        ran = (await box.exec(["./run"], cwd="copy")).stdout.decode()
        assert ran == f"ran in {box.container.workdir}/copy\n"
        await box.get_dir("copy", tmp_path / "back")
        assert (tmp_path / "back" / "run").exists()
        mine = mark()
        done = await box.exec(["sh", "-c", "echo a; " + EVERYWHERE.format(mine)], timeout=0.5)
        assert (done.timed_out, done.stdout) == (True, b"a\n")
        assert not processes(f"sleep\0{mine}")
        running = asyncio.ensure_future(box.exec(["sh", "-c", EVERYWHERE.format(mine)]))
        await until_there_is(f"sleep\0{mine}")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not processes(f"sleep\0{mine}")
        await box.exec(["sh", "-c", f"env -i setsid sleep {mine} >/dev/null 2>&1 & :"])
        assert lease.needs_cleanup()
        await lease.clean()
        assert not processes(f"sleep\0{mine}")
        lease.release()
        for cores in (2, 1):
            lease = manager.lease(cores * 1000, box)
            assert int((await box.exec(["env", "-u", "OMP_NUM_THREADS", "nproc"])).stdout) == cores
            lease.release()
        await box.aclose()


async def test_python_sees_the_cores_that_were_granted(docker_url: str, images: Images) -> None:
    program = "import os; print(len(os.sched_getaffinity(0)), os.environ['PYTHON_CPU_COUNT'])"
    async with docker_runtime(docker_url, images.python), tangram.trajectory():
        for cores, run in ((1, command), (2, command_on_two), (1, command)):
            done = await run("python3", "-c", program)
            assert done.stdout.split() == [b"%d" % cores] * 2, done


async def test_the_user_of_an_image_stays_without_rights(docker_url: str, images: Images) -> None:
    async with docker_runtime(docker_url, images.user), tangram.trajectory():
        assert (await command("id", "-u")).stdout == b"%d\n" % USER
        assert (await command("sh", "-c", 'echo "$HOME"; pwd')).stdout == b"/home/agent\n/home/agent\n"
        assert (await command("touch", "/etc/mine")).exit_code != 0
        assert (await command("touch", "mine")).exit_code == 0


async def test_the_user_of_the_pool_goes_first(docker_url: str, images: Images) -> None:
    async with docker_runtime(docker_url, images.busybox, user=f"{USER}:{USER}"):
        assert (await rollout("id", "-u")).stdout == b"%d\n" % USER
        assert (await rollout("sh", "-c", "touch mine && ls")).stdout == b"mine\n", "its working folder is its own"


async def test_the_working_folder_and_the_environment_of_an_image_are_kept(docker_url: str, images: Images) -> None:
    async with docker_runtime(docker_url, images.workdir), tangram.trajectory():
        assert (await command("cat", "README")).stdout == b"a file of the image\n"
        assert (await command("sh", "-c", 'pwd; echo "$FLAVOUR"')).stdout == b"/srv/project\nplain\n"
        changed = await command("sh", "-c", 'echo "$FLAVOUR"', env={"FLAVOUR": "bitter"})
        assert changed.stdout == b"bitter\n"


async def test_the_working_folder_of_the_pool_goes_first(docker_url: str, images: Images) -> None:
    async with docker_runtime(docker_url, images.workdir, workdir="/somewhere/else"):
        assert (await rollout("sh", "-c", "pwd; touch mine; ls")).stdout == b"/somewhere/else\nmine\n"


async def test_without_one_the_working_folder_is_a_fresh_one(docker_url: str, images: Images) -> None:
    async with docker_runtime(docker_url, images.busybox):
        assert (await rollout("sh", "-c", "pwd; ls -A")).stdout == b"/workspace\n"


async def test_a_container_has_no_network_no_capabilities_and_no_new_privileges(
    docker_url: str, images: Images
) -> None:
    async with docker_runtime(docker_url, images.busybox), tangram.trajectory():
        assert (await command("ls", "/sys/class/net")).stdout == b"lo\n"
        status = (await command("cat", "/proc/self/status")).stdout.decode()
        told = dict(line.split(":\t") for line in status.splitlines() if line.startswith(("Cap", "NoNew")))
        assert {name: int(value, 16) for name, value in told.items()} == {
            "CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapBnd": 0, "CapAmb": 0, "NoNewPrivs": 1,
        }  # fmt: skip


async def test_capabilities_that_are_asked_for_are_there(docker_url: str, images: Images) -> None:
    async with docker_runtime(docker_url, images.busybox, capabilities=["CHOWN"]):
        assert (await rollout("sh", "-c", "touch x; chown 5 x && stat -c %u x")).stdout == b"5\n"
    async with docker_runtime(docker_url, images.busybox):
        assert (await rollout("sh", "-c", "touch x; chown 5 x")).exit_code != 0
