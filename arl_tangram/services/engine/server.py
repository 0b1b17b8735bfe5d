"""The server of an engine that we start ourselves, on a port of its own, as often as it has to be started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from arl_tangram.errors import RestoreError
from arl_tangram.managers.gpu.instances.backend import StillHeldError
from arl_tangram.services.engine.limits import Limits
from arl_tangram.services.engine.remote import Door
from arl_tangram.services.servers.launching import Server
from arl_tangram.services.servers.waiting import filled, free_port, healthy, listens


class LaunchedServer:
    """Starts, watches and ends the processes of one server.

    Args:
        name: of the service, for messages.
        argv: the command; `{port}` and `{dop}` in it are filled in.
        env: variables on top of this process's own.
        dop: on how many devices it is.
        url: where it listens, if the command has no `{port}`.
        health_path: what it answers with success once it is ready.
        door: the connections to it; they are led to where it listens.
        limits: how long starting and ending may take.
        on_end: told, with what is known of it, that it has ended by itself.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        dop: int,
        url: str | None,
        health_path: str,
        door: Door,
        limits: Limits,
        on_end: Callable[[str], None],
    ) -> None:
        self._name = name
        self._argv = argv
        self._env = env
        self._dop = dop
        self._url = url
        self._health_path = health_path
        self._door = door
        self._limits = limits
        self._on_end = on_end
        self._server: Server | None = None
        self._left: Server | None = None  # one that was to end, and is not known to be gone

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._server is not None and self._server.is_alive

    async def start(self) -> None:
        """End what is there of it, start it and wait until it is ready.

        Raises:
            RestoreError: it cannot be started, has ended, or is not ready in time; nothing is left of it.
            StillHeldError: the same, or the one before is still there, and something cannot be killed now.
        """
        await self.stop()
        port = free_port()
        url = self._url or f"http://127.0.0.1:{port}"
        if await listens(url):  # it would be taken for ours
            raise RestoreError(f"{self._name}: its server is not started, as something listens at {url} already")
        self._door.lead_to(url)
        self._server = server = Server(self._name, filled(self._argv, port=port, dop=self._dop), self._env)
        try:
            await server.start()
            await healthy(url + self._health_path, server, name=self._name, limit_s=self._limits.start_s)
        except BaseException:
            await self.stop()
            raise
        server.ended.add_done_callback(lambda ended: self._heard(server, ended))

    async def stop(self) -> None:
        """End it and all that it has started; bounded.

        Raises:
            StillHeldError: something of it cannot be killed now; the next call tries again.
        """
        server, self._server = self._server or self._left, None
        self._left = server
        if server is None:
            return
        if not await server.stop(self._limits.stop_s):
            raise StillHeldError(f"{self._name}: something of its server cannot be killed now")
        self._left = None

    def _heard(self, server: Server, ended: asyncio.Future[int | None]) -> None:
        if server is not self._server or ended.cancelled():
            return
        code = ended.result()
        how = "was killed" if code is None else f"ended with exit code {code}"
        tail = server.tail()
        self._on_end(f"it {how}; the last that it printed: {tail}" if tail else f"it {how}")
