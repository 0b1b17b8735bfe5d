"""Files of real containers: every shell that an image may have, users without rights, large and odd trees."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from arl_tangram.errors import SandboxLostError, SandboxPathError
from arl_tangram.managers.docker.sandbox import DockerSandbox
from contract.sandbox_contract import longest_turn_s, peak_kib, reset_peak_kib, shell
from docker_engine import EngineApi
from docker_images import Images
from integration.docker_managers import docker_manager

MIB = 1 << 20


@pytest.fixture(params=["busybox", "python", "bash"])
async def box(request: pytest.FixtureRequest, docker_url: str, images: Images) -> AsyncIterator[DockerSandbox]:
    """A sandbox in which an action with one core is running: with busybox, dash or bash as its shell."""
    async with opened(docker_url, await asyncio.to_thread(getattr, images, request.param)) as sandbox:
        yield sandbox


@pytest.fixture
async def plain_box(docker_url: str, images: Images) -> AsyncIterator[DockerSandbox]:
    """The same with busybox only, for what has nothing to do with the shell."""
    async with opened(docker_url, await asyncio.to_thread(lambda: images.busybox)) as sandbox:
        yield sandbox


@asynccontextmanager
async def opened(url: str, image: str) -> AsyncIterator[DockerSandbox]:
    async with docker_manager(url, image) as manager:
        sandbox = await manager.create_sandbox(image=None, memory_bytes=0)
        assert isinstance(sandbox, DockerSandbox)
        lease = manager.lease(1000, sandbox)
        try:
            yield sandbox
        finally:
            lease.release()
            await sandbox.aclose()


async def printed(box: DockerSandbox, script: str) -> str:
    done = await box.exec(shell(script))
    assert done.exit_code == 0, done.stderr
    return done.stdout.decode()


# single files


async def test_contents_are_exact(box: DockerSandbox) -> None:
    for size in (0, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 300_000, 5 * MIB):
        data = os.urandom(size)
        await box.write_file("folder/file", data)
        assert await box.read_file("folder/file") == data
        assert (await printed(box, "sha256sum < folder/file")).split()[0] == hashlib.sha256(data).hexdigest()
    for data in (bytes(range(256)), b"\n", b"\n\n", b"\0", b"%s\\n\\0'\"", b"-n", "é".encode() * 1000):
        await box.write_file("file", data)
        assert await box.read_file("file") == data


async def test_names_are_taken_as_they_are(box: DockerSandbox) -> None:
    for name in ("a b", "*", "-n", "$HOME", "'\"\\", "é\n", "\n", "`id`", "x" * 255):
        await box.write_file(f"{name}/{name}", name.encode())
        assert await box.read_file(f"{name}/{name}") == name.encode()
        assert await printed(box, 'set -- * && echo $# && cat -- "$1/$1" && rm -r -- "$1"') == f"1\n{name}"


async def test_a_command_runs_in_a_folder_of_any_name(box: DockerSandbox) -> None:
    for name in ("a b", "-n", "'\"\\", "é\n"):
        await box.write_file(f"{name}/file", b"x")
        assert (await box.exec(["cat", "file"], cwd=name)).stdout == b"x"


async def test_paths_are_the_containers(box: DockerSandbox) -> None:
    await printed(box, "mkdir -p a/b; ln -s a/b one; ln -s $PWD/one two; ln -s / top; ln -s self self; echo x >a/b/f")
    for path in ("two/f", "./a//b/f", "a/../two/./f", "one/../b/f"):
        assert await box.read_file(path) == b"x\n"
    assert (await box.read_file("/etc/passwd")).startswith(b"root:")
    assert await box.read_file("/proc/cpuinfo")  # no file of the image, and the daemon knows nothing of it
    await box.write_file("/tmp/deep/er/file", b"y")
    assert await printed(box, "cat /tmp/deep/er/file") == "y"
    for path in ("..", "top/etc/passwd", "a/../../x", "nowhere/../../x"):
        for attempt in (box.read_file(path), box.write_file(path, b""), box.exec(["true"], cwd=path)):
            with pytest.raises(SandboxPathError):
                await attempt
    with pytest.raises(OSError, match="Too many levels"):
        await box.read_file("self")
    assert (await box.exec(["pwd"], cwd="/")).stdout == b"/\n"


async def test_what_stands_in_the_way_is_told(box: DockerSandbox) -> None:
    await printed(box, "mkdir folder; mkfifo pipe; echo x >file")
    with pytest.raises(IsADirectoryError):
        await box.write_file("folder", b"")
    with pytest.raises(OSError, match="not a regular file"):
        await box.write_file("pipe", b"")
    with pytest.raises(OSError, match="not a regular file"):
        await box.write_file("/dev/full", b"x")
    with pytest.raises((FileExistsError, NotADirectoryError)):
        await box.write_file("file/x", b"")
    for path in ("folder", "pipe", "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            await box.read_file(path)
    with pytest.raises(NotADirectoryError):
        await box.exec(["true"], cwd="file")
    with pytest.raises(FileNotFoundError):
        await box.read_file("nowhere")


async def test_a_huge_sparse_file_is_refused_at_once(box: DockerSandbox) -> None:
    await printed(box, "truncate -s 1099511627776 sparse")
    async with asyncio.timeout(20):
        with pytest.raises(OSError, match="max_bytes"):
            await box.read_file("sparse", max_bytes=1000)


async def test_what_the_user_may_not_do_is_refused(docker_url: str, images: Images, tmp_path: Path) -> None:
    """The files of a user without rights are the user's own, however they came."""
    async with opened(docker_url, await asyncio.to_thread(lambda: images.user)) as box:
        user = (await printed(box, "id -u")).strip()
        assert user != "0"
        (tmp_path / "source" / "sub").mkdir(parents=True)
        (tmp_path / "source" / "sub" / "file").write_text("x")
        await box.put_dir(tmp_path / "source", "copy")
        await box.write_file("own", b"x")
        await box.write_file("large", bytes(MIB))
        owners = await printed(box, "for f in own large copy copy/sub copy/sub/file; do stat -c %u $f; done")
        assert owners.split() == [user] * 5
        await printed(box, "echo y >>copy/sub/file; rm -r copy own large")
        with pytest.raises(PermissionError):
            await box.write_file("/etc/passwd", b"x")
        with pytest.raises(PermissionError):
            await box.put_dir(tmp_path / "source", "/etc/new")


