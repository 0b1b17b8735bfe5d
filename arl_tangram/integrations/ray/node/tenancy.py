"""What one session has on a node: its sandboxes, its leases of cores, and its calls that go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from arl_tangram.errors import LeaseLostError, SandboxLostError
from arl_tangram.integrations.ray.answers import raised, valued
from arl_tangram.integrations.ray.node.leases import HeldLease, Room, SessionLeases
from arl_tangram.integrations.ray.node.recent import Recent
from arl_tangram.integrations.ray.node.spool import Spool, name_of
from arl_tangram.integrations.ray.wire import AgentReply, LeaseTold
from arl_tangram.managers.manager import CpuManager, ManagedSandbox
from arl_tangram.uninterrupted import settled, unstoppable

Arguments = Mapping[str, Any]

CORE_CALLS = (
    "create", "close", "exec", "apply", "clean", "release", "write_file", "read_file",
    "put_piece", "put_dir", "get_dir", "get_piece", "forget",
)  # fmt: skip
"""What clients can ask of a node with cores."""


class Tenancy:
    """What one session has on a node with cores.

    Args:
        session: its name.
        number: of the tenancy on this node: names of files begin with it.
        manager: of the cores.
        room: the cores that are free.
        spool: for folders on their way.
    """

    def __init__(self, session: str, number: int, manager: CpuManager, room: Room, spool: Spool) -> None:
        self.session = session
        self._owner = f"copies-{number}"
        self._manager = manager
        self._spool = spool
        self._leases = SessionLeases(room)
        self._sandboxes: dict[int, ManagedSandbox] = {}
        self._closed = Recent()
        self._ending: asyncio.Task[None] | None = None
        self.calls: Mapping[str, Callable[[Arguments], Awaitable[AgentReply]]] = {
            "create": self._create,
            "close": self._close,
            "exec": self._exec,
            "apply": self._apply,
            "clean": self._clean,
            "release": self._release,
            "write_file": self._write_file,
            "read_file": self._read_file,
            "put_piece": self._put_piece,
            "put_dir": self._put_dir,
            "get_dir": self._get_dir,
            "get_piece": self._get_piece,
            "forget": self._forget,
        }

    async def end(self) -> None:
        """Kill its commands, close its sandboxes and release its leases; bounded, idempotent, also when cancelled."""
        if self._ending is None:
            self._ending = unstoppable(self._end())
        await settled(self._ending)

    async def _end(self) -> None:
        closing = [sandbox.aclose() for sandbox in self._sandboxes.values()]
        await asyncio.gather(*closing, return_exceptions=True)
        await self._leases.end_all()
        await self._spool.forget_all(self._owner)

    # Sandboxes.

    async def _create(self, given: Arguments) -> AgentReply:
        number = given["sandbox"]
        created = await self._manager.create_sandbox(image=given["image"], memory_bytes=given["memory_bytes"])
        if number in self._closed or self._ending is not None:
            await created.aclose()
            raise LeaseLostError(f"the session {self.session} is over, or has closed the sandbox meanwhile")
        self._sandboxes[number] = created
        return valued(created.id)

    async def _close(self, given: Arguments) -> AgentReply:
        self._closed.add(given["sandbox"])
        sandbox = self._sandboxes.pop(given["sandbox"], None)
        if sandbox is not None:
            await sandbox.aclose()
        await self._leases.end_in(given["sandbox"])
        return valued(None)

    def _sandbox(self, number: int) -> ManagedSandbox:
        if (sandbox := self._sandboxes.get(number)) is not None:
            return sandbox
        if number in self._closed:
            raise SandboxLostError(f"sandbox {number} of session {self.session} is lost: it was closed")
        raise SandboxLostError(
            f"sandbox {number} of session {self.session} is lost: the agent of its node has not made it, "
            "or was started again since"
        )

    # Commands and their cores.

    def _told(self, given: Arguments) -> HeldLease:
        told, number = given["lease"], given["sandbox"]
        assert isinstance(told, LeaseTold)
        return self._leases.told(told, number, None if number is None else self._sandbox(number))

    async def _exec(self, given: Arguments) -> AgentReply:
        lease = self._told(given)
        options = {name: value for name, value in given.items() if name not in ("lease", "sandbox", "argv")}
        done: Any = None
        error: BaseException | None = None
        now_s = asyncio.get_running_loop().time
        entered_s = now_s()
        try:
            await lease.applied()
            entered_s = now_s()
            done = await self._sandbox(given["sandbox"]).exec(given["argv"], **options)
        except BaseException as caught:  # noqa: BLE001 - goes to the client with what is known of the lease
            error = caught
        lease.was_inside(entered_s, now_s())
        value = (done, lease.now())
        return valued(value) if error is None else raised(error, value)

    async def _apply(self, given: Arguments) -> AgentReply:
        lease = self._told(given)
        await lease.applied()
        return valued((None, lease.now()))

    async def _clean(self, given: Arguments) -> AgentReply:
        lease = await self._leases.end(given["lease"].lease)
        return valued((None, None if lease is None else lease.now()))

    async def _release(self, given: Arguments) -> AgentReply:
        await self._leases.end(given["lease"].lease)
        return valued(None)

    # Files.

    async def _write_file(self, given: Arguments) -> AgentReply:
        await self._sandbox(given["sandbox"]).write_file(given["path"], given["data"])
        return valued(None)

    async def _read_file(self, given: Arguments) -> AgentReply:
        sandbox = self._sandbox(given["sandbox"])
        return valued(await sandbox.read_file(given["path"], max_bytes=given["max_bytes"]))

    async def _put_piece(self, given: Arguments) -> AgentReply:
        await self._spool.put_piece(self._name(given), given["at"], given["data"])
        return valued(None)

    async def _put_dir(self, given: Arguments) -> AgentReply:
        sandbox = self._sandbox(given["sandbox"])
        await self._spool.put_into(sandbox, given["path"], self._name(given))
        return valued(None)

    async def _get_dir(self, given: Arguments) -> AgentReply:
        sandbox = self._sandbox(given["sandbox"])
        return valued(await self._spool.get_from(sandbox, given["path"], self._name(given)))

    async def _get_piece(self, given: Arguments) -> AgentReply:
        return valued(await self._spool.get_piece(self._name(given), given["at"], given["size"]))

    async def _forget(self, given: Arguments) -> AgentReply:
        await self._spool.forget(self._name(given))
        return valued(None)

    def _name(self, given: Arguments) -> str:
        return name_of(self._owner, given["transfer"])
