"""What cannot be: each is a typed error that names the thing, at once, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram import (
    ConfigurationError,
    DockerHost,
    DockerPool,
    InfeasibleError,
    SandboxPathError,
    SandboxStartError,
    Tangram,
)
from docker_images import Images
from integration.docker_actions import command, docker_runtime, rollout


async def refused(match: str, **options: Any) -> None:
    """Open a pool that cannot be: it fails with a typed error, and soon."""
    async with asyncio.timeout(60):
        with pytest.raises(ConfigurationError, match=match):
            async with Tangram(DockerPool(**options)):
                pytest.fail("it was opened")


# the daemon


async def test_no_daemon_at_this_socket() -> None:
    await refused(r"/no/such/docker\.sock", url="unix:///no/such/docker.sock")


async def test_no_daemon_at_this_address() -> None:
    await refused(r"127\.0\.0\.1:1\b", url="tcp://127.0.0.1:1")


async def test_no_daemon_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/docker.sock")
    await refused(r"/no/such/docker\.sock")


async def test_one_daemon_of_two_is_missing(docker_url: str, images: Images) -> None:
    hosts = [DockerHost(url=docker_url, cores=1), DockerHost(url="unix:///no/such/docker.sock", cores=1)]
    await refused(r"/no/such/docker\.sock", hosts=hosts, image=images.busybox)


@pytest.mark.parametrize("url", ["docker.sock", "unix://", "tcp://", "tcp://host:port", "ftp://host", ""])
async def test_an_address_that_is_none(url: str) -> None:
    await refused(url or "url", url=url)


async def test_a_file_that_is_no_socket(tmp_path: Path) -> None:
    (tmp_path / "docker.sock").touch()
    await refused("docker.sock", url=f"unix://{tmp_path}/docker.sock")
    await refused(tmp_path.name, url=f"unix://{tmp_path}")


@asynccontextmanager
async def stranger(folder: Path, says: bytes) -> AsyncIterator[str]:
    """Listen at a socket, and answer whatever comes with the same words."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(says)
        writer.close()

    server = await asyncio.start_unix_server(serve, folder / "stranger.sock")
    try:
        yield f"unix://{folder}/stranger.sock"
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"220 mail.example ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["nothing", "mail", "web", "json", "404"],
)
async def test_a_socket_of_something_else(says: bytes, tmp_path: Path) -> None:
    async with stranger(tmp_path, says) as url:
        await refused(r"stranger\.sock", url=url)


# All is imported before it becomes nobody, who may not read every folder that Python is installed in.
AS_NOBODY = """
import asyncio, os, sys, uuid
import aiodocker
import arl_tangram as tangram
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
os.environ["HOME"] = "/"
async def main():
    async with tangram.Tangram(tangram.DockerPool(url=sys.argv[1])):
        print("opened")
asyncio.run(main())
"""


@pytest.mark.usefixtures("as_root")
async def test_no_permission_for_the_socket(docker_url: str) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AS_NOBODY, docker_url, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await program.communicate()
    last = err.decode().strip().splitlines()[-1]
    assert (program.returncode, out) == (1, b""), err.decode()
    assert "ConfigurationError" in last
    assert docker_url.removeprefix("unix://") in last
    assert "may not use" in last
    assert "group" in last


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.fail("this test becomes another user, which needs root", pytrace=False)


# images


@pytest.mark.parametrize("pull", ["missing", "never"])
async def test_a_missing_image_of_the_pool(docker_url: str, pull: str) -> None:
    async with asyncio.timeout(60):
        with pytest.raises(SandboxStartError, match=r"arl-tangram-test/no-such-image:1"):
            async with Tangram(
                DockerPool(url=docker_url, image="localhost:1/arl-tangram-test/no-such-image:1", pull=pull)  # type: ignore[arg-type]
            ):
                pytest.fail("it was opened")


async def test_a_missing_image_of_a_trajectory_is_its_failure_alone(docker_url: str, images: Images) -> None:
    async with docker_runtime(docker_url, images.busybox):
        good = asyncio.ensure_future(rollout("echo", "on"))
        with pytest.raises(SandboxStartError, match=r"localhost:1/no/such-image:7"):
            await rollout("true", image="localhost:1/no/such-image:7")
        assert (await good).stdout == b"on\n"


async def test_an_image_without_a_shell(docker_url: str, images: Images) -> None:
    async with docker_runtime(docker_url, images.busybox):
        for _ in range(2):
            with pytest.raises(SandboxStartError, match=r"/bin/sh") as caught:
                await rollout("true", image=images.shell_less)
            assert images.shell_less in str(caught.value)
        assert (await rollout("echo", "on")).stdout == b"on\n"


async def test_an_image_that_is_none(docker_url: str, images: Images) -> None:
    wrong: Any
    async with docker_runtime(docker_url, images.busybox):
        for wrong in ("", " ", "two words", "a\0b", "-v", 7):
            with pytest.raises(ConfigurationError, match="image"):
                await rollout("true", image=wrong)
            with pytest.raises(ConfigurationError, match="image"):
                DockerPool(image=wrong)
        with pytest.raises((ConfigurationError, SandboxStartError), match="name:"):
            await rollout("true", image="name:")


