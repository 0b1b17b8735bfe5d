from __future__ import annotations

import io
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arl_tangram.managers.docker.archive import PIECE_BYTES, FileOwner, pack, scan, unpack

ROOT = FileOwner(0, 0)
END = bytes(1024)


def packed(source: Path, owner: FileOwner = ROOT) -> bytes:
    return b"".join(pack(str(source), owner, threading.Event()))


def entry(name: str, content: bytes | None = None, **fields: object) -> bytes:
    """Return one entry of an archive; a file if it has content."""
    told = tarfile.TarInfo(name)
    told.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
    told.mode = 0o755 if content is None else 0o644
    told.size = len(content or b"")
    for field, value in fields.items():
        setattr(told, field, value)
    return told.tobuf() + (content or b"") + bytes(-told.size % 512)


def unpacked(target: Path, *entries: bytes, end: bytes = END) -> None:
    unpack(io.BytesIO(b"".join([entry("./"), *entries, end])), str(target), threading.Event())


def tree(top: Path) -> dict[str, object]:
    """Return what is in a folder: content of files, targets of links, None for folders."""
    found: dict[str, object] = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Path]:
    top = tmp_path / "source"
    (top / "sub" / "empty").mkdir(parents=True)
    (top / "sub" / "bytes").write_bytes(bytes(range(256)) * 5000)
    (top / "run").write_text("#!/bin/sh\n")
    (top / "run").chmod(0o755)
    (top / "link").symlink_to("sub/bytes")
    (top / "dangling").symlink_to("/nowhere")
    (top / ("d" * 200)).mkdir()
    (top / ("d" * 200) / ("f" * 200)).write_text("long")
    (top / os.fsdecode(b"\xff\xfe")).write_text("no text")
    (top / "sub").chmod(0o555)
    yield top
    for path in tmp_path.glob("*/sub"):
        path.chmod(0o755)


def test_what_is_packed_is_unpacked(source: Path, tmp_path: Path) -> None:
    os.mkfifo(source / "pipe")
    os.utime(source / "run", (1_000_000_000, 1_000_000_000))
    os.utime(source / "sub", (1_000_000_001, 1_000_000_001))
    unpack(io.BytesIO(packed(source)), str(tmp_path / "copy"), threading.Event())
    os.unlink(source / "pipe")  # special files are left out
    assert tree(tmp_path / "copy") == tree(source)
    run, sub = (os.stat(tmp_path / "copy" / name) for name in ("run", "sub"))
    assert (run.st_mode & 0o777, run.st_mtime) == (0o755, 1_000_000_000)
    assert (sub.st_mode & 0o777, sub.st_mtime) == (0o555, 1_000_000_001)


def test_files_get_their_owner_and_are_no_hard_links(source: Path) -> None:
    os.link(source / "run", source / "again")
    with tarfile.open(fileobj=io.BytesIO(packed(source, FileOwner(1234, 56)))) as archive:
        entries = archive.getmembers()
    assert {(each.uid, each.gid) for each in entries} == {(1234, 56)}
    assert [each.type for each in entries if each.name in ("run", "again")] == [tarfile.REGTYPE] * 2


def test_pieces_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(5 * PIECE_BYTES))
    for name in range(1000):
        (tmp_path / str(name)).write_bytes(b"x")
    pieces = [len(piece) for piece in pack(str(tmp_path), ROOT, threading.Event())]
    assert len(pieces) > 5
    assert max(pieces) <= 2 * PIECE_BYTES


def test_packing_stops(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(20 * PIECE_BYTES))
    stop = threading.Event()
    pieces = pack(str(tmp_path), ROOT, stop)
    next(pieces)
    stop.set()
    assert len(list(pieces)) == 1


def test_a_file_that_becomes_shorter_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(2 * PIECE_BYTES))
    pieces = pack(str(tmp_path), ROOT, threading.Event())
    next(pieces)
    os.truncate(tmp_path / "file", 10)
    with pytest.raises(OSError, match="shorter"):
        list(pieces)


def test_folders_are_listed_without_following_links(source: Path) -> None:
    (source / "to").symlink_to("sub")
    assert sorted(scan(str(source), threading.Event()).folders) == ["d" * 200, "sub", "sub/empty"]


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/tmp/x", ".."])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    target = tmp_path / "in" / "target"
    with pytest.raises(OSError, match="leads out"):
        unpacked(target, entry(name, b"bad"))
    assert tree(tmp_path / "in") == {"target": None}


