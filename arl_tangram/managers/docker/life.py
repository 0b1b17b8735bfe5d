"""Whether a sandbox is alive: what is known of its end, what its daemon says of it, and how it is destroyed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from arl_tangram.errors import OutOfMemoryError, SandboxLostError
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.daemon import Engine
from arl_tangram.uninterrupted import unstoppable

NEWS_S = 1.0  # how much later than the streams of its commands the end of a container is told
ASK_AGAIN_S = 0.1
DESTROY_S = 3.0


class Life:
    """The life of one sandbox: the one place that knows whether it is lost, and why.

    Args:
        engine: the daemon.
        container_id: the container, which runs.
        pid: its first process, as the daemon tells it; 0 if that is not known.
        sandbox_id: the name in messages.
        remove: removes the container, sooner or later; never raises.
        on_lost: called each time that it is said to be dead.
    """

    def __init__(
        self,
        engine: Engine,
        container_id: str,
        *,
        pid: int,
        sandbox_id: str,
        remove: Callable[[], Awaitable[None]],
        on_lost: Callable[[], None],
    ) -> None:
        self.sandbox_id = sandbox_id
        self._engine = engine
        self._container_id = container_id
        self._pid = pid
        self._remove = remove
        self._on_lost = on_lost
        self._lost: SandboxLostError | OutOfMemoryError | None = None
        self._told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._removing: asyncio.Task[None] | None = None

    @property
    def goes_on(self) -> bool:
        """Whether the sandbox is not known to be dead."""
        return self._lost is None

    def check(self) -> None:
        """Raise why the sandbox is dead, if it is: `SandboxLostError` or `OutOfMemoryError`."""
        if self._lost is not None:
            raise type(self._lost)(*self._lost.args)

    def lose(self, reason: str, *, out_of_memory: bool = False) -> None:
        """Take note that the sandbox is dead; the first reason counts."""
        if self._lost is None:
            kind = OutOfMemoryError if out_of_memory else SandboxLostError
            self._lost = kind(f"sandbox {self.sandbox_id} is lost: {reason}")
            self._told.set_result(None)
        self._on_lost()

    def no_shell(self, error: Exception) -> SandboxLostError:
        """Return the error for a sandbox in which no shell can be started."""
        return SandboxLostError(f"sandbox {self.sandbox_id}: no shell can be started in it: {error}")

    async def ask(self) -> None:
        """Ask whether its container runs, as the one that it was.

        Raises:
            SandboxLostError, OutOfMemoryError: it does not.
            DaemonError: the daemon does not say; see `heed`.
        """
        self.check()
        state = await self._engine.inspect(self._container_id)
        if state.running and (not self._pid or state.pid == self._pid):
            return
        if state.oom_killed:
            # The daemon says so for ever, whatever the end was. Who hears its events knows better, mostly.
            await asyncio.wait([self._told], timeout=NEWS_S)
        if state.running:
            self.lose("its container was started again")
        else:
            memory = ", out of memory" if state.oom_killed else ""
            self.lose(f"its container ended with exit code {state.exit_code}{memory}", out_of_memory=state.oom_killed)
        self.check()

    async def ask_patiently(self) -> None:
        """Ask for a while: a container that is being killed counts as running a little longer.

        Raises:
            SandboxLostError, OutOfMemoryError: it has ended.
        """
        clock = asyncio.get_running_loop().time
        until_s = clock() + NEWS_S
        while True:
            try:
                await self.ask()
            except DaemonError as error:
                self.heed(error)
                return
            if clock() > until_s:
                return
            await asyncio.sleep(ASK_AGAIN_S)

    def heed(self, error: DaemonError) -> None:
        """Raise `SandboxLostError` if an error of the daemon says that its container is gone."""
        self.check()
        if error.status == 404 and "ontainer" in error.message:
            self.lose("its container is gone")
            self.check()

    async def destroy(self, reason: str) -> None:
        """Remove the container, and say so by `SandboxLostError`; a removal that takes long goes on behind it."""
        self.lose(f"{reason}, so it was destroyed")
        self._removing = unstoppable(self._remove_now())
        await asyncio.wait([self._removing], timeout=DESTROY_S)
        self.check()

    async def settled(self) -> None:
        """Wait until it is removed, if it was destroyed; bounded."""
        if self._removing is not None:
            await asyncio.wait([self._removing])

    async def _remove_now(self) -> None:
        await self._remove()
