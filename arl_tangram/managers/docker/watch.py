"""Watches one daemon: tells of containers that die and of the daemon's own loss and return."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.docker.answers import ContainerEvent, DaemonError
from arl_tangram.managers.docker.engine import Engine

RETRIES_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # the last one again and again
HEARTBEAT_S = 10.0  # a daemon that hangs, or a machine that is gone, ends no stream
HEARTBEAT_LIMIT_S = 20.0
INSPECT_LIMIT_S = 5.0
OOM_LATE_S = (0.05, 0.2)  # a busy daemon may learn why the kernel has killed something after it has told that it died
STEADY_S = 5.0  # a stream that ends sooner is not taken up again at once

_KILLED = 137
_ALIVE = ("running", "paused", "restarting")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Death:
    """How a container ended.

    Attributes:
        exit_code: of its first process; None if unknown.
        oom_killed: whether it went for lack of memory.
        reason: the same in words, to stand behind "its container".
    """

    exit_code: int | None
    oom_killed: bool
    reason: str


class Watch:
    """The events of one daemon, for as long as `run` runs.

    Every end of the stream of events is followed by a new one and a look at what runs, so that no death is missed. Only
    if there is no new one is the daemon gone: whatever is between may end a stream.

    Args:
        engine: the daemon, open.
        labels: of the containers.
        running: ids of the containers that have been started, and whose death is news.
        on_death: called once for each of them that has died.
        on_oom: called when the kernel has killed something in one of them for lack of memory; it may live on. After the
            stream was taken up again, the last of these may be told once more.
        on_gone: called, with the reason, when the daemon cannot be heard any more.
        on_back: called when it is heard again, after the deaths of meanwhile have been told.
    """

    def __init__(
        self,
        engine: Engine,
        labels: Mapping[str, str],
        *,
        running: Callable[[], Collection[str]],
        on_death: Callable[[str, Death], None],
        on_oom: Callable[[str], None],
        on_gone: Callable[[str], None],
        on_back: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._labels = labels
        self._running = running
        self._on_death = on_death
        self._on_oom = on_oom
        self._on_gone = on_gone
        self._on_back = on_back
        self._begun = asyncio.Event()
        self._reason = ""
        self._attempts = 0
        self._found_at_s: float | None = None
        self._dead: set[str] = set()
        self._is_gone = False

    async def wait_ready(self) -> None:
        """Wait until the daemon is heard, or cannot be.

        Raises:
            ConfigurationError: it answers, but tells no events.
        """
        await self._begun.wait()
        if self._found_at_s is None:
            raise ConfigurationError(f"the Docker daemon at {self._engine.url} tells no events: {self._reason}")

    async def run(self) -> None:
        """Watch until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            reason = "the stream of events ended"
            try:
                await self._follow()
            except* DaemonError as errors:
                reason = str(errors.exceptions[0])
            except* Exception:  # a defect of ours must not make us deaf
                _logger.exception("the watch of the Docker daemon at %s failed, and begins again", self._engine.url)
            if self._found_at_s is None:
                self._lose(reason)
            elif clock() - self._found_at_s > STEADY_S:
                self._attempts = 0
            pause_s = RETRIES_S[min(self._attempts, len(RETRIES_S) - 1)]
            self._attempts += 1
            await asyncio.sleep(pause_s)

    async def _follow(self) -> None:
        """Hear events until the stream ends, or the daemon stops answering; raises for both."""
        self._found_at_s = None
        # Subscribing takes effect a moment after the answer begins: what happens meanwhile is told again.
        since_s = int((await self._engine.info(timeout_s=HEARTBEAT_LIMIT_S)).clock_s)
        actions = ("die", "oom", "destroy")
        async with self._engine.events(self._labels, actions, since_s=since_s) as events, asyncio.TaskGroup() as group:
            await self._compare(group)
            self._find()
            heartbeat = group.create_task(self._beat())
            await self._hear(events, group)
            heartbeat.cancel()

    async def _hear(self, events: AsyncIterator[ContainerEvent], group: asyncio.TaskGroup) -> None:
        async for event in events:
            if event.id not in self._running():
                continue
            if event.action == "oom":
                self._on_oom(event.id)
            elif event.action in ("die", "destroy"):
                self._begin_death(event.id, event.exit_code, group)

    async def _compare(self, group: asyncio.TaskGroup) -> None:
        """Tell of those that have died unheard."""
        expected = list(self._running())  # asked for first: one that starts meanwhile must not count as missing
        alive = {container.id for container in await self._engine.list(self._labels) if container.state in _ALIVE}
        for container_id in expected:
            if container_id not in alive:
                self._begin_death(container_id, None, group)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await self._engine.ping(timeout_s=HEARTBEAT_LIMIT_S)

    def _begin_death(self, container_id: str, exit_code: int | None, group: asyncio.TaskGroup) -> None:
        self._dead.intersection_update(self._running())
        if container_id not in self._dead:
            self._dead.add(container_id)
            group.create_task(self._tell_death(container_id, exit_code))

    async def _tell_death(self, container_id: str, exit_code: int | None) -> None:
        death = Death(exit_code, False, _in_words(exit_code))
        try:
            state = await self._engine.inspect(container_id, timeout_s=INSPECT_LIMIT_S)
            for late_s in OOM_LATE_S if state.exit_code == _KILLED and not state.oom_killed else ():
                await asyncio.sleep(late_s)
                state = await self._engine.inspect(container_id, timeout_s=INSPECT_LIMIT_S)
                if state.oom_killed:
                    break
            if state.oom_killed:
                death = Death(state.exit_code, True, f"ran out of memory (exit code {state.exit_code})")
            elif exit_code is None:
                death = Death(state.exit_code, False, _in_words(state.exit_code))
        except DaemonError as error:
            if error.status == 404:
                death = Death(exit_code, False, "was removed" if exit_code is None else death.reason)
        finally:
            if container_id in self._running():
                self._on_death(container_id, death)

    def _lose(self, reason: str) -> None:
        self._reason = reason
        self._begun.set()
        if not self._is_gone:
            self._is_gone = True
            _logger.warning("the Docker daemon at %s is not heard any more: %s", self._engine.url, reason)
            self._on_gone(reason)

    def _find(self) -> None:
        self._found_at_s = asyncio.get_running_loop().time()
        self._begun.set()
        if self._is_gone:
            self._is_gone = False
            _logger.warning("the Docker daemon at %s is back", self._engine.url)
            self._on_back()


def _in_words(exit_code: int | None) -> str:
    if exit_code is None:
        return "ended"
    return f"was killed (exit code {exit_code})" if exit_code == 137 else f"ended with exit code {exit_code}"
