"""Explains why the stream of a command has ended without the command's end."""

from __future__ import annotations

import contextlib

from arl_tangram.errors import SandboxLostError
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.command import NotStartedError
from arl_tangram.managers.docker.daemon import Daemon
from arl_tangram.managers.docker.life import Life
from arl_tangram.managers.docker.shells import Running, Shells
from arl_tangram.uninterrupted import finish_anyway


async def explain(running: Running, *, daemon: Daemon, life: Life, shells: Shells) -> None:
    """Find out why a session has ended; return if its command has killed it.

    Raises:
        SandboxLostError: something else has happened.
    """
    name = life.sandbox_id
    if running.session.interrupted is not None:
        raise SandboxLostError(f"sandbox {name}: a command has no known end: {running.session.interrupted}")
    try:
        await life.ask()
        ended = not (await daemon.exec_state(running.session.exec_id)).running
    except DaemonError as error:
        life.heed(error)
        raise SandboxLostError(f"sandbox {name}: a command has no known end: {error}") from error
    finally:
        shells.has_left = True
    await finish_anyway(shells.kill_one(running))
    if not ended:
        raise SandboxLostError(f"sandbox {name}: the stream of a command broke off")
    await _check_usable(life, shells)


async def _check_usable(life: Life, shells: Shells) -> None:
    """Open a new session: a container that is being killed loses its commands before it counts as ended."""
    try:
        with contextlib.suppress(NotStartedError):  # there may be no shell any more
            shells.give_back(await shells.take())
    except SandboxLostError:
        try:
            await life.ask()
        except DaemonError as error:
            life.heed(error)
        raise
