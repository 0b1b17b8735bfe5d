"""Gives a container's working folder to the user who is to work in it: a daemon creates it as root's."""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable

from arl_tangram.errors import SandboxStartError
from arl_tangram.managers.docker.engine import Engine

Shell = Callable[[str], Awaitable[tuple[int, bytes, bytes]]]

# Prints nothing if all is well. Folders of an image are left as they are: read-only ones may be meant to be.
_LOOK = """\
cd -- {folder} || exit 1
[ -w . ] || [ "$(ls -A)" ] || {{ id -u && id -g; }}
"""


async def own_workdir(engine: Engine, container_id: str, folder: str, shell: Shell) -> None:
    """Let the user of a container write into its working folder if that is empty and somebody else's.

    Args:
        engine: the daemon.
        container_id: which container.
        folder: its working folder, an absolute path.
        shell: runs a script as the user.

    Raises:
        DaemonError: the daemon does not change it.
        SandboxStartError: the folder cannot be entered.
    """
    code, told, error = await shell(_LOOK.format(folder=shlex.quote(folder)))
    if code:
        raise SandboxStartError(f"its working folder {folder} cannot be used: {error.decode(errors='replace').strip()}")
    if told:
        uid, gid = map(int, told.split())
        await engine.put_archive(container_id, "/", _archive(folder, uid, gid))


async def _archive(folder: str, uid: int, gid: int) -> AsyncIterator[bytes]:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo(folder.strip("/"))
        entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, 0o755, uid, gid
        archive.addfile(entry)
    yield packed.getvalue()
