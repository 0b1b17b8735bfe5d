"""Drives one engine through its states: the I/O around `states`.

Transitions are carried out by a task of their own, whoever waits for them: cancelling a waiter, or a limit that passes,
never cancels what the server was told to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from arl_tangram.errors import InfrastructureError, RestoreError, ServiceLostError
from arl_tangram.managers.gpu.instances.backend import StillHeldError
from arl_tangram.services.engine.limits import Limits
from arl_tangram.services.engine.remote import Remote, Seen
from arl_tangram.services.engine.states import Course, State, Step, Wish
from arl_tangram.services.engine.transitions import Outcome, OwnServer, Transitions
from arl_tangram.services.servers.memory import Meter, turn

_logger = logging.getLogger(__name__)


class Engine:
    """One engine: wakes it, puts it to sleep, and counts who uses it.

    Args:
        name: of the service, for messages.
        remote: how its server is spoken to.
        devices: the names of its devices.
        meter: measures their memory.
        frees: bytes that sleep gives up on each of them.
        check: asks it the question whose answer is known; raises `RemoteFault`, or `RestoreError` for another answer.
        server: for one that we start and end; None for somebody else's.
        limits: how long things may take.
        on_death: told, with the reason, that it has died while it was awake and nothing was under way: by then, all of
            a server of ours is gone, unless it is a `StillHeldError`.
    """

    def __init__(
        self,
        name: str,
        remote: Remote,
        *,
        devices: tuple[str, ...],
        meter: Meter,
        frees: int,
        check: Callable[[], Awaitable[None]],
        server: OwnServer | None,
        limits: Limits,
        on_death: Callable[[Exception], None],
    ) -> None:
        self._name = name
        self._remote = remote
        self._devices = devices
        self._meter = meter
        self._server = server
        self._limits = limits
        self._on_death = on_death
        self._transitions = Transitions(
            name, remote, meter=meter, frees=frees, check=check, server=server, limits=limits, patience=self
        )
        self._course = Course()
        self._waiting: list[tuple[Wish, asyncio.Future[None]]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._turn: contextlib.AsyncExitStack | None = None
        self._is_closed = False

    @property
    def state(self) -> State:
        """What is known of it."""
        return self._course.state

    @property
    def users(self) -> int:
        """How many calls are on their way."""
        return self._course.users

    @property
    def frees(self) -> int:
        """What sleep gives up on each of its devices, in bytes; may be set once more is known."""
        return self._transitions.frees

    @frees.setter
    def frees(self, size: int) -> None:
        self._transitions.frees = size

    async def wake(self) -> None:
        """Make it usable; all who want that at the same time share a transition. Cancelling gives up waiting only.

        Raises:
            RestoreError: it could not be woken, or is not the one that went to sleep; it holds nothing.
            StillHeldError: it could not be woken, and what it holds is not known to be free.
        """
        await self._reach(State.AWAKE)

    async def sleep(self) -> None:
        """Wait until nobody uses it, and make it give up its memory. Cancelling gives up waiting only.

        Raises:
            RestoreError: its memory did not become free.
        """
        await self._reach(State.ASLEEP)

    def enter(self) -> None:
        """Begin to use it.

        Raises:
            ServiceLostError: it is not awake.
        """
        if self._is_closed or not self._course.enter():
            raise ServiceLostError(f"{self._name}: its engine is {self._course.state.value}, not awake")

    def leave(self) -> None:
        """Use it no more."""
        self._course.leave()
        self._advance()

    def died(self, why: str) -> None:
        """Its server has ended by itself. What that does to a transition under way, the transition finds out."""
        if self._course.is_under_way or self._course.state is State.LOST:
            return
        self._transitions.died(why)
        was_awake = self._course.died()
        self._advance()
        error = ServiceLostError(f"{self._name}: its engine died: {why}")
        if self._server is not None:
            self.begin(self._bury(self._server, error, was_awake=was_awake))
        elif was_awake:
            self._on_death(error)

    async def _bury(self, server: OwnServer, error: Exception, *, was_awake: bool) -> None:
        """End what a server of ours has left, then tell, unless a transition has found that out meanwhile."""
        try:
            await server.stop()
            self._meter.ended()
        except StillHeldError as held:
            error = StillHeldError(f"{error}; {held}")
        if was_awake and self._course.state is State.LOST:
            self._on_death(error)

    def suspect(self) -> asyncio.Task[Any]:
        """A call ended without a proper answer: look whether the server is still alive, in bounded time."""
        return self.spawn(self._suspected())

    async def _suspected(self) -> None:
        if await self._remote.look() is Seen.GONE:
            self.died("it does not answer any more")

    async def look(self) -> Seen:
        """Find out what can be seen of its server now, in bounded time."""
        return await self._remote.look()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something that goes on though its waiter is cancelled; it is cancelled when the engine is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something that nobody waits for."""
        _ = self.spawn(work)

    async def aclose(self) -> None:
        """Let go of it: end a server of ours, leave another one as it is. Whoever waits is told. Bounded."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            try:
                await self._server.stop()
            except StillHeldError as error:
                _logger.error("%s", error)
        for wish, _ in self._waiting:
            wish.end(RestoreError(f"{self._name}: its pool was closed"))
        self._settle()

    # Wishes and their fate.

    async def _reach(self, state: State) -> None:
        if self._is_closed:
            raise RestoreError(f"{self._name}: its pool was closed")
        wish = self._course.want(state)
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((wish, future))
        if self._course.is_overdue:
            self._limit(wish)
        self._advance()
        await future

    def _advance(self) -> None:
        step = None if self._is_closed else self._course.next()
        self._settle()
        if step is not None:
            self.begin(self._perform(step))

    def _settle(self) -> None:
        """Tell those whose wish is over."""
        waiting, self._waiting = self._waiting, []
        for wish, future in waiting:
            if not wish.is_over:
                self._waiting.append((wish, future))
            elif future.done():
                pass  # its waiter was cancelled
            elif wish.error is None:
                future.set_result(None)
            else:
                future.set_exception(type(wish.error)(str(wish.error)))  # one of its own for each who waits

    def _limit(self, wish: Wish) -> None:
        """Let a wish wait behind a transition that should be over by now for as long as a transition may take."""

        def withdraw() -> None:
            wish.end(self._silence(wish.state))
            self._settle()

        asyncio.get_running_loop().call_later(self._limits.transition_s, withdraw)

    def _silence(self, wanted: State) -> RestoreError:
        state = self._course.state
        kind = StillHeldError if wanted is State.AWAKE else RestoreError
        return kind(
            f"{self._name}: its engine has been {state.value} for more than {self._limits.transition_s:g} s; "
            "what it holds of its devices is not known"
        )

    def give_up(self) -> None:
        """Wait no longer for a transition that cannot be ended; others of its devices need not, either."""
        is_waking = self._course.state is State.WAKING
        self._course.give_up(self._silence(State.AWAKE if is_waking else State.ASLEEP))
        for wish, _ in self._waiting:
            self._limit(wish)
        if self._turn is not None:
            self.begin(self._turn.aclose())
            self._turn = None
        self._settle()

    # Transitions.

    async def _perform(self, step: Step) -> None:
        transitions = self._transitions
        try:
            state, error = await self._in_turn(
                transitions.fall_asleep if step is Step.SLEEP else transitions.come_awake
            )
        except InfrastructureError as failure:
            state, error = State.LOST, failure
        except asyncio.CancelledError:
            raise
        except Exception as failure:  # a wish must be answered, whatever went wrong
            _logger.exception("the engine of %s: %s failed in an unforeseen way", self._name, step.value)
            state, error = State.LOST, StillHeldError(f"{self._name}: {type(failure).__name__}: {failure}")
        if self._server is not None and state is not State.LOST and not self._server.is_alive:
            # It ended in the last moment. Asleep it would be as dead as if it had ended later.
            gone = RestoreError(f"{self._name}: its server ended as it was {state.value} again")
            state, error = State.LOST, gone if state is State.AWAKE else error
        transitions.ended(state, error)
        self._course.ended(state, error)
        self._advance()

    async def _in_turn(self, transition: Callable[[], Awaitable[Outcome]]) -> Outcome:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(turn(self._devices))
            self._turn = stack
            try:
                before = await self._meter.free()
                try:
                    return await transition()
                finally:
                    await self._meter.changed(before)
            finally:
                self._turn = None