def test_a_file_is_not_written_through_a_link_of_the_same_stream(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    link = entry("./a", type=tarfile.SYMTYPE, linkname=str(tmp_path / "victim"))
    with pytest.raises(OSError):  # noqa: PT011 - the system's own
        unpacked(tmp_path / "target", link, entry("./a/x", b"bad"))
    assert tree(tmp_path / "victim") == {}


def test_links_in_the_way_are_replaced(tmp_path: Path) -> None:
    victim, target = tmp_path / "victim", tmp_path / "target"
    victim.mkdir()
    (victim / "file").write_text("kept")
    target.mkdir()
    (target / "file").symlink_to(victim / "file")
    (target / "folder").symlink_to(victim)
    (target / "link").symlink_to(victim)
    unpacked(
        target,
        entry("./file", b"new"),
        entry("./folder/"),
        entry("./folder/inner", b"new"),
        entry("./link", type=tarfile.SYMTYPE, linkname="file"),
    )
    assert tree(victim) == {"file": b"kept"}
    assert tree(target) == {"file": b"new", "folder": None, "folder/inner": b"new", "link": "-> file"}


def test_hard_links_become_files_of_their_own(tmp_path: Path) -> None:
    unpacked(
        tmp_path / "target",
        entry("./a/"),
        entry("./a/file", b"same", mode=0o751),
        entry("./b", type=tarfile.LNKTYPE, linkname="./a/file"),
        entry("./c", type=tarfile.SYMTYPE, linkname="b"),
        entry("./d", type=tarfile.LNKTYPE, linkname="./c"),
        entry("./pipe", type=tarfile.FIFOTYPE),
        entry("./pipe2", type=tarfile.LNKTYPE, linkname="./pipe"),
        entry("./null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
    )
    assert tree(tmp_path / "target") == {
        "a": None,
        "a/file": b"same",
        "b": b"same",
        "c": "-> b",
        "d": "-> b",
    }
    told = os.stat(tmp_path / "target" / "b")
    assert (told.st_nlink, told.st_mode & 0o777) == (1, 0o751)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "out/secret"])
def test_hard_links_cannot_lead_out(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    out = entry("./out", type=tarfile.SYMTYPE, linkname="..")
    with pytest.raises(OSError):  # noqa: PT011 - ours or the system's
        unpacked(tmp_path / "target", out, entry("./x", type=tarfile.LNKTYPE, linkname=name))
    assert not (tmp_path / "target" / "x").exists()


def test_no_file_gets_the_rights_of_another_user(tmp_path: Path) -> None:
    unpacked(tmp_path / "target", entry("./file", b"", mode=0o6755), entry("./folder/", mode=0o3777))
    assert [os.stat(tmp_path / "target" / name).st_mode & 0o7777 for name in ("file", "folder")] == [0o755, 0o777]


def test_a_folder_in_the_way_of_a_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "target" / "x" / "inner").mkdir(parents=True)
    for other in (entry("./x", b"new"), entry("./x", type=tarfile.SYMTYPE, linkname="y")):
        with pytest.raises(IsADirectoryError):
            unpacked(tmp_path / "target", other)
    assert tree(tmp_path / "target") == {"x": None, "x/inner": None}


def test_a_file_in_the_way_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    with pytest.raises(FileExistsError):
        unpacked(tmp_path, entry("./x/"))


def test_a_pipe_in_the_way_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    with pytest.raises(OSError):  # noqa: PT011 - the system's own
        unpacked(tmp_path, entry("./x", b"new"))


@pytest.mark.parametrize("mtime", [2.0**70, -(2.0**70), 2.0**62])
def test_unheard_of_times_are_no_error(tmp_path: Path, mtime: float) -> None:
    unpacked(tmp_path, entry("./x", b"new", mtime=mtime))
    assert (tmp_path / "x").read_bytes() == b"new"


