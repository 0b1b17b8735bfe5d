"""A shell of this machine behind the streams of a session, as if it were in a container.

It is the inner shell only: the guard around it would kill everything on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path

from arl_tangram.managers.docker.answers import DaemonError, ExecState
from arl_tangram.managers.docker.script import HELLO

SHELLS = {"dash": "dash", "busybox": "busybox", "bash": "bash"}
NEVER = b"kill -9 -1"


class LocalStream:
    """The streams of one shell."""

    exec_id = "local"

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._pieces: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(64)
        self._pieces.put_nowait((1, HELLO))
        self._opened = False
        self.opening = b""
        self.sent = bytearray()
        self._pumps = [
            asyncio.create_task(self._pump(number, reader))
            for number, reader in ((1, process.stdout), (2, process.stderr))
        ]
        self._ending = asyncio.create_task(self._end())

    @property
    def pid(self) -> int:
        """The shell, which leads a process group."""
        return self._process.pid

    async def write(self, data: bytes) -> None:
        """Write; the first two lines, which make a session of the shell and are for its guard, are left out."""
        if not self._opened:
            self._opened = True
            self.opening = data
            data = data.split(b"\n", 2)[2]
        assert NEVER not in data
        self.sent += data
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(data)
            await stdin.drain()
        except (ConnectionError, RuntimeError) as error:
            raise DaemonError("gone", 0, "the stream has ended") from error

    async def read(self) -> tuple[int, bytes] | None:
        """Return a piece of output."""
        return await self._pieces.get()

    def close(self) -> None:
        """Kill the shell with its process group."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def settled(self) -> None:
        """Wait until all of it has ended."""
        self.close()
        await self._process.wait()
        # Where its end is known already, that does not wait for its pipes, which nobody is to read any more.
        self._process._transport.close()  # type: ignore[attr-defined]
        for task in (*self._pumps, self._ending):
            task.cancel()
        await asyncio.wait([*self._pumps, self._ending])

    async def _pump(self, number: int, reader: asyncio.StreamReader | None) -> None:
        assert reader is not None
        while data := await reader.read(1 << 15):
            await self._pieces.put((number, data))

    async def _end(self) -> None:
        await asyncio.gather(*self._pumps)
        await self._pieces.put(None)


class LocalDaemon:
    """Starts shells of one kind; `env` is all of their environment."""

    def __init__(self, shell: str, folder: Path, env: dict[str, str]) -> None:
        program = shutil.which(SHELLS[shell])
        assert program is not None, f"{shell} is not installed"
        self._shell = folder / "sh"  # the name makes bash and busybox what they are as /bin/sh
        self._shell.symlink_to(program)
        self._env = env
        self.streams: list[LocalStream] = []

    async def open_exec(self, container_id: str, argv: list[str], *, env: object, workdir: str) -> LocalStream:
        """Start one."""
        assert (argv[0], workdir) == ("/bin/sh", "/")
        process = await asyncio.create_subprocess_exec(
            str(self._shell),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._env,
            cwd="/",
            start_new_session=True,
        )
        self.streams.append(LocalStream(process))
        return self.streams[-1]

    async def exec_state(self, exec_id: str) -> ExecState:
        """Say that it runs."""
        return ExecState(True, None, 1)

    async def aclose(self) -> None:
        """End all of them."""
        for stream in self.streams:
            await stream.settled()
