"""The transitions of one engine: what a server is asked, what may come of it, and what is done about it.

A server of ours that fails is ended, and is started anew when it is needed; about somebody else's, no more is said than
what was seen. Of both, memory counts as free when it was measured to be so, where it can be measured.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from arl_tangram.errors import RestoreError
from arl_tangram.managers.gpu.instances.backend import StillHeldError
from arl_tangram.model.quantities import GIB
from arl_tangram.services.engine.limits import Limits
from arl_tangram.services.engine.remote import GoneFault, Remote, RemoteFault, Seen
from arl_tangram.services.engine.states import State
from arl_tangram.services.servers.memory import Meter, enough

_logger = logging.getLogger(__name__)
_BREAK_LIMIT_S = 5.0

Outcome = tuple[State, Exception | None]


class OwnServer(Protocol):
    """A server that we start and end."""

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        ...

    async def start(self) -> None:
        """End what is there of it, start it and wait until it is ready; raises `RestoreError`."""
        ...

    async def stop(self) -> None:
        """End it and all that it has started; bounded.

        Raises:
            StillHeldError: something of it cannot be killed now.
        """
        ...


class Patience(Protocol):
    """Who waits for a transition, and may stop waiting."""

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something that goes on though its waiter is cancelled."""
        ...

    def give_up(self) -> None:
        """Wait no longer for the transition that is under way; it cannot be ended."""
        ...


