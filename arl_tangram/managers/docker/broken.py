"""Explains why the stream of a command has ended without the command's end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from arl_tangram.errors import SandboxLostError
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.daemon import Daemon
from arl_tangram.managers.docker.guards import Guards
from arl_tangram.managers.docker.life import Life
from arl_tangram.managers.docker.shells import Running, Shells
from arl_tangram.uninterrupted import finish_anyway

Shell = Callable[[str], Awaitable[tuple[int, bytes, bytes]]]


async def explain(
    running: Running, *, daemon: Daemon, life: Life, shells: Shells, guards: Guards, shell: Shell
) -> None:
    """Find out why a session has ended; return if its command has killed it.

    Raises:
        SandboxLostError, OutOfMemoryError: something else has happened.
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
    if ended:
        await _ask_guards(life, guards, shell)
    await finish_anyway(shells.kill_one(running))
    start = running.exchange.start
    if not ended or guards.has_killed(None if start is None else start[1]):
        raise SandboxLostError(f"sandbox {name}: the stream of a command broke off, and it was killed")


async def _ask_guards(life: Life, guards: Guards, shell: Shell) -> None:
    """Hear what guards have left, in another shell: it shows that the container is alive, too."""
    async with guards.reading:
        try:
            _, answer, _ = await shell(guards.question())
        except OSError as error:  # a command may have seen to it that there are no more shells
            await life.ask_patiently()
            if isinstance(error, SandboxLostError):
                raise
            return
        guards.hear(answer)
    try:
        await life.ask()
    except DaemonError as error:
        life.heed(error)
