"""The contract of sandboxes, kept by containers of a node whose agent is called: what the way there could spoil."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from agent_lines import remote_cores
from arl_tangram.integrations.ray.client.cores import RemoteCores
from arl_tangram.managers.docker.pool import DockerPool
from contract.sandbox_contract import SandboxContract
from docker_images import Images

# The rest is the container's, and is shown of it without an agent.
OF_THE_WAY = re.compile(
    "streams|stdin_arrives|timeout_keeps|cancel|clean|usage|closing|folders|links|grant|late|wrong_type"
)


class TestRemoteDockerSandbox(SandboxContract):
    @pytest.fixture
    async def manager(self, docker_url: str, images: Images) -> AsyncIterator[RemoteCores]:
        pool = DockerPool(url=docker_url, cores=2, memory_gib=1, image=images.busybox)
        async with remote_cores(pool) as cores:
            yield cores


for _name in dir(SandboxContract):
    if _name.startswith("test_") and not OF_THE_WAY.search(_name):
        setattr(TestRemoteDockerSandbox, _name, None)
