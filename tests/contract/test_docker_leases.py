"""What every manager of cores promises about leases, kept by that of a `DockerPool`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from arl_tangram.managers.docker.manager import DockerManager
from contract import test_leases
from docker_images import Images
from integration.docker_managers import docker_manager


@pytest.fixture(params=["direct", "api"])
async def manager(request: pytest.FixtureRequest, docker_url: str, images: Images) -> AsyncIterator[DockerManager]:
    """A started manager of two cores and 1 GiB."""
    async with docker_manager(docker_url, images.busybox, grants=request.param) as made:
        yield made


box = test_leases.box
globals().update({name: value for name, value in vars(test_leases).items() if name.startswith("test_")})
