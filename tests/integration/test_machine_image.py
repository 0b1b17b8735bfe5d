"""An image of this machine's files is with the daemon for as long as it is needed, and runs there."""

from __future__ import annotations

import asyncio
import uuid

import pytest

import arl_tangram as tangram
from arl_tangram.errors import ConfigurationError
from arl_tangram.machine_image import image_of_this_machine, interpreter
from docker_engine import EngineApi

PYTHON = interpreter()
PROGRAM = """
import ctypes, hashlib, json, lzma, os, sqlite3, ssl, sys
import pytest
print(pytest.__version__, os.path.exists(pytest.__cached__))
"""


def has(url: str, reference: str) -> bool:
    try:
        EngineApi(url).get(f"/images/{reference}/json")
    except OSError:
        return False
    return True


@pytest.fixture
def name() -> str:
    return f"arl_tangram-test-{uuid.uuid4().hex[:12]}"


async def in_thread(*args: object) -> bool:
    return await asyncio.to_thread(has, *args)  # type: ignore[arg-type]


async def test_it_is_imported_once_and_removed_by_whom_it_was_imported_by(docker_url: str, name: str) -> None:
    told: list[tuple[int, int]] = []

    def tell(sent: int, size: int) -> None:
        told.append((sent, size))

    async with image_of_this_machine(name, url=docker_url, tell=tell) as first:
        assert await in_thread(docker_url, first)
        assert told[-1][0] == told[-1][1] > 1 << 20
        told.clear()
        async with image_of_this_machine(name, url=docker_url, tell=tell) as second:
            assert second == first
        assert told == []
        assert await in_thread(docker_url, first)
    assert not await in_thread(docker_url, first)


async def test_it_can_be_kept(docker_url: str, name: str) -> None:
    async with image_of_this_machine(name, url=docker_url, keep=True, tell=lambda _sent, _size: None) as reference:
        pass
    assert await in_thread(docker_url, reference)
    await asyncio.to_thread(EngineApi(docker_url).call, "DELETE", f"/images/{reference}")


async def test_a_cancelled_import_leaves_no_image(docker_url: str, name: str) -> None:
    begun = asyncio.Event()

    async def have() -> None:
        async with image_of_this_machine(name, ["pytest"], url=docker_url, tell=lambda _sent, _size: begun.set()):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(have())
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()

    def left() -> list[str]:
        return [tag for image in EngineApi(docker_url).get("/images/json") for tag in image["RepoTags"] or ()]

    assert [tag for tag in await asyncio.to_thread(left) if tag.startswith(name)] == []


async def test_the_python_and_its_packages_run_in_it(docker_url: str, name: str) -> None:
    @tangram.action(cpu=1)
    async def look() -> tangram.ExecResult:
        return await tangram.current_sandbox().exec([PYTHON, "-c", PROGRAM])

    async with image_of_this_machine(name, ["pytest"], url=docker_url, tell=lambda _sent, _size: None) as reference:
        pool = tangram.DockerPool(cores=1, image=reference, url=docker_url)
        async with tangram.Tangram(pool) as tg, tg.trajectory():
            done = await tg.run(look)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.decode().split() == [pytest.__version__, "True"]  # compiled: nothing has to be, in a container


async def test_without_a_daemon_nothing_is_listed(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"/no/such\.sock"):
        async with image_of_this_machine(name, url="unix:///no/such.sock", tell=lambda _sent, _size: None):
            pass
