"""A folder of ours in a container: what is too long for a session's text passes through it, and spilled output."""

from __future__ import annotations

import errno
import itertools
import secrets
from typing import Protocol

from arl_tangram.managers.docker import script
from arl_tangram.managers.docker.session import Session

LONG_TEXT_BYTES = 1 << 15


class Shell(Protocol):
    """Runs a script of ours in the container."""

    async def __call__(self, text: str, /) -> tuple[int, bytes, bytes]:
        """Return exit code, standard output and standard error."""
        ...


class Scratch:
    """The folder, made when it is first needed.

    Args:
        shell: runs a script of ours in the container.
        workdir: the container's working folder, the last place that is tried.
    """

    def __init__(self, shell: Shell, workdir: str) -> None:
        self._shell = shell
        self._places = ("/tmp", "/dev/shm", workdir)
        self._name = f".arl_tangram-{secrets.token_hex(6)}"
        self._numbers = itertools.count(1)
        self._folder: str | None = None
        self._stale: set[str] = set()

    async def folder(self) -> str:
        """Return its path.

        Raises:
            OSError: no place can be written to.
        """
        if self._folder is None:
            code, out, _ = await self._shell(script.make_folder(self._name, self._places))
            if code:
                raise OSError(errno.EROFS, "no folder of the container can be written to")
            self._folder = out.decode(errors="surrogateescape")
        return self._folder

    async def spill(self, number: int) -> tuple[str, str]:
        """Return the paths for output and errors of a command."""
        folder = await self.folder()
        return f"{folder}/{number}.stdout", f"{folder}/{number}.stderr"

    async def feed(self, session: Session, stdin: bytes, spill: tuple[str, str] | None = None) -> script.Redirection:
        """Hand a session what its next command reads, as far as that is long; see `Session.feed`."""
        if len(stdin) <= script.INLINE_STDIN_BYTES:
            return script.Redirection(stdin, None, spill)
        return script.Redirection(b"", await self._put(session, stdin, await self._path()), spill)

    async def shortened(self, session: Session, text: bytes) -> bytes:
        """Return a short text that does the same, for a session to which a long one takes long."""
        if not session.reads_bytes or len(text) <= LONG_TEXT_BYTES:
            return text
        path = await self._path()
        return script.from_file(await self._put(session, script.in_file(text, path), path))

    async def _path(self) -> str:
        return f"{await self.folder()}/{next(self._numbers)}.in"

    async def _put(self, session: Session, data: bytes, path: str) -> str:
        """Write a file that will remove itself; one that was given up half written is removed with the next."""
        stale, self._stale = self._stale, set()
        try:
            await session.feed(data, path, stale)
        except BaseException:
            self._stale |= {path, *stale}
            raise
        return path
