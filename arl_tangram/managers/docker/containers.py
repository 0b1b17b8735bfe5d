"""Creates and removes the containers of one owner on one daemon; what is begun is finished or leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arl_tangram.errors import SandboxStartError
from arl_tangram.managers.docker.answers import DaemonError, ImageConfig, Listed
from arl_tangram.managers.docker.declared import SandboxSettings
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.labels import lift
from arl_tangram.managers.docker.lanes import Lane
from arl_tangram.managers.docker.script import PID1
from arl_tangram.uninterrupted import finish_anyway

REMOVE_LIMIT_S = 10.0
TURN_LIMIT_S = 5.0
DISTRUST_S = 20.0
QUICK_RETRIES_S = (0.1, 0.5, 1.5, 0.0)  # after each attempt, while a trajectory that ends waits for it
SLOW_RETRIES_S = (5.0, 15.0, 60.0)  # in the background, the last one again and again
LIST_LIMIT_S = 10.0
DEFAULT_WORKDIR = "/workspace"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Container:
    """A container that runs.

    Attributes:
        id: given by the daemon.
        pid: number of its first process on the daemon's machine.
        env: variables that the image sets.
        workdir: its working folder.
    """

    id: str
    pid: int
    env: Mapping[str, str]
    workdir: str


class Containers:
    """The containers of one owner on one daemon.

    Args:
        engine: the daemon.
        settings: of the sandboxes.
        node: the name of the daemon in messages.
        width: how many are removed at once.
        idle: what limits a container at rest, for its `HostConfig`.
    """

    def __init__(
        self,
        engine: Engine,
        settings: SandboxSettings,
        *,
        node: str,
        width: int,
        idle: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._node = node
        self._idle = idle
        self._left: dict[str, None] = {}
        self._removing = Lane(width)
        self._clock = asyncio.get_running_loop().time
        self._distrusted_until_s = 0.0
        self._janitor: asyncio.Task[None] | None = None

    @property
    def left(self) -> Collection[str]:
        """Ids of those that could not be removed yet."""
        return self._left

    async def start(
        self, image: str, config: ImageConfig, *, name: str, labels: Mapping[str, str], memory_bytes: int
    ) -> Container:
        """Create and start a container; if that fails or is cancelled, nothing is left of it.

        Raises:
            DaemonError: the daemon refuses, fails, or is gone.
            SandboxStartError: it ended right away.
        """
        workdir = self._settings.workdir or (config.workdir if config.workdir.strip("/") else DEFAULT_WORKDIR)
        body = self._body(image, labels, workdir, memory_bytes)
        container_id = await self._engine.create(body, name, timeout_s=self._settings.start_timeout_s)
        try:
            await self._engine.start(container_id, timeout_s=self._settings.start_timeout_s)
            state = await self._engine.inspect(container_id)
            if not state.running:
                raise SandboxStartError(f"its first process ended with {state.exit_code}: {state.error or 'no reason'}")
        except BaseException:
            await self.remove(container_id)
            raise
        return Container(container_id, state.pid, config.env, workdir)

    def _body(self, image: str, labels: Mapping[str, str], workdir: str, memory_bytes: int) -> dict[str, Any]:
        settings = self._settings
        return {
            "Image": image,
            "Entrypoint": ["/bin/sh", "-c", PID1],
            "Cmd": [],
            "Labels": dict(labels),
            "Tty": False,
            "OpenStdin": False,
            # The shell that is process 1 need not hear the end: everything goes with it.
            "StopSignal": "SIGKILL",
            "WorkingDir": workdir,
            **({"User": settings.user} if settings.user is not None else {}),
            "HostConfig": {
                "NetworkMode": settings.network,
                **({"Memory": memory_bytes, "MemorySwap": memory_bytes} if memory_bytes else {}),
                "PidsLimit": settings.pids_limit,
                "CapDrop": ["ALL"],
                "CapAdd": list(settings.capabilities),
                "SecurityOpt": ["no-new-privileges"],
                "Init": False,
                "AutoRemove": False,
                **self._idle(),
            },
        }

    async def remove(self, container_id: str) -> None:
        """Remove a container: at once or, if the daemon does not do so, in the background, which is logged.

        Bounded; cancelling takes effect when it is done.
        """
        await finish_anyway(self._remove(container_id))

    async def _remove(self, container_id: str) -> None:
        async with self._removing.turn():
            # A daemon that let one removal wait in vain would let those behind it wait as long, one after the other.
            pauses = QUICK_RETRIES_S if self._clock() >= self._distrusted_until_s else ()
            for pause_s in pauses:
                error = await self._try_to_remove(container_id)
                if error is None:
                    return
                _logger.warning("container %s is not removed yet, %s says: %s", container_id, self._node, error)
                if error.kind in ("gone", "late"):
                    break
                await asyncio.sleep(pause_s)
        self._left[container_id] = None
        if self._janitor is None or self._janitor.done():
            self._janitor = asyncio.get_running_loop().create_task(self._go_on(SLOW_RETRIES_S))

    def daemon_is_back(self) -> None:
        """Go on at once with what could not be removed."""
        self._distrusted_until_s = 0.0
        if self._janitor is not None and not self._janitor.done():
            self._janitor.cancel()
            self._janitor = asyncio.get_running_loop().create_task(self._go_on((0.0, *SLOW_RETRIES_S)))

    async def _try_to_remove(self, container_id: str) -> DaemonError | None:
        removing = asyncio.get_running_loop().create_task(self._engine.remove(container_id, timeout_s=REMOVE_LIMIT_S))
        # Longer than its own deadline: it may wait for its turn first.
        await asyncio.wait([removing], timeout=REMOVE_LIMIT_S + TURN_LIMIT_S)
        try:
            if not removing.done():
                removing.cancel()
                raise DaemonError("late", 0, f"other things took it more than {TURN_LIMIT_S:g} s")
            removing.result()
        except DaemonError as error:
            if error.kind == "late":
                self._distrusted_until_s = self._clock() + DISTRUST_S
            return error
        return None

    async def _go_on(self, pauses_s: Sequence[float]) -> None:
        """Go on trying to remove what is left, less and less often."""
        pauses = iter(pauses_s)
        while self._left:
            await asyncio.sleep(next(pauses, pauses_s[-1]))
            for container_id in list(self._left):
                error = await self._try_to_remove(container_id)
                if error is None:
                    self._left.pop(container_id, None)
                    continue
                _logger.info("container %s is still not removed, %s says: %s", container_id, self._node, error)
                if error.kind in ("gone", "late"):
                    break

    async def remove_all(self, labels: Mapping[str, str]) -> list[str]:
        """Remove all containers with these labels; return the ids of those that are still there.

        Raises:
            DaemonError: the daemon does not say which there are.
        """
        found = await self._engine.list(labels, timeout_s=LIST_LIMIT_S)
        errors = await asyncio.gather(*map(self._remove_in_turn, found))
        return [each.id for each, error in zip(found, errors, strict=True) if error is not None]

    async def _remove_in_turn(self, container: Listed) -> DaemonError | None:
        async with self._removing.turn():
            if self._clock() < self._distrusted_until_s:
                return DaemonError("late", 0, "the daemon does not answer")
            if container.state == "running":
                await lift(self._engine, container.id)
            return await self._try_to_remove(container.id)

    async def aclose(self) -> None:
        """Stop trying."""
        if self._janitor is not None:
            self._janitor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._janitor
