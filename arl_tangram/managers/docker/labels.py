"""What containers are marked with, and the removal of those that dead owners have left behind."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import socket
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio.to_thread

from arl_tangram.managers.docker.answers import DaemonError, Listed
from arl_tangram.managers.docker.api_limits import RUSH_LIMIT_S, USUAL_SHARES
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.lanes import Lane
from arl_tangram.managers.host.cgroup import PERIOD_US
from arl_tangram.managers.host.owner import is_dead, new_name

OWNER = "arl_tangram.owner"
HOST = "arl_tangram.host"
BOOT = "arl_tangram.boot"
SANDBOX = "arl_tangram.sandbox"
LEASE_S = "arl_tangram.lease_s"

# What somebody elsewhere has not started for so long, or not removed so long after its end, is left behind. Sooner, a
# live owner may still want to know why it ended.
STALE_S = 3600.0
ENDED = ("exited", "dead")
SWEPT_AT_ONCE = 8

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """This machine, as it is now.

    Attributes:
        host: what tells it from every other machine that uses the same daemon.
        boot: what tells this boot of it from every other.
        namespace: the number space of this process: others may not be seen from here.
    """

    host: str
    boot: str
    namespace: str

    def labels(self, owner: str, sandbox: str, lease_s: float) -> dict[str, str]:
        """Return the labels of a container.

        Args:
            owner: the owner in this process, of `managers.host.owner.new_name`.
            sandbox: id of the sandbox.
            lease_s: how long its first process goes on without a sign of its owner.
        """
        return {OWNER: owner, HOST: self.host, BOOT: self.boot, SANDBOX: sandbox, LEASE_S: f"{lease_s:g}"}


async def read_mark() -> Mark:
    """Return the mark of this machine."""
    return await anyio.to_thread.run_sync(this_mark)


async def sweep(engine: Engine) -> int:
    """Remove the containers of dead owners; return how many there were.

    An owner is dead if its process on this machine is gone, or the machine has been started again since. Of owners
    elsewhere, nothing is known: of theirs, only what has not run for an hour is removed, since the first process of a
    container ends when its owner is gone.

    Raises:
        DaemonError: the daemon does not tell which containers there are.
    """
    lane = Lane(SWEPT_AT_ONCE)

    async def remove(container: Listed) -> bool:
        try:
            async with lane.turn():
                await remove_left(engine, container)
        except DaemonError as error:  # one that cannot be removed must not keep every later run from starting
            _logger.warning(
                "container %s, left behind by a run that is gone, cannot be removed: %s", container.id, error
            )
            return False
        return True

    return sum(await asyncio.gather(*map(remove, await find_left(engine))))


async def remove_left(engine: Engine, container: Listed) -> None:
    """Remove a container that its owner has left behind, suspended perhaps.

    Raises:
        DaemonError: it could not be removed.
    """
    if container.state == "running":
        await lift(engine, container.id)
    await engine.remove(container.id)


async def lift(engine: Engine, container_id: str) -> None:
    """Let a container that is to be removed have time to end, as it may be suspended; bounded, and never raises."""
    with contextlib.suppress(DaemonError, TimeoutError):  # then it takes longer
        async with asyncio.timeout(RUSH_LIMIT_S):
            await engine.update(container_id, quota_us=-1, period_us=PERIOD_US, cpus="", shares=USUAL_SHARES)


async def find_left(engine: Engine) -> list[Listed]:
    """Return the containers that dead owners have left behind, as `sweep` finds them; change nothing.

    Raises:
        DaemonError: the daemon does not tell which containers there are.
    """
    mark = await read_mark()
    containers, now_s = await engine.list({OWNER: ""}), time.time()
    ended_s = {
        container.id: await _ended_s(engine, container, now_s) for container in containers if container.state in ENDED
    }
    return await anyio.to_thread.run_sync(partial(left_behind, containers, mark, now_s, ended_s))


async def _ended_s(engine: Engine, container: Listed, now_s: float) -> float:
    """Return when a container ended, which is no sooner than it was created; now, if the daemon does not tell."""
    if now_s - container.created_s <= STALE_S:
        return container.created_s
    try:
        return max(container.created_s, (await engine.inspect(container.id)).ended_s)
    except DaemonError:
        return now_s


def left_behind(containers: Iterable[Listed], mark: Mark, now_s: float, ended_s: Mapping[str, float]) -> list[Listed]:
    """Return those containers whose owner is dead, or that are of no use to whoever owns them; blocks.

    Args:
        containers: of any owners.
        mark: of this machine.
        now_s: the time, in seconds since 1970.
        ended_s: when those that have ended did so, by id.
    """
    return [each for each in containers if _is_left(each, mark, now_s, ended_s.get(each.id, now_s))]


def _is_left(container: Listed, mark: Mark, now_s: float, ended_s: float) -> bool:
    owner = container.labels.get(OWNER, "")
    if container.labels.get(HOST) == mark.host:
        if is_dead(owner, container.labels.get(BOOT)):
            return True
        if owner.partition("-")[0] == mark.namespace:
            return False  # it lives
    if container.state == "created":
        return now_s - container.created_s > STALE_S
    return container.state in ENDED and now_s - ended_s > STALE_S


def this_mark() -> Mark:
    """Return the mark of this machine; blocks."""
    # Clones of a machine may share each of these, but hardly all of them. Were the mark of a machine to change, its
    # containers would count as another's: they go when they have stopped.
    parts = [socket.gethostname(), f"{uuid.getnode():x}", _content("/etc/machine-id")]
    host = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return Mark(host, _content("/proc/sys/kernel/random/boot_id"), new_name().partition("-")[0])


def _content(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