class Transitions:
    """Puts one engine to sleep and wakes it; each of the two says what state it is in then, and what went wrong.

    Args:
        name: of the service, for messages.
        remote: how its server is spoken to.
        meter: measures the memory of its devices.
        frees: bytes that sleep gives up on each of them.
        check: asks it the question whose answer is known; raises `RemoteFault`, or `RestoreError` for another answer.
        server: for one that we start and end; None for somebody else's.
        limits: how long things may take.
        patience: of those who wait.

    Attributes:
        frees: as above; may be set once more is known.
    """

    def __init__(
        self,
        name: str,
        remote: Remote,
        *,
        meter: Meter,
        frees: int,
        check: Callable[[], Awaitable[None]],
        server: OwnServer | None,
        limits: Limits,
        patience: Patience,
    ) -> None:
        self._name = name
        self._remote = remote
        self._meter = meter
        self.frees = frees
        self._check = check
        self._server = server
        self._limits = limits
        self._patience = patience
        self._is_known = False  # whether it is in the state that it was seen in last; not so before the first look
        self._before: tuple[int, ...] | None = None  # what was free, or would have been, when it was last awake
        self._owes = False  # whether it fell asleep and did not free its memory, as far as was seen
        self._death = ""

    def died(self, why: str) -> None:
        """Its server has ended by itself, while nothing was under way."""
        self._is_known = False
        self._death = why

    def ended(self, state: State, error: Exception | None) -> None:
        """A transition has ended so."""
        self._is_known = state is not State.LOST and not isinstance(error, StillHeldError)

    async def fall_asleep(self) -> Outcome:
        """Make it give up its memory; nobody uses it."""
        if not self._is_known:
            if self._server is not None:
                return await self._ended()
            match await self._remote.look():
                case Seen.GONE:
                    return State.LOST, None
                case Seen.ALIVE:
                    return State.LOST, self._unknown()
                case Seen.ASLEEP:
                    return await self._freed()
                case Seen.AWAKE:
                    pass
        self._before = await self._meter.free()
        try:
            await self._asked(self._remote.sleep())
        except RemoteFault as fault:
            return await self._failed_to_sleep(fault)
        return await self._freed()

    async def _failed_to_sleep(self, fault: RemoteFault) -> Outcome:
        if self._server is not None:
            _logger.warning("%s: its server did not fall asleep and is ended: %s", self._name, fault)
            return await self._ended()
        match await self._remote.look():
            case Seen.GONE:
                return State.LOST, None
            case Seen.ASLEEP:
                return await self._freed()
            case Seen.AWAKE:
                # One that nobody has asked the question since it came back may not be used.
                state = State.AWAKE if self._is_known else State.LOST
                return state, RestoreError(f"{self._name}: its engine is still awake: {fault}")
            case Seen.ALIVE:
                return State.LOST, RestoreError(f"{self._unknown()}: {fault}")

    async def _freed(self) -> Outcome:
        """It says that it sleeps: see what is free now."""
        error = await self._missing("its engine says that it sleeps")
        if error is None:
            return State.ASLEEP, None
        if self._server is None:
            self._is_known = False
            return State.LOST, error
        _logger.warning("%s; its server is ended", error)
        return await self._ended()

    async def _ended(self) -> Outcome:
        """End our server, and give the driver a moment to take its memory back."""
        assert self._server is not None
        was_alive = await self._remote.look() is not Seen.GONE
        await self._server.stop()
        # What it has started may be out of reach, as a container is.
        return State.LOST, await self._missing("its server was ended") if was_alive or self._owes else None

    async def _missing(self, what: str) -> RestoreError | None:
        """Return the error for memory that did not become free; None if all is well, or cannot be measured."""
        error = await self._unfreed(what)
        self._owes = error is not None
        return error

    async def _unfreed(self, what: str) -> RestoreError | None:
        freed = await self._meter.freed(self._before, self.frees, self._limits.settle_s)
        if freed is None or freed[0] >= enough(self.frees):
            return None
        return RestoreError(
            f"{self._name}: {what}, but {freed[0] / GIB:.2f} GiB of a device became free "
            f"instead of {self.frees / GIB:.2f} GiB, within {self._limits.settle_s:g} s"
        )

    async def come_awake(self) -> Outcome:
        """Make it usable, and see that it is what it was."""
        if not self._is_known:
            if self._server is not None:
                return await self._begin_anew(self._death)
            match await self._remote.look():
                case Seen.GONE:
                    return State.LOST, RestoreError(f"{self._name}: its server does not answer")
                case Seen.ALIVE:
                    return State.LOST, self._unknown()
                case Seen.AWAKE:
                    return await self._checked()
                case Seen.ASLEEP:
                    pass
        asleep = await self._meter.free()
        if asleep is not None and not self._owes:
            self._before = tuple(free - self.frees for free in asleep)
        try:
            await self._asked(self._remote.wake())
        except RemoteFault as fault:
            return await self._failed_to_wake(fault)
        return await self._checked()

    async def _failed_to_wake(self, fault: RemoteFault) -> Outcome:
        seen = await self._remote.look()
        if seen is Seen.AWAKE:  # it answered with an error and woke none the less
            return await self._checked()
        if self._server is not None:
            return await self._begin_anew(str(fault))
        error = RestoreError(f"{self._name}: its engine did not wake: {fault}")
        match seen:
            case Seen.ASLEEP:  # a part of it may be awake
                held = await self._missing("its engine says that it sleeps")
                if held is None:
                    return State.ASLEEP, error
                return State.LOST, StillHeldError(f"{error}; {held}")
            case Seen.GONE:
                return State.LOST, error
            case _:
                return State.LOST, StillHeldError(f"{error}; what it holds is not known")

    async def _checked(self) -> Outcome:
        """It says that it is awake: see whether it gives the answer that it gave before."""
        try:
            await self._check()
        except (RemoteFault, RestoreError) as fault:
            return await self._failed_check(fault)
        self._owes = False
        return State.AWAKE, None

    async def _failed_check(self, fault: Exception) -> Outcome:
        if self._server is not None:
            return await self._begin_anew(str(fault))
        error = RestoreError(f"{self._name}: its engine came back and is not usable: {fault}")
        if await self._remote.look() is Seen.GONE:
            return State.LOST, error
        _logger.warning("%s; it is put to sleep again", error)
        self._is_known = False
        state, trouble = await self.fall_asleep()
        if trouble is None:
            return state, error
        return State.LOST, StillHeldError(f"{error}; and it cannot be put to sleep again: {trouble}")

    async def _begin_anew(self, why: str) -> Outcome:
        """Start our server, with the weights that it had at first."""
        assert self._server is not None
        if why:
            _logger.warning("%s: its server is started anew: %s", self._name, why)
        try:
            await self._server.start()
            await self._check()
        except (RemoteFault, RestoreError) as fault:
            await self._server.stop()
            anew = f"was started anew ({why}), in vain" if why else "was started in vain"
            return State.LOST, RestoreError(f"{self._name}: its server {anew}: {fault}")
        return State.AWAKE, None

    async def _asked(self, question: Coroutine[Any, Any, None]) -> None:
        """Wait for an answer; when the time is up, end our server, or wait on for nobody.

        Raises:
            RemoteFault: a bad answer, or none.
            StillHeldError: it was to be ended, and something of it cannot be killed now.
        """
        task = self._patience.spawn(question)
        await asyncio.wait([task], timeout=self._limits.transition_s)
        if not task.done() and self._server is not None:
            try:
                await self._server.stop()
                await asyncio.wait([task], timeout=_BREAK_LIMIT_S)  # its connection is broken now
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            raise GoneFault(f"it did not answer within {self._limits.transition_s:g} s and was ended")
        if not task.done():
            self._patience.give_up()
            await asyncio.wait([task])
        task.result()

    def _unknown(self) -> RestoreError:
        return RestoreError(
            f"{self._name}: whether its server sleeps cannot be told now; if that lasts, start it again"
        )
