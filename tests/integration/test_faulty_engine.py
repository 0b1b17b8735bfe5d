"""The fake engine does wrong what it is told to, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
from pathlib import Path

import pytest

from docker_engine import EngineApi
from docker_images import Images
from faulty_engine import FaultyEngine, faulty_engine

BODY = b'{"Image": "%s", "Cmd": ["true"], "HostConfig": {"NetworkMode": "none"}, "Labels": {"arl-tangram-test": "1"}}'


async def call(fake: FaultyEngine, method: str, path: str, body: bytes | None = None) -> bytes:
    kind = "application/json" if body else ""
    return await asyncio.to_thread(lambda: EngineApi(fake.url, timeout_s=5).call(method, path, body, kind=kind))


async def test_it_passes_on_what_it_is_not_told_to_spoil(docker_url: str, images: Images, tmp_path: Path) -> None:
    async with faulty_engine(docker_url, tmp_path) as fake:
        assert await call(fake, "GET", "/_ping") == b"OK"
        created = await call(fake, "POST", "/v1.24/containers/create", BODY % images.busybox.encode())
        name = created.decode().split('"')[3]
        await call(fake, "DELETE", f"/containers/{name}?force=1")
        assert fake.seen == {"GET /_ping": 1, "POST /containers/create": 1, "DELETE /containers/ID": 1}
        with pytest.raises(OSError, match="o such image"):
            await call(fake, "POST", "/containers/create", BODY % b"no/such:image")


async def test_it_spoils_what_it_is_told_to(docker_url: str, tmp_path: Path) -> None:
    async with faulty_engine(docker_url, tmp_path) as fake:
        fake.answer("GET /info", 500, '{"message": "broken"}')
        with pytest.raises(OSError, match="broken"):
            await call(fake, "GET", "/v1.24/info")
        assert b"ApiVersion" in await call(fake, "GET", "/version")
        fake.heal()
        assert b"NCPU" in await call(fake, "GET", "/info")
        fake.lose_answer("GET /_ping")
        with pytest.raises((OSError, http.client.HTTPException)):
            await call(fake, "GET", "/_ping")
        fake.go_away()
        with pytest.raises((OSError, http.client.HTTPException)):
            await call(fake, "GET", "/info")
        fake.heal()
        assert await call(fake, "GET", "/_ping") == b"OK"


async def test_streams_are_cut_in_the_middle(docker_url: str, tmp_path: Path) -> None:
    async with faulty_engine(docker_url, tmp_path) as fake:
        reader, writer = await asyncio.open_unix_connection(fake.url.removeprefix("unix://"))
        writer.write(b"GET /events HTTP/1.1\r\nHost: docker\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        fake.cut_all()
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 10)  # until its end, which comes now
        writer.close()
