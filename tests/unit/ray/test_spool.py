"""Folders on their way to and from sandboxes: whole or not at all, and nothing is left of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from arl_tangram.errors import UsageError
from arl_tangram.integrations.ray.client.folders import pieces_of
from arl_tangram.integrations.ray.node import spool as spools
from arl_tangram.integrations.ray.node.spool import Spool, name_of
from arl_tangram.testing import FakePool, FakeSandbox


class Copying(FakeSandbox):
    """Takes note of what it is given, and gives a folder.

    Attributes:
        given: what it gives.
        came: names in the folder that came.
        error: what it raises instead, if anything.
    """

    def __init__(self, given: Path) -> None:
        super().__init__("copying", FakePool().manager())
        self.given = given
        self.came: list[str] = []
        self.error: OSError | None = None

    async def put_dir(self, source: str | os.PathLike[str], path: str) -> None:
        if self.error is not None:
            raise self.error
        self.came = sorted(await asyncio.to_thread(os.listdir, source))

    async def get_dir(self, path: str, target: str | os.PathLike[str]) -> None:
        if self.error is not None:
            raise self.error
        await asyncio.to_thread(shutil.copytree, self.given, target)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "root"
    monkeypatch.setattr(spools, "default_root", lambda: str(place))
    return place


@pytest.fixture
async def spool() -> AsyncIterator[Spool]:
    made = Spool()
    yield made
    await made.aclose()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    (made / "large").write_bytes(os.urandom(9 << 20))
    (made / "small").write_bytes(b"x")
    return made


async def there(root: Path) -> list[str]:
    """Return what is in the folder of the one owner, besides what tells whose it is."""

    def look() -> list[str]:
        (owner,) = [entry for entry in root.iterdir() if not entry.name.startswith(".")]
        return sorted(entry.name for entry in owner.iterdir() if entry.name != "owner.json")

    return await asyncio.to_thread(look)


async def pieces(folder: Path) -> list[bytes]:
    """Return a folder in pieces."""
    return await asyncio.to_thread(lambda: list(pieces_of(str(folder), threading.Event())))


async def test_a_folder_comes_in_in_pieces(spool: Spool, folder: Path, root: Path) -> None:
    parts = await pieces(folder)
    assert len(parts) == 3
    sandbox, name = Copying(folder), name_of("copies-1", 7)
    for at, piece in enumerate(parts):
        await spool.put_piece(name, at, piece)
    assert await there(root) == [name]
    await spool.put_into(sandbox, "x", name)
    assert sandbox.came == ["large", "small"]
    assert await there(root) == []


@pytest.mark.parametrize("missing", [0, 1, 2])
async def test_a_folder_with_a_piece_missing_does_not_go_in(
    spool: Spool, folder: Path, root: Path, missing: int
) -> None:
    parts = await pieces(folder)
    sandbox, name = Copying(folder), name_of("copies-1", 7)
    with pytest.raises((UsageError, OSError)):  # noqa: PT012 - whichever step notices it
        for at, piece in enumerate(parts):
            if at != missing:
                await spool.put_piece(name, at, piece)
        await spool.put_into(sandbox, "x", name)
    await spool.forget(name)
    assert sandbox.came == []
    assert await there(root) == []


async def test_a_folder_goes_out_and_is_there_until_it_is_forgotten(spool: Spool, folder: Path, root: Path) -> None:
    name = name_of("copies-1", 7)
    size = await spool.get_from(Copying(folder), "x", name)
    whole = b"".join([await spool.get_piece(name, at, 1 << 20) for at in range(0, size, 1 << 20)])
    assert len(whole) == size > 9 << 20
    assert await there(root) == [f"{name}.tar"]
    await spool.forget(name)
    await spool.forget(name)
    assert await there(root) == []


async def test_what_fails_leaves_nothing(spool: Spool, folder: Path, root: Path) -> None:
    sandbox, name = Copying(folder), name_of("copies-1", 7)
    sandbox.error = FileNotFoundError(2, "nothing")
    with pytest.raises(FileNotFoundError):
        await spool.get_from(sandbox, "x", name)
    for at, piece in enumerate(await pieces(folder)):
        await spool.put_piece(name, at, piece)
    with pytest.raises(FileNotFoundError):
        await spool.put_into(sandbox, "x", name)
    assert await there(root) == []


async def test_the_copies_of_a_session_are_forgotten_with_it(spool: Spool, folder: Path, root: Path) -> None:
    for owner in ("copies-1", "copies-11"):
        await spool.get_from(Copying(folder), "x", name_of(owner, 7))
        await spool.put_piece(name_of(owner, 8), 0, b"x")
    await spool.forget_all("copies-1")
    assert await there(root) == ["copies-11.7.tar", "copies-11.8"]


async def test_what_a_killed_agent_left_is_removed_and_a_closed_one_leaves_no_folder(root: Path, folder: Path) -> None:
    def leave() -> Path:
        root.mkdir(mode=0o700)
        dead = root / f"{os.stat('/proc/self/ns/pid').st_ino}-{2**22 - 1}-1-abcdef"
        (dead / "copies-1.7").mkdir(parents=True)
        return dead

    dead = await asyncio.to_thread(leave)
    first = Spool()
    await asyncio.gather(*(first.put_piece(name_of("copies-1", number), 0, b"x") for number in range(5)))
    assert not await asyncio.to_thread(dead.exists)
    assert len(await there(root)) == 5
    await first.aclose()
    await first.aclose()
    assert not await asyncio.to_thread(root.exists)