async def test_no_image_at_all(docker_url: str) -> None:
    async with docker_runtime(docker_url, None):
        with pytest.raises(ConfigurationError, match="image"):
            await rollout("true")


# cores and memory


@pytest.mark.parametrize("core_ids", [[4000], [0, 4000]])
async def test_cores_that_there_are_not(core_ids: list[int], docker_url: str) -> None:
    await refused("4000", url=docker_url, core_ids=core_ids)


async def test_more_cores_than_there_are(docker_url: str) -> None:
    await refused("4000 cores", url=docker_url, cores=4000)


async def test_more_memory_than_there_is(docker_url: str, images: Images) -> None:
    await refused("1000000", url=docker_url, memory_gib=1e6)
    async with docker_runtime(docker_url, images.busybox):
        with pytest.raises(InfeasibleError, match="memory"):
            async with tangram.trajectory(memory_gib=2):
                pytest.fail("it was opened")


async def test_less_memory_than_a_container_can_have(docker_url: str, images: Images) -> None:
    async with docker_runtime(docker_url, images.busybox):
        with pytest.raises((ConfigurationError, SandboxStartError), match=r"[Mm]emory|MiB|6MB"):
            async with tangram.trajectory(memory_gib=0.001):
                pytest.fail("it was opened")


async def test_a_network_that_there_is_not(docker_url: str, images: Images) -> None:
    async with asyncio.timeout(60):
        with pytest.raises((ConfigurationError, SandboxStartError), match="no-such-network"):
            async with Tangram(DockerPool(url=docker_url, image=images.busybox, network="no-such-network", cores=1)):
                await rollout("true")


async def test_a_user_that_there_is_not(docker_url: str, images: Images) -> None:
    async with asyncio.timeout(60):
        with pytest.raises((ConfigurationError, SandboxStartError), match="no-such-user"):
            async with Tangram(DockerPool(url=docker_url, image=images.busybox, user="no-such-user", cores=1)):
                await rollout("true")


# commands and files


async def test_commands_that_cannot_be(docker_url: str, images: Images) -> None:
    async with docker_runtime(docker_url, images.busybox), tangram.trajectory():
        with pytest.raises(FileNotFoundError, match="no-such-program"):
            await command("no-such-program")
        with pytest.raises(FileNotFoundError, match="/no/such/program"):
            await command("/no/such/program")
        with pytest.raises(PermissionError, match="/etc/passwd"):
            await command("/etc/passwd")
        with pytest.raises(PermissionError, match="/etc"):
            await command("/etc")
        with pytest.raises(OSError, match=r"131072|128 KiB|[Aa]rgument") as caught:
            await command("echo", "x" * (128 << 10))
        assert caught.value.errno == errno.E2BIG
        assert (await command("sh", "-c", "exit 127")).exit_code == 127, "which a command may say itself"
        assert (await command("sh", "-c", "exit 126")).exit_code == 126
        longest = "x" * ((128 << 10) - 1)
        assert (await command("printf", "%s", longest)).stdout == longest.encode()


async def test_bytes_that_are_no_text(docker_url: str, images: Images) -> None:
    everything = bytes(range(256)) * 64
    async with docker_runtime(docker_url, images.busybox), tangram.trajectory():
        assert (await command("cat", stdin=everything)).stdout == everything
        done = await command("sh", "-c", "cat >&2; head -c 300 /dev/zero", stdin=everything)
        assert (done.stdout, done.stderr) == (bytes(300), everything)
        undecodable = os.fsdecode(b"\xff\xfe'\"\n\t")
        assert (await command("printf", "%s", undecodable)).stdout == b"\xff\xfe'\"\n\t"
        assert (await command("sh", "-c", 'printf %s "$A"', env={"A": undecodable})).stdout == b"\xff\xfe'\"\n\t"


@tangram.action(cpu=1)
async def attempts(path: str, folder: Path) -> None:
    """Try to get out of the working folder, in every way."""
    box = tangram.current_sandbox()
    for attempt in (
        box.exec(["true"], cwd=path),
        box.read_file(path),
        box.write_file(path, b"x"),
        box.put_dir(folder, path),
        box.get_dir(path, folder / "copy"),
    ):
        with pytest.raises(SandboxPathError) as caught:
            await attempt
        assert path in str(caught.value)


async def test_paths_that_leave_the_sandbox(docker_url: str, images: Images, tmp_path: Path) -> None:
    async with docker_runtime(docker_url, images.busybox), tangram.trajectory():
        await command("sh", "-c", "ln -s / out; ln -s ../.. up; mkdir in")
        for path in ("..", "../x", "in/../../x", "out/etc/passwd", "up/etc/passwd", "../../../../etc/passwd"):
            await attempts(path, tmp_path)
    assert os.listdir(tmp_path) == []