# folders


def fill(top: Path) -> None:
    (top / "sub" / "empty").mkdir(parents=True)
    (top / "sub" / "bytes").write_bytes(os.urandom(3 * MIB))
    (top / "run").write_text("#!/bin/sh\necho ran\n")
    (top / "run").chmod(0o755)
    (top / "link").symlink_to("sub/bytes")
    (top / "dangling").symlink_to("/nowhere")
    (top / ("d" * 200)).mkdir()
    (top / ("d" * 200) / ("f" * 200)).write_text("long")
    (top / os.fsdecode(b"no text \xff")).write_text("x")
    (top / "line\nbreak '\"*").write_text("x")
    (top / "closed").mkdir()
    (top / "closed" / "file").write_text("x")
    (top / "closed").chmod(0o555)


def contents(top: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(top.rglob("*")):
        mode = path.lstat().st_mode
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(top))] = (None if path.is_symlink() else mode, content)
    return found


async def test_trees_come_back_as_they_went(box: DockerSandbox, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "deep" / "back"
    await asyncio.to_thread(fill, source)
    for _ in range(2):  # the second time, all of it is there already
        await box.put_dir(source, "deep/copy")
        await box.get_dir("deep/copy", back)
        assert await asyncio.to_thread(contents, back) == await asyncio.to_thread(contents, source)
    assert await printed(box, "./deep/copy/run") == "ran\n"
    for top in (source, back):
        (top / "closed").chmod(0o755)


async def test_what_is_in_the_way_in_the_container(box: DockerSandbox, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_text("new")
    await printed(box, "mkdir -p copy other; ln -s ../other copy/sub; echo kept >other/file")
    await box.put_dir(tmp_path, "copy")
    assert await printed(box, "cat copy/sub/file other/file; test ! -h copy/sub") == "newkept\n"
    await printed(box, "rm -r copy/sub; echo file >copy/sub")
    with pytest.raises(FileExistsError, match="copy/sub"):
        await box.put_dir(tmp_path, "copy")
    await printed(box, "rm copy/sub; mkdir -p copy/sub/file/inner")
    with pytest.raises(IsADirectoryError):
        await box.put_dir(tmp_path, "copy")
    await printed(box, "test -d copy/sub/file/inner")


async def test_what_commands_made_comes_out_safely(box: DockerSandbox, tmp_path: Path) -> None:
    await printed(
        box,
        "mkdir -p d/x; cd d; echo 1 >a; ln a b; mkfifo pipe; ln pipe pipe2; ln -s /etc out; ln -s a l; ln l l2;"
        "chmod 6755 a; touch -d @1000000000 x",
    )
    victim = tmp_path / "victim"
    victim.mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / "x").symlink_to(victim)
    (target / "a").symlink_to(victim / "a")
    await box.get_dir("d", target)
    assert list(victim.iterdir()) == []
    assert sorted(os.listdir(target)) == ["a", "b", "l", "l2", "out", "x"]
    assert ((target / "a").read_text(), (target / "b").read_text()) == ("1\n", "1\n")
    assert ((target / "a").stat().st_mode & 0o7777, (target / "a").stat().st_nlink) == (0o755, 1)
    assert (os.readlink(target / "out"), os.readlink(target / "l2")) == ("/etc", "a")
    assert (target / "x").stat().st_mtime == 1_000_000_000


async def test_the_working_folder_and_the_root_go_out(plain_box: DockerSandbox, tmp_path: Path) -> None:
    await plain_box.write_file("file", b"x")
    await plain_box.get_dir(".", tmp_path / "work")
    assert os.listdir(tmp_path / "work") == ["file"]
    await plain_box.get_dir("/etc", tmp_path / "etc")
    assert (tmp_path / "etc" / "passwd").read_text().startswith("root:")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        await plain_box.get_dir("nowhere", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


async def test_a_folder_is_not_copied_into_itself(plain_box: DockerSandbox, docker_url: str) -> None:
    root = EngineApi(docker_url).get("/info")["DockerRootDir"]
    for source in ("/", root, os.path.dirname(root)):
        with pytest.raises(SandboxPathError, match="into itself"):
            await plain_box.put_dir(source, "everything")


async def test_large_trees_take_bounded_memory_and_leave_the_loop_alone(
    plain_box: DockerSandbox, tmp_path: Path
) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    source.mkdir()
    await asyncio.to_thread((source / "large").write_bytes, os.urandom(MIB) * 150)
    for number in range(300):
        (source / str(number)).write_bytes(b"x")
    before = await asyncio.to_thread(reset_peak_kib)
    copying = asyncio.ensure_future(both_ways(plain_box, source, back))
    longest_s = await longest_turn_s(copying)
    await copying
    assert peak_kib() - before < 50_000
    assert longest_s < 0.05
    assert await asyncio.to_thread((back / "large").read_bytes) == await asyncio.to_thread(
        (source / "large").read_bytes
    )
    assert len(os.listdir(back)) == 301
    shutil.rmtree(back)


async def both_ways(box: DockerSandbox, source: Path, back: Path) -> None:
    await box.put_dir(source, "copy")
    await box.get_dir("copy", back)


@pytest.mark.parametrize("delay_s", [0, 0.02, 0.1, 0.2])
async def test_cancelled_copies_stop_and_leave_the_sandbox_usable(
    plain_box: DockerSandbox, tmp_path: Path, delay_s: float
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(1500):
        (source / str(number)).write_bytes(b"x" * 1000)
    copying = asyncio.create_task(plain_box.put_dir(source, "copy"))
    await asyncio.sleep(delay_s)
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    counted = await printed(plain_box, "ls copy 2>/dev/null | wc -l")
    await asyncio.sleep(0.2)
    assert await printed(plain_box, "ls copy 2>/dev/null | wc -l") == counted
    await plain_box.put_dir(source, "copy")
    copying = asyncio.create_task(plain_box.get_dir("copy", tmp_path / "back"))
    await asyncio.sleep(delay_s)
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    got = len(os.listdir(tmp_path / "back")) if (tmp_path / "back").exists() else 0
    await asyncio.sleep(0.1)
    assert (len(os.listdir(tmp_path / "back")) if (tmp_path / "back").exists() else 0) == got
    await plain_box.get_dir("copy", tmp_path / "back")
    assert len(os.listdir(tmp_path / "back")) == 1500


async def test_files_of_a_container_that_is_gone(plain_box: DockerSandbox, docker_url: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    await asyncio.to_thread((source / "large").write_bytes, bytes(100 * MIB))
    copying = asyncio.create_task(plain_box.put_dir(source, "copy"))
    await asyncio.sleep(0.1)
    await asyncio.to_thread(EngineApi(docker_url).call, "POST", f"/containers/{plain_box.container.id}/kill")
    async with asyncio.timeout(30):
        await asyncio.gather(copying, return_exceptions=True)  # the daemon may have had all of it
        for attempt in (
            plain_box.read_file("x"),
            plain_box.write_file("x", b""),
            plain_box.put_dir(source, "copy"),
            plain_box.get_dir(".", tmp_path / "back"),
        ):
            with pytest.raises(SandboxLostError):
                await attempt
