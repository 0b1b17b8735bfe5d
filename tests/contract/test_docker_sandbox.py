"""The contract of sandboxes, kept by Docker containers: with direct grants, through the API, and without sessions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from arl_tangram.managers.docker.manager import DockerManager
from contract.sandbox_contract import SandboxContract
from docker_images import Images
from integration.docker_managers import docker_manager, own_containers

# What has to do with how commands are run; the rest is the same whatever the channel.
OF_THE_CHANNEL = re.compile(
    "exit_code|streams|stdin|touches|beyond|environment|concurrent|times|program|missing_cwd|output|spilled|grandchild"
    "|timeout|cancel|clean|usage|closing"
)


@asynccontextmanager
async def started(url: str, images: Images, grants: str, channel: str) -> AsyncIterator[DockerManager]:
    async with docker_manager(url, images.busybox, grants=grants, channel=channel) as manager:
        yield manager
    assert await asyncio.to_thread(own_containers, url) == []


@pytest.mark.parametrize("grants", ["direct", "api"])
class TestDockerSandbox(SandboxContract):
    @pytest.fixture
    async def manager(self, grants: str, docker_url: str, images: Images) -> AsyncIterator[DockerManager]:
        async with started(docker_url, images, grants, "session") as manager:
            yield manager


class TestGatedExec(SandboxContract):
    @pytest.fixture
    async def manager(self, docker_url: str, images: Images) -> AsyncIterator[DockerManager]:
        async with started(docker_url, images, "direct", "exec") as manager:
            yield manager


for _name in dir(SandboxContract):
    if _name.startswith("test_") and not OF_THE_CHANNEL.search(_name):
        setattr(TestGatedExec, _name, None)
