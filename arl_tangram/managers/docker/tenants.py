"""The sandboxes on one daemon: which there are, and what becomes of them when something happens there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from arl_tangram.errors import SandboxStartError
from arl_tangram.managers.docker.absence import Absence
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.labels import OWNER
from arl_tangram.managers.docker.sandbox import DockerSandbox
from arl_tangram.managers.docker.watch import Death, Watch

READY_LIMIT_S = 30.0
OOM_S = 3.0  # between an end for lack of memory and its news

_logger = logging.getLogger(__name__)


class Tenants:
    """The sandboxes on one daemon.

    Args:
        said: what the daemon is called in messages.
        on_lost: told of a sandbox whose container has ended, after the sandbox itself.
        on_back: called when the daemon is back.

    Attributes:
        absence: of the daemon.
    """

    def __init__(self, *, said: str, on_lost: Callable[[DockerSandbox], None], on_back: Callable[[], None]) -> None:
        self._said = said
        self._tell_lost = on_lost
        self._tell_back = on_back
        self._sandboxes: dict[str, DockerSandbox] = {}  # by container
        self._out_of_memory_s: dict[str, float] = {}  # by container: when the kernel killed something in it
        self._watching: asyncio.Task[None] | None = None
        self.absence = Absence(said)
        self._clock = asyncio.get_running_loop().time

    def __len__(self) -> int:
        return len(self._sandboxes)

    def __contains__(self, sandbox: DockerSandbox) -> bool:
        return self._sandboxes.get(sandbox.container.id) is sandbox

    def admit(self, sandbox: DockerSandbox) -> None:
        """Take in a sandbox whose container runs."""
        self._sandboxes[sandbox.container.id] = sandbox

    def forget(self, sandbox: DockerSandbox) -> None:
        """Let go of a sandbox that is closed."""
        self._sandboxes.pop(sandbox.container.id, None)
        self._out_of_memory_s.pop(sandbox.container.id, None)

    async def aclose(self) -> None:
        """Close them all; never raises."""
        sandboxes = list(self._sandboxes.values())
        closed = await asyncio.gather(*(sandbox.aclose() for sandbox in sandboxes), return_exceptions=True)
        for sandbox, error in zip(sandboxes, closed, strict=True):
            if error is not None:
                _logger.error("sandbox %s on %s could not be closed: %r", sandbox.id, self._said, error)

    # watching

    async def watch(self, engine: Engine, owner: str) -> None:
        """Begin to watch the daemon.

        Raises:
            ConfigurationError: it tells no events.
            SandboxStartError: it is late.
        """
        watch = Watch(
            engine,
            {OWNER: owner},
            running=self._sandboxes.keys,
            on_death=self.on_death,
            on_oom=self.on_oom,
            on_gone=self.on_gone,
            on_back=self.on_back,
        )
        self._watching = asyncio.get_running_loop().create_task(watch.run(), name=f"watch of {engine.url}")
        try:
            async with asyncio.timeout(READY_LIMIT_S):
                await watch.wait_ready()
        except TimeoutError as error:
            raise SandboxStartError(f"{self._said} has told no events for {READY_LIMIT_S:g} s") from error

    async def unwatch(self) -> None:
        """Watch no more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    # what happens

    def on_oom(self, container_id: str) -> None:
        """Remember it: what the kernel killed is most often the command, which ends with 137, as it should."""
        self._out_of_memory_s[container_id] = self._clock()

    def on_death(self, container_id: str, death: Death) -> None:
        """Tell a sandbox, if it is one of these, that its container has ended."""
        sandbox = self._sandboxes.get(container_id)
        if sandbox is None:
            return
        # The daemon says for ever that something was killed for lack of memory: it must have been just now.
        last_s = self._out_of_memory_s.get(container_id)
        out_of_memory = death.oom_killed and (last_s is None or self._clock() - last_s < OOM_S)
        sandbox.lose(f"its container {death.reason}", out_of_memory=out_of_memory)
        self._tell_lost(sandbox)

    def on_gone(self, reason: str) -> None:
        """Tell all sandboxes that their daemon is gone."""
        self.absence.begin()
        for sandbox in self._sandboxes.values():
            sandbox.interrupt(f"its daemon is gone: {reason}")

    def on_back(self) -> None:
        """Tell all sandboxes that their daemon is back."""
        self.absence.end()
        for sandbox in self._sandboxes.values():
            sandbox.resume()
        self._tell_back()
