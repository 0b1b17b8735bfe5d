"""Docker managers for tests, started and closed, and what they leave in an engine."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from arl_tangram import DockerPool
from arl_tangram.managers.docker.manager import DockerManager
from docker_engine import EngineApi

OWNER_LABEL = "arl_tangram.owner"
GIB = 1 << 30


def new_manager(url: str, image: str, **options: Any) -> DockerManager:
    """Return a manager of two cores and 1 GiB, not yet prepared."""
    made = DockerPool(**({"url": url, "image": image, "cores": 2, "memory_gib": 1} | options)).manager()
    assert isinstance(made, DockerManager)
    return made


@asynccontextmanager
async def docker_manager(url: str, image: str, **options: Any) -> AsyncIterator[DockerManager]:
    """Start a manager of two cores and 1 GiB, and close it."""
    manager = new_manager(url, image, **options)
    try:
        await manager.prepare()
        await manager.start()
        yield manager
    finally:
        await manager.aclose()


def containers(url: str) -> list[str]:
    """Return the containers that the library made in an engine, whoever used it. It blocks."""
    return [each["Id"] for each in EngineApi(url).containers(OWNER_LABEL)]


def own_containers(url: str) -> list[str]:
    """Return those that were made by this process. It blocks."""
    mine = f"-{os.getpid()}-"
    return [each["Id"] for each in EngineApi(url).containers(OWNER_LABEL) if mine in each["Labels"][OWNER_LABEL]]
