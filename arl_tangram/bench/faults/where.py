"""Where the sandboxes of the trainers are: folders of this machine, or containers of a Docker daemon on it."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import arl_tangram as tangram
from arl_tangram.bench.faults.left import behind, inside
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.labels import OWNER
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.managers.manager import CpuPool
from arl_tangram.model.sharing import Share

CONTAINER = "container"


@dataclass(frozen=True, slots=True)
class Where:
    """What a trainer makes its pool of.

    Attributes:
        root: the folder for sandboxes of this machine.
        image: of containers; None for folders of this machine.
        url: where the daemon listens; None asks the environment.
    """

    root: Path
    image: str | None = None
    url: str | None = None

    def argv(self) -> list[str]:
        """Return it as arguments of a program."""
        docker = [] if self.image is None else [f"--image={self.image}"]
        return [*docker, *([] if self.url is None else [f"--url={self.url}"]), os.fspath(self.root)]

    @classmethod
    def read(cls, argv: Sequence[str]) -> tuple[Where, list[str]]:
        """Return what `argv` has made, and the arguments after that."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--image")
        parser.add_argument("--url")
        parser.add_argument("root", type=Path)
        parser.add_argument("rest", nargs="*")
        found = parser.parse_args(argv)
        return cls(found.root, found.image, found.url), found.rest

    def pool(self, share: Share = None) -> CpuPool:
        """Return the pool; running actions share its cores or not."""
        if self.image is None:
            return tangram.LocalPool(root=self.root, share=share)
        return tangram.DockerPool(image=self.image, url=self.url, pull="never", share=share)

    async def look(self, mark: str) -> Counter[str]:
        """Return, in words, what there is of this process now; on its event loop."""
        found = inside(self.root, mark)
        if self.image is None:
            return found
        containers = await _containers_of(os.getpid(), self.url)
        kept = Counter({what: count for what, count in found.items() if not _is_kept_open(what, containers)})
        return +(kept + Counter({CONTAINER: containers}))

    def behind(self, pid: int) -> int:
        """Return how many folders, cgroups or containers there are of a trainer; blocks, not on an event loop."""
        containers = 0 if self.image is None else asyncio.run(_containers_of(pid, self.url))
        return len(behind(self.root, pid)) + containers


def _is_kept_open(what: str, containers: int) -> bool:
    """Whether it may be there: connections to the daemon, and shells in a container that lives, are used again."""
    return what == "descriptor socket:" or (containers > 0 and what.startswith("task session "))


async def _containers_of(pid: int, url: str | None) -> int:
    engine = Engine(url, LatencyMeter())
    await engine.open()
    try:
        listed = await engine.list({OWNER: ""})
    finally:
        await engine.aclose()
    return sum(f"-{pid}-" in container.labels[OWNER] for container in listed)
