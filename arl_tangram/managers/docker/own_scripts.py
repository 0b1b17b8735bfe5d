"""Scripts of ours in a sandbox: they run beside the commands and between actions, and are no part of either."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Literal

from arl_tangram.errors import SandboxLostError
from arl_tangram.managers.capture import Capture
from arl_tangram.managers.docker import script
from arl_tangram.managers.docker.exchange import Exchange
from arl_tangram.managers.docker.life import Life
from arl_tangram.managers.docker.scratch import Scratch
from arl_tangram.managers.docker.session import Session, SessionError
from arl_tangram.managers.docker.shells import ATTEMPTS, Shells
from arl_tangram.managers.ended import NotStartedError
from arl_tangram.managers.running_time import RunningTime
from arl_tangram.uninterrupted import finish_anyway

SHELL_GRACE_S = 1.0
SHELL_LIMIT_S = 120.0
LATE_ATTEMPTS = 2
READ_BACK_S = 30.0


class OwnScripts:
    """The scripts of one sandbox.

    Args:
        shells: of the sandbox.
        life: of the sandbox.
        workdir: its working folder.
        clock: of the sandbox.

    Attributes:
        scratch: the folder of ours in its container.
    """

    def __init__(self, shells: Shells, life: Life, workdir: str, clock: RunningTime) -> None:
        self._shells = shells
        self._life = life
        self._clock = clock
        self.scratch = Scratch(self.shell, workdir)

    async def shell(self, text: str, stdin: bytes = b"", *, max_bytes: int = 1 << 20) -> tuple[int, bytes, bytes]:
        """Run a script; see `Commands.shell`."""
        stdin = bytes(stdin)
        late = 0
        for attempt in range(ATTEMPTS):
            try:
                session = await self._shells.take()
            except NotStartedError as error:
                raise OSError(error.errno, os.strerror(error.errno), "a shell in the sandbox") from None
            try:
                redirection = await self.scratch.feed(session, stdin)
                line = await self.scratch.shortened(session, script.own(text, redirection))
                exchange = self._shells.begin_own(session, line, max_bytes)
            except SessionError as error:
                await finish_anyway(self._shells.give_up(session))
                if attempt == ATTEMPTS - 1:
                    raise self._life.no_shell(error) from error
                continue
            except BaseException:
                await finish_anyway(self._shells.give_up(session))
                raise
            self._shells.begun += 1
            how = await self._end(session, exchange)
            if how == "ended":
                if exchange.start is None or exchange.code is None:
                    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), "a shell in the sandbox")
                return exchange.code, exchange.stdout.content(), exchange.stderr.content()
            late += how == "late"
            if late == LATE_ATTEMPTS:
                break
        raise SandboxLostError(f"sandbox {self._life.sandbox_id}: a script of ours does not come to its end")

    async def read_back(self, spill: tuple[str, str], limit: int) -> tuple[Capture, Capture]:
        """Return head and tail of what a command has written to files.

        Raises:
            NotStartedError: no shell can be started.
            SandboxLostError: the sandbox is lost, or they cannot be read.
        """
        session = await self._shells.take()
        try:
            exchange = self._shells.begin_own(session, script.read_back(spill, limit), limit, parts="Zz")
        except SessionError as error:
            self._shells.give_back(session)
            raise self._life.no_shell(error) from error
        await self._clock.wait(exchange.done, READ_BACK_S)
        self._shells.end_own(session)
        if not exchange.done.done() or exchange.done.exception() is not None:
            self._life.check()
            raise SandboxLostError(f"sandbox {self._life.sandbox_id}: the output of a command could not be read back")
        return exchange.stdout, exchange.stderr

    async def _end(self, session: Session, exchange: Exchange) -> Literal["ended", "broken", "late"]:
        """Wait for a script and take its session back; return whether it came to an end of its own, in time."""
        is_late = False
        try:
            if not await self._clock.wait(exchange.done, SHELL_LIMIT_S):
                is_late = True
                await finish_anyway(self._shells.give_up_own(session, exchange))
        except asyncio.CancelledError:
            await finish_anyway(self._wait(exchange.done, SHELL_GRACE_S))
            raise
        finally:
            if exchange.done.done():
                self._shells.end_own(session)
            else:
                exchange.done.add_done_callback(lambda _: self._shells.end_own(session))
        self._life.check()
        if is_late:
            return "late"
        return "ended" if exchange.done.exception() is None else "broken"

    @staticmethod
    async def _wait(future: asyncio.Future[None], limit_s: float) -> None:
        await asyncio.wait([future], timeout=limit_s)
