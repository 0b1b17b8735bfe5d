"""What sessions and commands need of a daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from arl_tangram.managers.docker.answers import ContainerState, ExecState


class Stream(Protocol):
    """The standard streams of a process in a container."""

    exec_id: str

    async def write(self, data: bytes) -> None:
        """Write to standard input; raises DaemonError when the stream has ended."""
        ...

    async def read(self) -> tuple[int, bytes] | None:
        """Return a piece of output with its stream, 1 or 2; None at the end."""
        ...

    def close(self) -> None:
        """Hang up; idempotent."""
        ...


class Daemon(Protocol):
    """A daemon, as far as the opening of a session is concerned."""

    async def open_exec(self, container_id: str, argv: list[str], *, env: Mapping[str, str], workdir: str) -> Stream:
        """Start a process in a container."""
        ...

    async def exec_state(self, exec_id: str) -> ExecState:
        """Return how it is."""
        ...


class Engine(Daemon, Protocol):
    """The daemon, as far as commands are concerned."""

    async def inspect(self, container_id: str) -> ContainerState:
        """Return how the container is."""
        ...
