"""What the limits of a container are tested with: a daemon that fails when it is told to, and who hears of grants."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from arl_tangram.errors import InfrastructureError
from arl_tangram.managers.cores import Placement
from arl_tangram.managers.docker.answers import DaemonError

ID = "4f1c" * 16
CORES = (0, 1, 2, 3)
TWO, ONE, HALF = Placement((2, 3), 2000), Placement((1,), 1000), Placement((1,), 500)

# Updates, as the daemon is asked for them: the quota, and the cores.
TWO_ASKED, ONE_ASKED, HALF_ASKED = (-1, "2,3"), (-1, "1"), (50_000, "1")
IDLE_ASKED, SUSPENDED_ASKED, LIFTED_ASKED = (10_000, "0,1,2,3"), (1_000, ""), (-1, "")


@dataclass
class FakeDaemon:
    """A fake engine: each update waits until the test lets it end; faults are put into `error`."""

    updates: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    shares: list[int | None] = field(default_factory=list[int | None])
    running: int = 0
    most_running: int = 0
    error: DaemonError | None = None
    only_cpus: str = ""  # if set, the error is of updates to these only
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def update(
        self, container_id: str, /, *, quota_us: int, period_us: int, cpus: str, shares: int | None = None
    ) -> None:
        assert (container_id, period_us) == (ID, 100_000)
        self.updates.append((quota_us, cpus))
        self.shares.append(shares)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        if self.error is not None and self.only_cpus in ("", cpus):
            raise self.error


def busy() -> DaemonError:
    return DaemonError("failed", 500, "busy")


@dataclass
class Inside:
    """A container that tells what is in effect in it, and counts who looks."""

    tells: bytes = b"cores 2-3\nquota -1\n"
    looks: int = 0

    async def shell(self, script: str) -> tuple[int, bytes, bytes]:
        assert "Cpus_allowed_list" in script
        self.looks += 1
        return 0, self.tells, b""


@dataclass
class Told:
    """What limits tell of grants."""

    granted: int = 0
    failed: list[str] = field(default_factory=list[str])

    def grant(self) -> None:
        self.granted += 1

    def fail(self, error: InfrastructureError) -> None:
        self.failed.append(str(error))
