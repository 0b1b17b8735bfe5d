"""One daemon: finds it, and asks it for containers and for processes in them, a few at a time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import anyio
import anyio.to_thread

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.docker.answers import (
    ContainerEvent,
    ContainerState,
    DaemonError,
    EngineInfo,
    EngineVersion,
    ExecState,
    ImageConfig,
    Listed,
    read_exec,
    read_info,
    read_list,
    read_state,
    text,
    version_pair,
)
from arl_tangram.managers.docker.calls import QUICK_S, SLOW_S
from arl_tangram.managers.docker.connection import Connection, locate
from arl_tangram.managers.docker.events import hear_events
from arl_tangram.managers.docker.failures import understood
from arl_tangram.managers.docker.file_requests import FileRequests
from arl_tangram.managers.docker.image_requests import ImageRequests
from arl_tangram.managers.docker.lanes import Lane, Urgency
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.managers.docker.naming import label_filter
from arl_tangram.managers.docker.stream import ExecStream
from arl_tangram.managers.docker.undo import Undo
from arl_tangram.uninterrupted import finish_anyway

# What others name in their signatures comes from here.
__all__ = [
    "ContainerEvent", "ContainerState", "DaemonError", "Engine", "EngineInfo", "ExecState", "ExecStream", "ImageConfig",
    "Listed",
]  # fmt: skip

EXEC_S = 30.0
EXEC_START_S = 5.0  # how long a process that prints nothing counts as being started
EXECS_PER_CORE = 4
BUILDS_PER_CORE = 2
CLOSE_S = 15.0
PODMAN_WITH_UPDATE = (4, 3)


class Engine(FileRequests, ImageRequests):
    """One daemon, for one event loop.

    Every call has a deadline (`timeout_s`), which begins when it is sent: before that it may wait for its turn, since
    a daemon does fewer things per second when it does many at once. Every call raises DaemonError when it fails.
    Cancelling a call ends the waiting for it; the daemon may do it all the same, except for `create` and `start`,
    which then leave no container.
    """

    def __init__(self, url: str | None, meter: LatencyMeter) -> None:
        """Name the daemon: its URL, or None for the one that Docker's own tools would use. Nothing happens yet."""
        self._asked_url = url
        self._meter = meter
        self._opened: Connection | None = None
        self._version: EngineVersion | None = None
        self._undo = Undo(self._remove)
        self._execs = self._updates = self._builds = Lane(1)

    def __repr__(self) -> str:
        return f"<Engine {self.url}>"

    @property
    def url(self) -> str:
        """Where the daemon is; known once it is open."""
        return self._opened.location.url if self._opened is not None else self._asked_url or ""

    @property
    def socket(self) -> str | None:
        """Path of the daemon's socket on this machine; None if it is reached otherwise."""
        return self._opened.location.socket if self._opened is not None else None

    async def open(self, *, timeout_s: float = QUICK_S) -> EngineInfo:
        """Find the daemon, and ask which it is and how many cores it has; inside the loop that it will be used in.

        Raises:
            ConfigurationError: there is none, or it may not be used or does not answer; the message says what to do.
            MissingExtraError: it is to be reached through ssh, and what that needs is not installed.
        """
        location = await anyio.to_thread.run_sync(locate, self._asked_url)
        connection = Connection(location, self._meter)
        try:
            self._version = await connection.check(timeout_s)
            self._opened = connection
            info = await self.info(timeout_s=timeout_s)
        except BaseException as error:
            self._opened = None
            await finish_anyway(connection.aclose())
            if isinstance(error, DaemonError):
                raise ConfigurationError(f"the Docker daemon at {location.url} cannot be used: {error}") from error
            raise
        cores = max(1, info.ncpu)
        self._execs, self._updates = Lane(EXECS_PER_CORE * cores), Lane(EXECS_PER_CORE * cores)
        self._builds = Lane(BUILDS_PER_CORE * cores)
        return info

    async def aclose(self) -> None:
        """Close all connections and streams; first, for 15 s at most, remove what was given up half created."""
        if self._opened is not None:
            await finish_anyway(self._close(self._opened))

    # the daemon

    async def ping(self, *, timeout_s: float = QUICK_S) -> None:
        """Make sure that the daemon answers."""
        await self._connection.json("ping", "GET", "version", timeout_s=timeout_s, versioned=False)

    async def info(self, *, timeout_s: float = QUICK_S) -> EngineInfo:
        """Return what the daemon says of itself and its machine."""
        answer = await self._connection.json("info", "GET", "info", timeout_s=timeout_s)
        assert self._version is not None
        return understood(read_info, answer, self._version, self._connection.api_version)

    def events(
        self,
        labels: Mapping[str, str],
        actions: Sequence[str] = (),
        *,
        since_s: int | None = None,
        timeout_s: float = QUICK_S,
    ) -> AbstractAsyncContextManager[AsyncIterator[ContainerEvent]]:
        """Hear of events of the containers with these labels, from when the context is entered.

        Iterating raises DaemonError when the stream ends, for whatever reason: what happens from then on is not heard.

        Args:
            labels: what the containers must have; an empty value stands for any.
            actions: kinds of events; empty for all.
            since_s: second of the daemon's clock from which on past events are told first.
            timeout_s: until the daemon begins to answer.
        """
        return hear_events(self._connection, labels, actions, since_s=since_s, timeout_s=timeout_s)

    # containers

    async def create(self, config: Mapping[str, object], name: str, *, timeout_s: float = SLOW_S) -> str:
        """Create a container under a name that no other one has, and return its id.

        Cancelled, or without an answer that tells the outcome, it leaves no container: what was created is removed.
        """
        async with self._builds.turn(Urgency.CREATE):
            return await self._undo.all_or_nothing(name, self._create(config, name, timeout_s))

    async def _create(self, config: Mapping[str, object], name: str, timeout_s: float) -> str:
        answer = await self._connection.json(
            "create", "POST", "containers/create", params={"name": name}, body=config, timeout_s=timeout_s
        )
        return understood(text, answer, "Id")

    async def start(self, container_id: str, *, timeout_s: float = SLOW_S) -> None:
        """Start a container. Cancelled, or without an answer that tells the outcome, it removes the container."""
        async with self._builds.turn(Urgency.START):
            await self._undo.all_or_nothing(container_id, self._start(container_id, timeout_s))

    async def _start(self, container_id: str, timeout_s: float) -> None:
        path = f"containers/{container_id}/start"
        await self._connection.json("start", "POST", path, timeout_s=timeout_s, accept=(304,))

    async def inspect(self, container_id: str, *, timeout_s: float = QUICK_S) -> ContainerState:
        """Return how a container is."""
        path = f"containers/{container_id}/json"
        return understood(read_state, await self._connection.json("inspect", "GET", path, timeout_s=timeout_s))

    async def remove(self, container_id: str, *, timeout_s: float = SLOW_S) -> None:
        """Kill what runs in a container, and remove it with its volumes; one that is not there is no error."""
        async with self._builds.turn(Urgency.REMOVE):
            await self._remove(container_id, timeout_s)

    async def _remove(self, container_id: str, timeout_s: float = SLOW_S) -> bool:
        """Remove a container by id or name; return whether there was one."""
        try:
            await self._connection.json(
                "remove", "DELETE", f"containers/{container_id}", params={"force": "1", "v": "1"}, timeout_s=timeout_s
            )
        except DaemonError as error:
            if error.status == 404:
                return False
            if error.status == 409 and "already in progress" in error.message:
                return True
            raise
        return True

    async def update(
        self,
        container_id: str,
        quota_us: int,
        period_us: int,
        cpus: str = "",
        memory_bytes: int | None = None,
        *,
        shares: int | None = None,
        timeout_s: float = QUICK_S,
    ) -> None:
        """Change the limits of a container; a cancelled change may take effect all the same.

        Args:
            container_id: which one.
            quota_us: microseconds of processor time per period; -1 for no limit.
            period_us: length of a period.
            cpus: a list like `0-1,4`; empty leaves it as it is.
            memory_bytes: bytes of memory, swap included; None leaves it as it is.
            shares: weight against others on the same cores, usually 1,024; None leaves it as it is.
            timeout_s: the deadline.
        """
        podman = None if self._version is None else self._version.podman
        async with self._updates.turn():
            if podman is not None:  # its Docker routes have no update
                if version_pair(podman) < PODMAN_WITH_UPDATE:
                    raise DaemonError("refused", 0, f"Podman {podman} cannot change the limits of a container: 4.3 can")
                cpu = {"quota": quota_us, "period": period_us, **({"cpus": cpus} if cpus else {})}
                cpu |= {} if shares is None else {"shares": shares}
                memory = {} if memory_bytes is None else {"memory": {"limit": memory_bytes, "swap": memory_bytes}}
                await self._connection.json(
                    "update", "POST", f"v{podman}/libpod/containers/{container_id}/update",
                    body={"cpu": cpu, **memory}, timeout_s=timeout_s, versioned=False,
                )  # fmt: skip
                return
            body: dict[str, object] = {"CpuPeriod": period_us, "CpuQuota": quota_us, "CpusetCpus": cpus}
            if memory_bytes is not None:
                body |= {"Memory": memory_bytes, "MemorySwap": memory_bytes}
            if shares is not None:
                body["CpuShares"] = shares
            path = f"containers/{container_id}/update"
            await self._connection.json("update", "POST", path, body=body, timeout_s=timeout_s)

    async def list(self, labels: Mapping[str, str], *, all: bool = True, timeout_s: float = QUICK_S) -> list[Listed]:  # noqa: A002 - the word of the daemon
        """Return the containers with these labels (an empty value stands for any); `all`: also what has ended."""
        params = {"filters": json.dumps({"label": label_filter(labels)}), "all": "1" if all else "0"}
        answer = await self._connection.json("list", "GET", "containers/json", params=params, timeout_s=timeout_s)
        return understood(read_list, answer)

    # processes in containers

    async def open_exec(
        self,
        container_id: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        user: str = "",
        workdir: str = "",
        timeout_s: float = EXEC_S,
    ) -> ExecStream:
        """Start a process in a container and return its streams, at once: the process begins some time later.

        What stands in the way of its begin arrives as text on its standard output, and exit code 126 or 127. It counts
        as being started, and may keep others waiting, until it prints something, ends, is closed, or 5 s are over.
        """
        body = {
            "Cmd": [*argv], "Env": [f"{name}={value}" for name, value in (env or {}).items()], "User": user,
            "WorkingDir": workdir, "AttachStdin": True, "AttachStdout": True, "AttachStderr": True, "Tty": False,
        }  # fmt: skip
        leave = await self._execs.take(EXEC_START_S)
        try:
            path = f"containers/{container_id}/exec"
            answer = await self._connection.json("exec_create", "POST", path, body=body, timeout_s=timeout_s)
            exec_id = understood(text, answer, "Id")
            return await self._connection.hijack(
                "exec_start", f"exec/{exec_id}/start", body={"Detach": False, "Tty": False}, exec_id=exec_id,
                on_first=leave, timeout_s=timeout_s,
            )  # fmt: skip
        except BaseException:
            leave()
            raise

    async def exec_state(self, exec_id: str, *, timeout_s: float = QUICK_S) -> ExecState:
        """Return how a process is that was started in a container."""
        answer = await self._connection.json("exec_inspect", "GET", f"exec/{exec_id}/json", timeout_s=timeout_s)
        return understood(read_exec, answer)

    # inside

    @property
    def _connection(self) -> Connection:
        if self._opened is None:
            raise DaemonError("gone", 0, "the daemon has not been opened")
        return self._opened

    async def _close(self, connection: Connection) -> None:
        await self._undo.aclose(CLOSE_S)
        await connection.aclose()
        await self._undo.settled()
