"""What an action lends while its body waits for actions that it called, and how it gets it back.

From the call of the first to the end of the last of them, its cores and its turn in the sandbox are free for others,
these calls among them, and its timeout stands still. Before the last of them returns into the body, it has all of it
back. Memory, threads and quotas stay with it.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from arl_tangram.deciding import Deciding
from arl_tangram.errors import InfrastructureError, NestedActionError
from arl_tangram.uninterrupted import settled


class Called(Protocol):
    """An action that a body called, as its caller sees it."""

    @property
    def name(self) -> str:
        """The action's name."""
        ...

    def call_off(self, error: BaseException) -> None:
        """End it, whether it waits or runs."""
        ...


class Caller(Protocol):
    """A running action whose body calls others."""

    @property
    def name(self) -> str:
        """The action's name."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether it was interrupted or answered, so that its body needs nothing any more."""
        ...

    def put_down(self) -> bool:
        """Let go of the cores and stop the clock of the timeout.

        Returns:
            Whether the cores are free: they are not while something that the body started is alive on them.
        """
        ...

    def take_up(self) -> bool:
        """Take cores again, and let the clock go on.

        Returns:
            Whether the body can go on: not if it is suspended, and its commands could not run yet (`go_on`).

        Raises:
            SandboxLostError: the sandbox died meanwhile.
        """
        ...


class Nesting:
    """The calls that the body of one action has in progress, and what it lends meanwhile.

    Attributes:
        away_s: seconds for which something was lent, until the body had it back.
        regaining_s: those of them in which it waited to have it back.
    """

    def __init__(self, caller: Caller, action_id: int, dispatcher: Deciding, loop: asyncio.AbstractEventLoop) -> None:
        self._caller = caller
        self._id = action_id
        self._dispatcher = dispatcher
        self._loop = loop
        self._called: dict[Called, None] = {}
        self._lent_at_s: float | None = None
        self._reclaimed_at_s: float | None = None
        self._back: asyncio.Future[None] | None = None
        self._keeps_cores = False
        self.away_s = 0.0
        self.regaining_s = 0.0

    @property
    def is_away(self) -> bool:
        """Whether something is lent."""
        return self._lent_at_s is not None

    def begin(self, called: Called, *, in_same_sandbox: bool) -> None:
        """The body calls an action: lend, unless that was done already.

        Raises:
            NestedActionError: it would run where something is alive that the body has started.
        """
        self._called[called] = None
        if self._lent_at_s is None:
            self._keeps_cores = not self._caller.put_down()
            self._lent_at_s = self._loop.time()
            self._dispatcher.lend(self._id, cores=not self._keeps_cores)
            self._end_wait(None)  # it may have been suspended still
        elif self._is_waiting:  # it was about to have it back
            self._dispatcher.lend(self._id, cores=not self._keeps_cores)
            self._end_wait(None)
        if in_same_sandbox and self._keeps_cores:
            raise NestedActionError(
                f"{self._caller.name} → {called.name}: what {self._caller.name} has started in the sandbox of both is "
                "still alive; end it first, or call the other action from the rollout"
            )

    def end(self, called: Called) -> None:
        """A call has ended: if it was the last in progress, the caller wants its cores and its turn back.

        In the same turn of the loop, so that nobody else takes what the call gives back.
        """
        if called not in self._called:
            return
        del self._called[called]
        if self._called or self._caller.is_over:
            return
        self._back = self._loop.create_future()
        self._reclaimed_at_s = self._loop.time()
        if self._dispatcher.reclaim(self._id, self._regained):
            self._regained(None)

    async def until_back(self) -> None:
        """Wait until the caller has its cores and its turn back, if it has asked for them.

        Cancelling takes effect when it has them.

        Raises:
            SandboxLostError: its sandbox died meanwhile.
        """
        if (back := self._back) is not None:
            await settled(back)
            back.result()

    def call_off(self, error: BaseException) -> None:
        """End all calls in progress."""
        for called in list(self._called):
            called.call_off(error)

    def go_on(self) -> None:
        """The caller has cores again, and was suspended when it had back all else."""
        if not self.is_away:
            self._end_wait(None)

    def give_up(self) -> None:
        """The caller is over: its body gets nothing back."""
        if self._is_waiting:
            if self.is_away:
                self._dispatcher.lend(self._id, cores=not self._keeps_cores)
            self._end_wait(None)
        self._count()

    @property
    def _is_waiting(self) -> bool:
        return self._back is not None and not self._back.done()

    def _regained(self, failure: Exception | None) -> None:
        """The scheduler has given back what was lent, or has failed."""
        error: Exception | None = None
        try:
            if failure is not None:
                raise InfrastructureError(f"{self._caller.name}: the scheduler failed: {failure!r}")
            if not self._have_back():
                return
        except Exception as caught:  # noqa: BLE001 - raised in the body, which has none of its cores then
            error = caught
        self._end_wait(error)

    def _have_back(self) -> bool:
        self._count()
        self._lent_at_s = None
        return self._caller.take_up()

    def _end_wait(self, error: Exception | None) -> None:
        if self._back is None or self._back.done():
            return
        if error is None:
            self._back.set_result(None)
        else:
            self._back.set_exception(error)
            self._back.exception()  # retrieved: nobody may wait for it

    def _count(self) -> None:
        """Count the time until now, once."""
        now_s = self._loop.time()
        if self._lent_at_s is not None:
            self.away_s += now_s - self._lent_at_s
            self._lent_at_s = now_s
        if self._reclaimed_at_s is not None:
            self.regaining_s += now_s - self._reclaimed_at_s
            self._reclaimed_at_s = None
