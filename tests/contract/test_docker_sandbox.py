"""The contract of sandboxes, kept by Docker containers: with direct grants, through the API, and without sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from arl_tangram.managers.docker.manager import DockerManager
from contract.sandbox_contract import SandboxContract
from docker_images import Images
from integration.docker_managers import docker_manager, own_containers


@pytest.mark.parametrize(
    ("grants", "channel"),
    [("direct", "session"), ("api", "session"), ("direct", "exec")],
    ids=["direct-session", "api-session", "direct-exec"],
)
class TestDockerSandbox(SandboxContract):
    @pytest.fixture
    async def manager(self, grants: str, channel: str, docker_url: str, images: Images) -> AsyncIterator[DockerManager]:
        async with docker_manager(docker_url, images.busybox, grants=grants, channel=channel) as manager:
            yield manager
        assert await asyncio.to_thread(own_containers, docker_url) == []
