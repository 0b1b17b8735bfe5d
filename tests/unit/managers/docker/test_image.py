"""An image is there, or is pulled once for all who wait; the daemon is a fake engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from arl_tangram.errors import SandboxStartError
from arl_tangram.managers.docker.declared import Pull
from arl_tangram.managers.docker.engine import Engine, ImageConfig
from arl_tangram.managers.docker.image import Images
from arl_tangram.managers.docker.latency import LatencyMeter
from fake_engine import DROP, HANG, FakeEngine, Fault

Configure = Callable[[str], object]


@pytest.fixture(autouse=True)
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Write Docker's configuration; there is none before."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return (tmp_path / "config.json").write_text


@asynccontextmanager
async def opened(*, pull: Pull = "missing", pull_timeout_s: float = 10.0) -> AsyncIterator[tuple[FakeEngine, Images]]:
    async with FakeEngine() as daemon:
        engine = Engine(daemon.url, LatencyMeter())
        await engine.open()
        images = Images(engine, pull=pull, pull_timeout_s=pull_timeout_s)
        try:
            yield daemon, images
        finally:
            await images.aclose()
            await engine.aclose()


async def test_an_image_that_is_there_is_looked_at_once() -> None:
    async with opened() as (daemon, images):
        wanted = ImageConfig({"A": "1", "B": "x=y"}, "/w", "u")
        assert await asyncio.gather(*(images.ensure("img:1") for _ in range(20))) == [wanted] * 20
        assert await images.ensure("img:1") == wanted
        assert daemon.count("GET images/img:1/json") == 2
        assert daemon.count("POST images/create") == 0


async def test_one_that_is_missing_is_pulled_once_for_all_who_wait(configure: Configure) -> None:
    configure(json.dumps({"auths": {"host:5000": {"username": "u", "password": "p"}}}))
    async with opened() as (daemon, images):
        await asyncio.gather(*(images.ensure("host:5000/new:2") for _ in range(20)))
        assert daemon.count("POST images/create") == 1
        pull = next(request for request in daemon.requests if request.path.endswith("images/create"))
        assert "x-registry-auth" in pull.headers


async def test_who_waits_may_leave_without_ending_the_pull() -> None:
    async with opened() as (daemon, images):
        held = asyncio.Event()
        daemon.fault("POST images/create", Fault(after=held))
        leaving = asyncio.create_task(images.ensure("new:2"))
        staying = asyncio.create_task(images.ensure("new:2"))
        await daemon.wait_for("POST images/create")
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        held.set()
        assert await staying == ImageConfig({}, "", "")
        assert daemon.count("POST images/create") == 1


async def test_never_pulling_names_the_image_and_the_daemon() -> None:
    async with opened(pull="never") as (daemon, images):
        with pytest.raises(SandboxStartError, match=rf"no image new:2 on the daemon at {daemon.url}.*pull='never'"):
            await images.ensure("new:2")
        assert daemon.count("POST images/create") == 0


async def test_a_failed_pull_is_told_to_all_and_tried_again_for_the_next() -> None:
    async with opened() as (daemon, images):
        daemon.pull_report = [{"error": "manifest unknown"}]
        held = asyncio.Event()
        daemon.fault("POST images/create", Fault(after=held))
        waiting = [asyncio.create_task(images.ensure("new:2")) for _ in range(3)]
        await daemon.wait_for("POST images/create")
        held.set()
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        assert len({id(error) for error in errors}) == 3
        assert all(isinstance(error, SandboxStartError) and "manifest unknown" in str(error) for error in errors)
        daemon.pull_report = []
        await images.ensure("new:2")


async def test_a_failure_that_nobody_waits_for_any_more_is_no_noise() -> None:
    async with opened() as (daemon, images):
        held = asyncio.Event()
        daemon.fault("POST images/create", Fault(DROP, after=held))
        leaving = asyncio.create_task(images.ensure("new:2"))
        await daemon.wait_for("POST images/create")
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        held.set()
        with pytest.raises(SandboxStartError):
            await images.ensure("new:2")  # the same pull


async def test_a_pull_has_a_deadline_of_its_own() -> None:
    async with opened(pull_timeout_s=0.05) as (daemon, images):
        daemon.fault("POST images/create", Fault(HANG))
        with pytest.raises(SandboxStartError, match=r"no image new:2 .*cannot be pulled: not within 0.05 s"):
            await images.ensure("new:2")


async def test_a_daemon_that_is_gone() -> None:
    async with opened() as (daemon, images):
        await daemon.down()
        with pytest.raises(SandboxStartError, match=r"image img:1 cannot be looked at on the daemon at unix://"):
            await images.ensure("img:1")
        await daemon.up()
        await images.ensure("img:1")


async def test_credentials_that_cannot_be_read_are_told(configure: Configure) -> None:
    configure("{")
    async with opened() as (_, images):
        with pytest.raises(SandboxStartError, match=r"cannot be pulled: .*config.json cannot be used"):
            await images.ensure("new:2")


async def test_an_image_that_was_removed_is_pulled_again_once_forgotten() -> None:
    async with opened() as (daemon, images):
        await images.ensure("new:2")
        daemon.images.clear()
        await images.ensure("new:2")
        assert daemon.count("POST images/create") == 1
        images.forget("new:2")
        images.forget("never asked for")
        await images.ensure("new:2")
        assert daemon.count("POST images/create") == 2


async def test_closing_ends_a_pull_and_tells_who_waits() -> None:
    async with opened() as (daemon, images):
        daemon.fault("POST images/create", Fault(HANG))
        waiting = asyncio.create_task(images.ensure("new:2"))
        await daemon.wait_for("POST images/create")
        await images.aclose()
        with pytest.raises(SandboxStartError, match="being closed"):
            await waiting
