"""The scripts run in this machine's `sh`, as if it were a container; the daemon is a fake, for faults."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import tarfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from arl_tangram.errors import SandboxLostError, SandboxPathError
from arl_tangram.managers.docker import file_scripts as scripts
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.archive import PIECE_BYTES, FileOwner, pack
from arl_tangram.managers.docker.feed import Feed
from arl_tangram.managers.docker.files import Files, Shell


class FakeDaemon:
    """Takes and sends tar streams, and fails as it is told to.

    Attributes:
        got: the stream that it took.
        error: what it answers with.
        sends: what it sends, a chunk after the other; an exception is raised.
    """

    def __init__(self) -> None:
        self.got = b""
        self.chunks = 0
        self.has_chunk = asyncio.Event()
        self.error: Exception | None = None
        self.sends: list[bytes | Exception] = []
        self.going_on = asyncio.Event()
        self.going_on.set()

    async def put_archive(self, container_id: str, path: str, chunks: AsyncIterator[bytes]) -> None:
        async for chunk in chunks:
            self.chunks += 1
            self.got += chunk
            self.has_chunk.set()
            await self.going_on.wait()
        if self.error is not None:
            raise self.error

    async def get_archive(self, container_id: str, path: str) -> AsyncGenerator[bytes, None]:
        for chunk in self.sends:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


def packed(folder: Path) -> bytes:
    return b"".join(pack(str(folder), FileOwner(0, 0), threading.Event()))


async def run_here(script: str, stdin: bytes = b"", *, max_bytes: int = 1 << 16) -> tuple[int, bytes, bytes]:
    process = await asyncio.create_subprocess_exec("sh", "-c", script, stdin=-1, stdout=-1, stderr=-1)
    out, told = await process.communicate(stdin)
    assert process.returncode is not None
    return process.returncode, out[:max_bytes], told[:max_bytes]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
async def daemon() -> FakeDaemon:
    return FakeDaemon()


@pytest.fixture
async def lost() -> list[str]:
    return []


@pytest.fixture
async def files(work: Path, daemon: FakeDaemon, lost: list[str]) -> Files:
    def check() -> None:
        if lost:
            raise SandboxLostError(lost[0])

    return Files(
        "c" * 64,
        shell=run_here,
        archives=daemon,
        workdir=str(work),
        daemon_folder=str(work.parent / "daemon"),
        limiter=anyio.CapacityLimiter(2),
        check=check,
    )


# paths


async def test_links_are_followed(files: Files, work: Path) -> None:
    (work / "a" / "b").mkdir(parents=True)
    (work / "one").symlink_to("a/b")
    (work / "two").symlink_to(f"{work}/one")
    (work / "odd\n\n").symlink_to("two/../b")
    for path in ("one", "two/.", "./a//b/", "odd\n\n", f"{work}/two", f"a/../../{work.name}/a/b"):
        assert await files.folder(path) == str(work / "a" / "b")
    (work / "target\n\n").mkdir()
    (work / "to").symlink_to("target\n\n")
    assert await files.folder("to") == str(work / "target\n\n")


@pytest.mark.parametrize(
    "path", ["..", "../x", "a/../..", "out", "out/x", "file/../..", "nowhere/../../x", "../workshop"]
)
async def test_relative_paths_stay_below_the_working_folder(files: Files, work: Path, path: str) -> None:
    (work / "out").symlink_to("..")
    for attempt in (files.folder(path), files.read(path, 10), files.write(path, b"x"), files.put(work, path)):
        with pytest.raises(SandboxPathError, match=f"working folder is {work}"):
            await attempt
    assert os.listdir(work.parent) == ["work"]


async def test_absolute_paths_may_name_anything(files: Files, work: Path, tmp_path: Path) -> None:
    await files.write(f"{tmp_path}/beside/file", b"x")
    assert await files.read(f"{work}/../beside/file", 10) == b"x"
    assert await files.folder("/") == "/"


async def test_a_circle_of_links_is_an_error(files: Files, work: Path) -> None:
    (work / "a").symlink_to("b")
    (work / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        await files.read("a", 10)


async def test_a_working_folder_that_is_gone_is_made_again(files: Files, work: Path) -> None:
    os.rmdir(work)
    await files.write("a/b", b"x")
    assert (work / "a" / "b").read_bytes() == b"x"


@pytest.mark.parametrize("name", ["a b", "*", "-n", "$HOME", "'\"\\", "é\n", "\n", "`id`"])
async def test_names_are_taken_as_they_are(files: Files, work: Path, name: str) -> None:
    await files.write(f"{name}/{name}", name.encode())
    assert (work / name / name).read_bytes() == name.encode()
    assert await files.read(f"{name}/{name}", 100) == name.encode()
    assert await files.folder(name) == str(work / name)


async def test_a_zero_byte_in_a_path_is_refused(files: Files) -> None:
    with pytest.raises(ValueError, match="zero byte"):
        await files.read("a\0b", 10)


def whole_shell(told: list[tuple[int, bytes, bytes]], *options: str) -> Shell:
    """Return a shell that notes all that its scripts say."""

    async def run(script: str, /, stdin: bytes = b"", *, max_bytes: int = 1 << 16) -> tuple[int, bytes, bytes]:
        process = await asyncio.create_subprocess_exec("sh", *options, "-c", script, stdin=-1, stdout=-1, stderr=-1)
        out, said = await process.communicate(stdin)
        assert process.returncode is not None
        told.append((process.returncode, out, said))
        return process.returncode, out[:max_bytes], said

    return run


def files_with(shell: Shell, work: Path, daemon: FakeDaemon) -> Files:
    return Files(
        "c" * 64,
        shell=shell,
        archives=daemon,
        workdir=str(work),
        daemon_folder=None,
        limiter=anyio.CapacityLimiter(2),
        check=lambda: None,
    )


@pytest.mark.parametrize("top", ["", "/"])
async def test_paths_of_many_names_are_not_walked_in_the_shell(work: Path, daemon: FakeDaemon, top: str) -> None:
    told: list[tuple[int, bytes, bytes]] = []
    files = files_with(whole_shell(told, "-x"), work, daemon)
    path = f"{top and work}{top}{'d/./' * 500}//file"
    await files.write(path, b"x")  # nothing of it is there
    assert await files.read(path, 10) == b"x"
    assert [len(said.splitlines()) < 200 for _, _, said in told] == [True] * 2


@pytest.mark.parametrize("path", [3, None, b"file", Path("file")])
async def test_a_path_that_is_no_string_is_refused_by_name(files: Files, tmp_path: Path, path: Any) -> None:
    for attempt in (
        files.read(path, 10),
        files.write(path, b""),
        files.put(tmp_path, path),
        files.get(path, tmp_path / "copy"),
    ):
        with pytest.raises(TypeError, match="path must be a string, not"):
            await attempt
    with pytest.raises(TypeError, match="cwd must be a string, not"):
        await files.folder(path)


# single files


async def test_what_is_there_is_replaced_and_keeps_its_permissions(files: Files, work: Path) -> None:
    (work / "file").write_text("long before")
    (work / "file").chmod(0o751)
    (work / "link").symlink_to("file")
    await files.write("link", b"new")
    assert ((work / "file").read_text(), (work / "file").stat().st_mode & 0o777) == ("new", 0o751)
    assert (work / "link").is_symlink()


async def test_a_link_to_nothing_is_written_through(files: Files, work: Path) -> None:
    (work / "link").symlink_to("folder/file")
    await files.write("link", b"new")
    assert (work / "folder" / "file").read_text() == "new"


async def test_what_is_no_file_is_told(files: Files, work: Path) -> None:
    (work / "folder").mkdir()
    (work / "file").write_text("")
    os.mkfifo(work / "pipe")
    with pytest.raises(IsADirectoryError):
        await files.write("folder", b"")
    with pytest.raises(FileExistsError):
        await files.write("file/x", b"")
    for path in ("folder", "pipe"):
        with pytest.raises(OSError, match="not a regular file"):
            await files.read(path, 10)
    with pytest.raises(OSError, match="not a regular file"):
        await files.write("pipe", b"")
    with pytest.raises(FileNotFoundError):
        await files.read("nowhere", 10)
    with pytest.raises(NotADirectoryError):
        await files.folder("file")
    with pytest.raises(TypeError, match="encode"):
        await files.write("file", "text")


async def test_the_limit_is_exact(files: Files, work: Path) -> None:
    (work / "file").write_bytes(b"x" * 10)
    assert await files.read("file", 10) == b"x" * 10
    with pytest.raises(OSError, match="max_bytes=9"):
        await files.read("file", 9)
    (work / "file").write_bytes(b"")
    assert await files.read("file", 0) == b""


async def test_what_is_too_large_is_not_read_at_all(work: Path, daemon: FakeDaemon) -> None:
    told: list[tuple[int, bytes, bytes]] = []
    (work / "file").write_bytes(b"x" * 10)
    with pytest.raises(OSError, match="max_bytes=9"):
        await files_with(whole_shell(told), work, daemon).read("file", 9)
    assert [out for _, out, _ in told] == [b""]


@pytest.mark.parametrize(
    ("code", "told", "error"),
    [
        (1, "sh: 1: cannot create /x: Permission denied", PermissionError),
        (2, "mkdir: can't create directory '/x': Read-only file system", OSError),
        (1, "cat: write error: No space left on device", OSError),
        (137, "", OSError),
    ],
)
def test_what_the_shell_says_becomes_an_error(code: int, told: str, error: type[OSError]) -> None:
    found = scripts.error(code, told, "some/path", "/work")
    assert type(found) is error
    assert isinstance(found, OSError)
    assert found.errno
    assert "some/path" in str(found)


async def test_a_sandbox_that_is_lost_says_so(files: Files, lost: list[str]) -> None:
    lost.append("it was closed")
    with pytest.raises(SandboxLostError, match="closed"):
        await files.read("nowhere", 10)


# folders


async def test_the_daemon_gets_the_folder_for_the_sandboxs_user(
    files: Files, daemon: FakeDaemon, work: Path, tmp_path: Path
) -> None:
    (tmp_path / "source" / "sub").mkdir(parents=True)
    (tmp_path / "source").chmod(0o750)
    (tmp_path / "source" / "sub" / "file").write_text("x")
    await files.put(tmp_path / "source", "to")
    with tarfile.open(fileobj=io.BytesIO(daemon.got)) as archive:
        assert [(each.name, each.uid) for each in archive] == [("sub", os.getuid()), ("sub/file", os.getuid())]
    assert (work / "to").stat().st_mode & 0o777 == 0o750


async def test_links_are_not_in_the_way_of_folders(files: Files, work: Path, tmp_path: Path) -> None:
    for name in [f"deep/{number} '\n" for number in range(3000)]:  # more than one script takes
        (tmp_path / "source" / name).mkdir(parents=True)
    (work / "to" / "deep").mkdir(parents=True)
    for number in (0, 2999):
        (work / "to" / "deep" / f"{number} '\n").symlink_to(tmp_path)
    await files.put(tmp_path / "source", "to")
    assert os.listdir(work / "to" / "deep") == []


async def test_links_that_lead_out_are_made_by_the_shell(
    files: Files, daemon: FakeDaemon, work: Path, tmp_path: Path
) -> None:
    source, to = tmp_path / "source", work / "to"
    names = ["l", "-n", "sub/inner/'\n $(id)", "sub/-x/*", *(f"many/{number:0200}" for number in range(200))]
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).symlink_to(f"../../../{name}")
    for folder in ("sub/inner", "sub/-x", "sub", "."):
        (source / folder).chmod(0o555)
    (work / "other").mkdir()
    for _ in range(2):  # the second time, all of it is there already
        await files.put(source, "to")
        assert {name: os.readlink(to / name) for name in names} == {name: f"../../../{name}" for name in names}
        assert to.stat().st_mode & 0o777 == 0o555
    (to / "l").unlink()
    (to / "l").symlink_to("../other")
    (to / "-n").unlink()
    (to / "-n").write_text("in the way")
    await files.put(source, "to")
    assert (os.readlink(to / "l"), os.readlink(to / "-n"), os.listdir(work / "other")) == (
        "../../../l",
        "../../../-n",
        [],
    )
    (to / "l").unlink()
    (to / "l").mkdir()
    with pytest.raises(IsADirectoryError, match="'to/l'"):
        await files.put(source, "to")


async def test_a_file_in_the_way_of_a_folder_is_an_error(files: Files, work: Path, tmp_path: Path) -> None:
    (tmp_path / "source" / "sub").mkdir(parents=True)
    (work / "to").mkdir()
    (work / "to" / "sub").write_text("kept")
    for path in ("to", "to/sub"):
        with pytest.raises(FileExistsError, match="'to/sub'"):
            await files.put(tmp_path / "source", path)
    assert (work / "to" / "sub").read_text() == "kept"


async def test_folders_that_hold_the_daemons_files_are_refused(files: Files, tmp_path: Path, work: Path) -> None:
    (tmp_path / "daemon").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    for source in ("/", tmp_path, tmp_path / "daemon", tmp_path / "link"):
        with pytest.raises(SandboxPathError, match="into itself"):
            await files.put(source, "to")
    assert os.listdir(work) == []


async def test_a_source_that_cannot_be_read_is_told_as_it_is(files: Files, daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_bytes(bytes(3 * PIECE_BYTES))
    daemon.going_on.clear()
    daemon.error = DaemonError("failed", 500, "unexpected EOF")  # what it says to half a stream
    putting = asyncio.create_task(files.put(tmp_path / "source", "to"))
    await daemon.has_chunk.wait()
    os.truncate(tmp_path / "source" / "file", 0)
    daemon.going_on.set()
    with pytest.raises(OSError, match="shorter"):
        await putting


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (DaemonError("gone", 0, "connection refused"), SandboxLostError),
        (DaemonError("late", 0, "no answer"), SandboxLostError),
        (DaemonError("refused", 404, "no such container"), SandboxLostError),
        (DaemonError("failed", 500, "write /x: no space left on device"), OSError),
        (DaemonError("failed", 500, 'cannot overwrite directory "/x" with non-directory'), IsADirectoryError),
        (DaemonError("failed", 500, "whatever"), OSError),
    ],
    ids=str,
)
async def test_what_the_daemon_says_becomes_an_error(
    files: Files, daemon: FakeDaemon, work: Path, tmp_path: Path, error: DaemonError, expected: type[Exception]
) -> None:
    (tmp_path / "source").mkdir()
    (work / "folder").mkdir()
    daemon.error, daemon.sends = error, [error]
    for attempt in (files.put(tmp_path / "source", "to"), files.get("folder", tmp_path / "copy")):
        with pytest.raises(expected) as caught:
            await attempt
        assert type(caught.value) is expected


async def test_a_cancelled_copy_in_ends_the_stream_and_waits_for_the_daemon(
    files: Files, daemon: FakeDaemon, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    for number in range(20):
        (tmp_path / "source" / str(number)).write_bytes(bytes(PIECE_BYTES))
    daemon.going_on.clear()
    putting = asyncio.create_task(files.put(tmp_path / "source", "to"))
    await daemon.has_chunk.wait()
    putting.cancel()
    await asyncio.sleep(0.01)
    assert not putting.done()
    daemon.going_on.set()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert daemon.chunks < 5  # of the 20 that there were
    assert daemon.got.endswith(bytes(1024))


async def test_a_cancelled_copy_out_stops(files: Files, daemon: FakeDaemon, work: Path, tmp_path: Path) -> None:
    (work / "folder").mkdir()
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(bytes(PIECE_BYTES))
    sent = await asyncio.to_thread(packed, source)
    blocked = asyncio.Event()

    async def half(container_id: str, path: str) -> AsyncGenerator[bytes, None]:
        yield sent[:1024]
        blocked.set()
        await asyncio.Event().wait()

    daemon.get_archive = half  # type: ignore[method-assign]
    getting = asyncio.create_task(files.get("folder", tmp_path / "copy"))
    await blocked.wait()
    getting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await getting


async def test_a_target_that_cannot_be_written_ends_the_copy_out(
    files: Files, daemon: FakeDaemon, work: Path, tmp_path: Path
) -> None:
    (work / "folder").mkdir()
    (tmp_path / "copy").write_text("a file")
    daemon.sends = [bytes(PIECE_BYTES)] * 100
    with pytest.raises(OSError, match="copy"):
        await files.get("folder", tmp_path / "copy")


async def test_half_a_stream_is_an_error(files: Files, daemon: FakeDaemon, work: Path, tmp_path: Path) -> None:
    (work / "folder").mkdir()
    (work / "folder" / "file").write_bytes(b"x" * 1000)
    whole = await asyncio.to_thread(packed, work)
    daemon.sends = [whole[:1024], b"", whole[1024:1536]]
    with pytest.raises(OSError, match="broke off"):
        await files.get("folder", tmp_path / "copy")


async def test_a_feed_waits_for_its_reader() -> None:
    feed = Feed()
    putting = asyncio.create_task(_put_all(feed, 100))
    await asyncio.sleep(0.01)
    assert not putting.done()
    read = await asyncio.to_thread(lambda: [feed.read(1) for _ in range(102)])
    assert read == [b"%d" % number for number in range(100)] + [b"", b""]
    assert await putting


async def test_a_closed_feed_lets_go_of_both_sides() -> None:
    feed = Feed()
    putting = asyncio.create_task(_put_all(feed, 100))
    await asyncio.sleep(0.01)
    feed.close()
    assert not await putting
    assert await asyncio.to_thread(feed.read, 1) == b""


async def _put_all(feed: Feed, count: int) -> bool:
    for number in range(count):
        if not await feed.put(b"%d" % number):
            return False
    return await feed.put(b"")


def test_the_scripts_are_posix() -> None:
    """Busybox, dash and bash run them in the integration tests; this one names the line of a mistake at once."""
    made = [*scripts.clearing("/", ["a"]), *scripts.linking("/", 0o755, [("a/b", "c")])]
    for script in (scripts.WRITE, scripts.READ, scripts.ENTER, scripts.GET, scripts.PUT, *made):
        checked = subprocess.run(
            ["sh", "-n"], check=False, input=scripts.RESOLVE + script, text=True, capture_output=True
        )
        assert (checked.returncode, checked.stderr) == (0, "")
