"""Sees to it that a daemon has an image: looks, and pulls it once for all who wait."""

from __future__ import annotations

import asyncio

from arl_tangram.errors import SandboxStartError
from arl_tangram.managers.docker.answers import DaemonError, ImageConfig
from arl_tangram.managers.docker.credentials import CredentialsError, registry_auth
from arl_tangram.managers.docker.declared import Pull
from arl_tangram.managers.docker.engine import Engine


class Images:
    """The images of one daemon.

    Args:
        engine: the daemon, open.
        pull: `missing` pulls what is not there, `never` refuses it.
        pull_timeout_s: deadline of one pull.
    """

    def __init__(self, engine: Engine, *, pull: Pull, pull_timeout_s: float) -> None:
        self._engine = engine
        self._pull: Pull = pull
        self._pull_timeout_s = pull_timeout_s
        self._ensured: dict[str, asyncio.Task[ImageConfig]] = {}

    async def ensure(self, ref: str) -> ImageConfig:
        """Return what an image says about its containers, once the daemon has it.

        Cancelling ends the waiting only: the pull goes on for the others, and for those who ask later.

        Raises:
            SandboxStartError: it is not there and cannot be had.
        """
        task = self._ensured.get(ref)
        if task is None or task.cancelled() or (task.done() and task.exception() is not None):
            task = self._ensured[ref] = asyncio.get_running_loop().create_task(self._ensure(ref))
            task.add_done_callback(_hear)
        await asyncio.wait([task])
        if task.cancelled():
            raise SandboxStartError(f"image {ref} is not there yet, and the pool is being closed")
        if (error := task.exception()) is not None:
            raise SandboxStartError(str(error)) from error  # one of its own for each who waits
        return task.result()

    def forget(self, ref: str) -> None:
        """Look again when it is asked for next: it has been removed from the daemon."""
        task = self._ensured.get(ref)
        if task is not None and task.done():
            del self._ensured[ref]

    async def aclose(self) -> None:
        """Give up the pulls that are under way."""
        pending = [task for task in self._ensured.values() if not task.done()]
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)

    async def _ensure(self, ref: str) -> ImageConfig:
        where = f"the daemon at {self._engine.url}"
        try:
            if not await self._engine.has_image(ref):
                if self._pull == "never":
                    raise SandboxStartError(f"there is no image {ref} on {where}, and pull='never' forbids to get it")
                await self._get(ref, where)
            return await self._engine.image_config(ref)
        except DaemonError as error:
            raise SandboxStartError(f"image {ref} cannot be looked at on {where}: {error}") from error

    async def _get(self, ref: str, where: str) -> None:
        try:
            auth = await registry_auth(ref)
            await self._engine.pull(ref, auth=auth, timeout_s=self._pull_timeout_s)
        except CredentialsError as error:
            raise SandboxStartError(f"there is no image {ref} on {where}, and it cannot be pulled: {error}") from error
        except DaemonError as error:
            why = f"not within {self._pull_timeout_s:g} s" if error.kind == "late" else str(error)
            raise SandboxStartError(f"there is no image {ref} on {where}, and it cannot be pulled: {why}") from error


def _hear(task: asyncio.Task[ImageConfig]) -> None:
    if not task.cancelled():
        task.exception()  # heard, though everybody who waited may have gone
