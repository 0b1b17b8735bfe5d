"""What every manager whose cores can be changed promises about that, kept by that of a `DockerPool`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from arl_tangram.managers.docker.manager import DockerManager
from contract.resizing_contract import ResizingContract
from docker_images import Images
from integration.docker_managers import docker_manager


@pytest.mark.parametrize("grants", ["direct", "api"])
class TestDockerResizing(ResizingContract):
    # From inside, a shell kills that has to be started beside what is busy; suspended, that alone takes longer.
    at_once_s = 8.0

    @pytest.fixture
    async def manager(self, grants: str, docker_url: str, images: Images) -> AsyncIterator[DockerManager]:
        async with docker_manager(docker_url, images.busybox, grants=grants) as manager:
            yield manager
