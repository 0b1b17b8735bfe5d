"""A sandbox on a node: the `Sandbox` protocol over calls to the node's agent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from arl_tangram.errors import InfrastructureError, SandboxLostError, UsageError, WrongLoopError
from arl_tangram.integrations.ray.client.calls import AgentCalls
from arl_tangram.integrations.ray.client.folders import fetch_folder, send_folder
from arl_tangram.integrations.ray.client.remote_lease import RemoteLease
from arl_tangram.managers.arguments import check_command, check_path
from arl_tangram.managers.manager import no_cores
from arl_tangram.model.quantities import plain
from arl_tangram.model.sandbox import ExecResult
from arl_tangram.uninterrupted import settled, unstoppable

CLOSE_S = 60.0
"""Seconds that an agent has to remove a sandbox; a manager bounds that itself."""
AGAIN_S = 5.0
"""Seconds to wait for a way to the agent that has failed; after that, nobody waits for the end of the sandbox."""


class RemoteSandbox:
    """Files and commands of one trajectory on a node; made by `RemoteCores.create_sandbox`.

    Args:
        sandbox_id: its name on the node.
        number: by which the agent knows it, within the session.
        node: the number of the node.
        calls: to its agent.
        on_close: called when it is closed.
    """

    def __init__(
        self,
        sandbox_id: str,
        number: int,
        node: int,
        calls: AgentCalls,
        on_close: Callable[[RemoteSandbox], None],
    ) -> None:
        self._id = sandbox_id
        self.number = number
        self.node = node
        self.calls = calls
        self._on_close = on_close
        self._lease: RemoteLease | None = None
        self._closing: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<RemoteSandbox {self._id}>"

    @property
    def id(self) -> str:
        """A name that is unique on its node."""
        return self._id

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        max_output_bytes: int = 1 << 20,
        spill: bool = False,
    ) -> ExecResult:
        """Run a command to its end on the cores of the running action; see `Sandbox.exec`.

        Raises:
            AllocationError: the sandbox does not get the cores of the action.
            NodeLostError: its node, or the agent there, is lost.
            UsageError: no action has cores in this sandbox now; the running one may have lent them.
        """
        check_command(argv, stdin, env, timeout, max_output_bytes)
        check_path(cwd, "cwd")
        self._check()
        if self._lease is None or self._lease.is_over:
            raise UsageError(no_cores(self._id))
        arguments = {
            "argv": [plain(word) for word in argv],
            "stdin": bytes(stdin),
            "cwd": plain(cwd),
            "env": {plain(name): plain(text) for name, text in env.items()} if env else None,
            "timeout": timeout,
            "max_output_bytes": max_output_bytes,
            "spill": bool(spill),
        }
        return cast(ExecResult, await self._lease.run(arguments))

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file, creating its folders; see `Sandbox.write_file`."""
        check_path(path)
        if not isinstance(cast(object, data), (bytes, bytearray, memoryview)):
            raise TypeError(f"write_file takes bytes, not {type(data).__name__}; encode text first: text.encode()")
        self._check()
        await self.calls.do("write_file", {"sandbox": self.number, "path": plain(path), "data": bytes(data)})

    async def read_file(self, path: str, *, max_bytes: int = 1 << 28) -> bytes:
        """Return the content of a file; see `Sandbox.read_file`."""
        check_path(path)
        self._check()
        arguments = {"sandbox": self.number, "path": plain(path), "max_bytes": max_bytes}
        content = await self.calls.do("read_file", arguments)
        return cast(bytes, content)

    async def put_dir(self, source: str | os.PathLike[str], path: str) -> None:
        """Copy a folder of this host into the sandbox; see `Sandbox.put_dir`."""
        self._check()
        await send_folder(self.calls, self.number, source, path)

    async def get_dir(self, path: str, target: str | os.PathLike[str]) -> None:
        """Copy a folder of the sandbox to this host; see `Sandbox.get_dir`."""
        self._check()
        await fetch_folder(self.calls, self.number, path, target)

    async def aclose(self) -> None:
        """Kill everything in it and remove it; bounded, idempotent, never raises for a sandbox that is lost."""
        if self._closing is None:
            self._closing = unstoppable(self._close())
        await settled(self._closing)
        self._closing.result()

    # For its leases.

    def begin(self, lease: RemoteLease) -> None:
        """Open it for the commands of an action."""
        self._lease = lease

    def check(self) -> None:
        """Raise `SandboxLostError` if it is closed, or why its session is over."""
        if self._closing is not None:
            raise SandboxLostError(f"sandbox {self._id} is lost: it was closed")
        self.calls.check()

    def _check(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoopError(f"sandbox {self._id} belongs to another event loop")
        self.check()

    async def _close(self) -> None:
        try:
            await self.calls.do("close", {"sandbox": self.number}, limit_s=CLOSE_S)
        except InfrastructureError:  # of a session that is over, or a way that is not there now
            await self.calls.settle_within("close", {"sandbox": self.number}, AGAIN_S)
        self._on_close(self)
