"""Whether a sandbox is alive: what is known of its end, what its daemon says of it, and how it is destroyed."""

from __future__ import annotations

from collections.abc import Callable

from arl_tangram.errors import SandboxLostError
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.daemon import Engine


class Life:
    """The life of one sandbox.

    Args:
        engine: the daemon.
        container_id: the container, which runs.
        sandbox_id: the name in messages.
        on_lost: called each time that it is said to be dead.
    """

    def __init__(self, engine: Engine, container_id: str, sandbox_id: str, *, on_lost: Callable[[], None]) -> None:
        self.sandbox_id = sandbox_id
        self._engine = engine
        self._container_id = container_id
        self._on_lost = on_lost
        self._lost: str | None = None

    @property
    def goes_on(self) -> bool:
        """Whether the sandbox is not known to be dead."""
        return self._lost is None

    def check(self) -> None:
        """Raise `SandboxLostError` if the sandbox is dead."""
        if self._lost is not None:
            raise SandboxLostError(f"sandbox {self.sandbox_id} is lost: {self._lost}")

    def lose(self, reason: str) -> None:
        """Take note that the sandbox is dead; the first reason counts."""
        if self._lost is None:
            self._lost = reason
        self._on_lost()

    def no_shell(self, error: Exception) -> SandboxLostError:
        """Return the error for a sandbox in which no shell can be started."""
        return SandboxLostError(f"sandbox {self.sandbox_id}: no shell can be started in it: {error}")

    async def ask(self) -> None:
        """Ask whether its container runs.

        Raises:
            SandboxLostError: it does not.
            DaemonError: the daemon does not say; see `heed`.
        """
        state = await self._engine.inspect(self._container_id)
        if not state.running:
            memory = ", out of memory" if state.oom_killed else ""
            self.lose(f"its container ended with exit code {state.exit_code}{memory}")
            self.check()

    def heed(self, error: DaemonError) -> None:
        """Raise `SandboxLostError` if an error of the daemon says that its container is gone."""
        self.check()
        if error.status == 404 and "ontainer" in error.message:
            self.lose("its container is gone")
            self.check()

    async def destroy(self, reason: str) -> None:
        """Remove the container, and say so by `SandboxLostError`."""
        self.lose(f"{reason}, so it was destroyed")
        try:
            await self._engine.remove(self._container_id)
        except DaemonError as error:
            raise SandboxLostError(
                f"sandbox {self.sandbox_id} is lost: {reason}; its container could not be removed: {error}"
            ) from error
        self.check()