@pytest.mark.parametrize("cut", [512, 700, 1024, 1500])
def test_a_stream_that_ends_early_is_an_error(tmp_path: Path, cut: int) -> None:
    whole = entry("./") + entry("./x", b"x" * 600) + END
    with pytest.raises(OSError, match="broke off"):
        unpack(io.BytesIO(whole[:cut]), str(tmp_path / "target"), threading.Event())


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no folder"):
        unpack(io.BytesIO(entry(".", b"x") + END), str(tmp_path / "target"), threading.Event())


def test_a_deep_tree_needs_no_deep_stack_and_few_descriptors(tmp_path: Path) -> None:
    names = ["d/" * depth for depth in range(1, 1101)]
    before = len(os.listdir("/proc/self/fd"))
    unpacked(tmp_path / "target", *(entry(f"./{name}") for name in names))
    assert len(os.listdir("/proc/self/fd")) == before
    assert os.path.isdir(tmp_path / "target" / ("d/" * 1100))
    # What pytest would remove of it some runs later, it would remove recursively, and fail.
    subprocess.run(["rm", "-r", str(tmp_path / "target")], check=True)


def test_unpacking_stops(tmp_path: Path) -> None:
    stop = threading.Event()

    class Stopping(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            if self.tell() > 3 * PIECE_BYTES:
                stop.set()
            return data

    files = b"".join(entry(f"./{name}", bytes(PIECE_BYTES)) for name in range(20))
    unpack(Stopping(entry("./") + files + END), str(tmp_path / "target"), stop)
    assert len(os.listdir(tmp_path / "target")) < 6


def test_links_that_lead_out_are_left_to_the_shell(tmp_path: Path) -> None:
    """A daemon refuses a whole stream for one of them; absolute ones it makes."""
    out = {"l": "../sibling", "sub/m": "../../x", "sub/n": "inner/../../..", "o": "..", "sub/p": "a/../../.."}
    inside = {"in": "sub/m", "absolute": "/etc", "sub/up": "../in", "odd": "sub/../in", "dots": "..x"}
    (tmp_path / "sub").mkdir()
    for name, to in (out | inside).items():
        (tmp_path / name).symlink_to(to)
    with tarfile.open(fileobj=io.BytesIO(packed(tmp_path))) as archive:
        assert {each.name: each.linkname for each in archive if each.issym()} == inside
    assert dict(scan(str(tmp_path), threading.Event()).links) == out


@pytest.mark.parametrize("mode", [0o755, 0o600])
def test_deep_trees_take_time_that_grows_with_their_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    depth = 300
    deep = [entry("d/" * level, mode=mode, mtime=1_000_000_000 + level) for level in range(1, depth + 1)]
    file, beside = entry("d/" * depth + "file", b"x"), entry("d/" * (depth - 2) + "e/file", b"x")
    opened, real_open = 0, os.open

    def counting(*args: Any, **kwargs: Any) -> int:
        nonlocal opened
        opened += 1
        return real_open(*args, **kwargs)

    monkeypatch.setattr(os, "open", counting)
    unpacked(tmp_path / "copy", *deep, file, beside)
    monkeypatch.undo()
    assert opened < 5 * depth
    folder = tmp_path / "copy"
    for level in range(1, depth + 1):
        folder /= "d"
        told = folder.stat()
        assert (told.st_mode & 0o777, told.st_mtime) == (mode, 1_000_000_000 + level)
    assert (folder / "file").read_bytes() == b"x"
    assert (folder.parents[1] / "e" / "file").read_bytes() == b"x"


def test_a_folder_that_is_moved_meanwhile_is_not_left_upwards(tmp_path: Path) -> None:
    """Its parent is not the one any more that the stream speaks of."""
    (tmp_path / "elsewhere").mkdir()
    entries = [entry("a/"), entry("a/b/"), entry("a/b/c/"), entry("a/b/c/file", b"x"), entry("a/b/late", b"y")]
    stream = io.BytesIO(b"".join([entry("./"), *entries, END]))
    moved = False

    class Moving(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            nonlocal moved
            data = stream.read(512)
            if b"late" in data and not moved:
                moved = True
                (tmp_path / "copy" / "a" / "b" / "c").rename(tmp_path / "elsewhere" / "c")
            return data

    unpack(Moving(), str(tmp_path / "copy"), threading.Event())
    assert moved
    assert (tmp_path / "copy" / "a" / "b" / "late").read_bytes() == b"y"
    assert os.listdir(tmp_path / "elsewhere") == ["c"]
