"""An engine far away, without a network and in virtual time: the `Remote` of a driver, with faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from arl_tangram.errors import RestoreError
from arl_tangram.managers.gpu.instances.backend import StillHeldError
from arl_tangram.services.engine.driver import Engine
from arl_tangram.services.engine.limits import Limits
from arl_tangram.services.engine.remote import GoneFault, RefusedFault, Seen
from arl_tangram.services.servers.memory import Meter

LIMITS = Limits(transition_s=10.0, settle_s=1.0, start_s=60.0, stop_s=5.0)
HELD, KEPT, CAPACITY = 8000, 1000, 10_000


class FarEngine:
    """Sleeps and wakes, each for a second.

    Attributes:
        log: what it was told, in order.
        seen: what can be seen of it.
        used: bytes of its device.
        before: awaited in each transition before anything is done; may raise.
        after: the same after all is done.
        answers: whether it gives the known answer.
        frees: whether its sleep gives memory up.
        neighbours: others on its device.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self.seen = Seen.AWAKE
        self.used = HELD
        self.before: Callable[[str], Awaitable[None]] = self._nothing
        self.after: Callable[[str], Awaitable[None]] = self._nothing
        self.answers = True
        self.frees = True
        self.neighbours: list[FarEngine] = []
        self.under_way = 0
        self.users: Callable[[], int] = lambda: 0

    @staticmethod
    async def _nothing(what: str) -> None:
        """Do nothing."""

    async def sleep(self) -> None:
        assert self.users() == 0
        await self._transition("sleep", Seen.ASLEEP, KEPT if self.frees else self.used)

    async def wake(self) -> None:
        await self._transition("wake", Seen.AWAKE, HELD)

    async def _transition(self, what: str, seen: Seen, used: int) -> None:
        assert self.under_way == 0, "two transitions at once"
        self.log.append(what)
        self.under_way += 1
        try:
            await self.before(what)
            if self.seen is Seen.GONE:
                raise GoneFault("connection refused")
            await asyncio.sleep(1)
            self.seen, self.used = seen, used
            await self.after(what)
        finally:
            self.under_way -= 1

    async def look(self) -> Seen:
        self.log.append("look")
        return self.seen

    async def check(self) -> None:
        self.log.append("check")
        if self.seen is Seen.GONE:
            raise GoneFault("connection refused")
        if not self.answers:
            raise RestoreError("another answer")

    def die(self) -> None:
        self.seen, self.used = Seen.GONE, 0

    def driver(self, *, server: FarServer | None = None, measures: bool = True) -> tuple[Engine, list[Exception]]:
        """Return what drives it, and the list of what is told of its death."""
        deaths: list[Exception] = []
        meter = FarMeter(self) if measures else Meter(("gpu:0",), None)
        engine = Engine(
            "judge",
            self,
            devices=("gpu:0",),
            meter=meter,
            frees=HELD - KEPT,
            check=self.check,
            server=server,
            limits=LIMITS,
            on_death=deaths.append,
        )
        self.users = lambda: engine.users
        return engine, deaths

    def told(self) -> list[str]:
        """What it was told, without looks and checks."""
        return [each for each in self.log if each in ("sleep", "wake")]


class FarMeter(Meter):
    """Measures without a thread, whose time would not be virtual."""

    def __init__(self, engine: FarEngine) -> None:
        super().__init__(("gpu:0",), None)
        self.engine = engine

    async def _measured(self) -> tuple[int, ...]:
        return (CAPACITY - self.engine.used - sum(other.used for other in self.engine.neighbours),)


class FarServer:
    """The server of a far engine, as one that we start.

    Attributes:
        engine: the engine.
        starts: how often it was started.
        starts_in_vain: whether it ends when it is started.
        cannot_be_killed: whether `stop` does not end it.
        leaves: bytes that something out of reach holds when it has ended.
    """

    def __init__(self, engine: FarEngine) -> None:
        self.engine = engine
        self.starts = 0
        self.starts_in_vain = False
        self.cannot_be_killed = False
        self.leaves = 0

    @property
    def is_alive(self) -> bool:
        return self.engine.seen is not Seen.GONE

    async def start(self) -> None:
        self.engine.log.append("start")
        if self.cannot_be_killed:
            raise StillHeldError("something of it cannot be killed now")
        await asyncio.sleep(5)
        if self.starts_in_vain:
            raise RestoreError("it ended with exit code 1")
        self.starts += 1
        self.engine.seen, self.engine.used, self.engine.answers = Seen.AWAKE, HELD, True

    async def stop(self) -> None:
        self.engine.log.append("stop")
        if self.cannot_be_killed:
            raise StillHeldError("something of it cannot be killed now")
        self.engine.die()
        self.engine.used = self.leaves


async def refuses(what: str) -> None:
    """Answer 500."""
    raise RefusedFault(f"{what} was answered with 500", 500)


async def breaks(what: str) -> None:
    """End the connection without an answer."""
    raise GoneFault(f"{what}: RemoteProtocolError")


class Hanging:
    """Does not answer before it is let go."""

    def __init__(self, *whats: str) -> None:
        self.whats = whats
        self.go = asyncio.Event()

    async def __call__(self, what: str) -> None:
        if what in self.whats:
            await self.go.wait()
