"""The cores that the demo shares out: of this machine, with folders or with Docker containers as sandboxes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from rich.console import Console

import arl_tangram as tangram
from arl_tangram.demo.comparison import CORES
from arl_tangram.demo.progress import import_shown
from arl_tangram.machine_image import image_of_this_machine

IMAGE = "arl_tangram-demo"
PACKAGES = ("numpy", "pytest", "hypothesis")


@asynccontextmanager
async def pool_of_demo(
    docker: bool, console: Console, *, url: str | None = None, keep_image: bool = False
) -> AsyncGenerator[tangram.LocalPool | tangram.DockerPool]:
    """Have the pool, and the image of its containers where there are some.

    Args:
        docker: sandboxes are Docker containers.
        console: shows how the image is made.
        url: where the daemon listens; None asks the environment.
        keep_image: leave the image with the daemon.

    Raises:
        ConfigurationError: no daemon can be reached, or this machine lacks something that the image needs.
    """
    if not docker:
        yield tangram.LocalPool(cores=CORES)
        return
    console.print("The containers are made from an image of this machine's Python, numpy, pytest and shell.")
    async with AsyncExitStack() as stack:
        with import_shown(console) as tell:
            having = image_of_this_machine(IMAGE, PACKAGES, url=url, keep=keep_image, tell=tell)
            image = await stack.enter_async_context(having)
        yield tangram.DockerPool(cores=CORES, image=image, url=url)
