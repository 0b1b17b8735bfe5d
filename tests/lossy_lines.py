"""Ways to the owner of a shared runtime that lose, delay, double and reorder what they carry, and an owner that dies.

Everything is copied on its way by pickle, as between processes. What was delivered goes on at the owner when its caller
gives up, as with a Ray actor.
"""

from __future__ import annotations

import asyncio
import math
import pickle
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from arl_tangram.integrations.ray.lines import LineError
from arl_tangram.integrations.ray.wire import AgentReply, ClientFrame, OwnerFrame
from stopped import part

R = TypeVar("R")

OWNER = "owner"
"""The part of a test that an owner is, which can be stopped."""


class Serving(Protocol):
    """An owner without its actor."""

    async def hello(self, greeting: Mapping[str, Any], /) -> Mapping[str, Any]: ...

    async def exchange(self, frame: ClientFrame, /) -> OwnerFrame: ...

    async def ask(self, session: str, what: str, arguments: Mapping[str, Any], /) -> AgentReply: ...


class Way(NamedTuple):
    """What becomes of a message: when each of its copies arrives there, and its answer back; none if it is lost."""

    there_s: tuple[float, ...] = (0.0,)
    back_s: float | None = 0.0


STRAIGHT = Way()


def straight() -> Way:
    """A way on which nothing happens to anything, and that takes no time."""
    return STRAIGHT


def random_ways(
    chance: random.Random, *, loss: float = 0.2, double: float = 0.2, longest_s: float = 1.0
) -> Callable[[], Way]:
    """Return what draws what becomes of each message; a message is overtaken by those that take less time.

    Args:
        chance: the generator.
        loss: the share of messages, and of answers, that are lost.
        double: the share of messages that arrive twice.
        longest_s: seconds that a message, or an answer, may take.
    """

    def delay_s() -> float:
        return chance.choice((0.0, 0.0, chance.uniform(0, longest_s)))

    def way() -> Way:
        copies = 0 if chance.random() < loss else 2 if chance.random() < double else 1
        return Way(tuple(delay_s() for _ in range(copies)), None if chance.random() < loss else delay_s())

    return way


class OwnerHost:
    """Where an owner lives and dies; lines that lead here lead to whoever is the owner now.

    Attributes:
        owner: the one that lives; None while there is none.
        for_good: whether there will be none any more.
    """

    def __init__(self, owner: Serving | None = None) -> None:
        self.owner = owner
        self.for_good = False
        self._serving: set[asyncio.Task[Any]] = set()
        self._on_the_way: set[asyncio.Task[None]] = set()

    def kill(self, *, for_good: bool = False) -> None:
        """The owner dies, and what it was doing is not answered."""
        self.owner = None
        self.for_good = for_good
        for task in self._serving:
            task.cancel()

    async def aclose(self) -> None:
        """End all that is on the way, and what the owner is doing for somebody."""
        tasks = [*self._serving, *self._on_the_way]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def serve(self, call: Callable[[Serving], Awaitable[R]]) -> R:
        """Let the owner do something, in a task of its own.

        Raises:
            LineError: there is none, or it died.
        """
        owner = self.owner
        if owner is None:
            raise LineError("there is no owner", gone=True, for_good=self.for_good)

        async def work() -> R:
            return await call(owner)

        with part(OWNER):
            task = asyncio.ensure_future(work())
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        await asyncio.wait([task])
        if task.cancelled():
            raise LineError("the owner died", gone=True, for_good=self.for_good)
        return task.result()

    def send(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go its way whatever becomes of its sender."""
        with part("the way"):
            task = asyncio.ensure_future(work)
        self._on_the_way.add(task)
        task.add_done_callback(self._on_the_way.discard)


class LossyLine:
    """An `OwnerLine` on which what `way` says becomes of each message.

    Attributes:
        is_cut: whether nothing gets through, in either direction.
        frames: how many frames were sent.

    Args:
        host: where the owner lives.
        way: draws what becomes of a message.
        silence_s: seconds after which a caller that gets no answer is told; infinite for never.
    """

    def __init__(self, host: OwnerHost, way: Callable[[], Way] = straight, *, silence_s: float = math.inf) -> None:
        self.is_cut = False
        self.frames = 0
        self.way = way
        self._host = host
        self._silence_s = silence_s

    async def hello(self, greeting: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._call(greeting, lambda owner, copy: owner.hello(copy))

    async def exchange(self, frame: ClientFrame) -> OwnerFrame:
        self.frames += 1
        return await self._call(frame, lambda owner, copy: owner.exchange(copy))

    async def ask(self, session: str, what: str, arguments: Mapping[str, Any]) -> AgentReply:
        return await self._call(arguments, lambda owner, copy: owner.ask(session, what, copy), at_most_once=True)

    def ask_now(self, session: str, what: str, arguments: Mapping[str, Any], limit_s: float) -> AgentReply:
        raise LineError("nothing can block on the loop that its answer comes from")

    async def _call(
        self, message: Any, call: Callable[[Serving, Any], Awaitable[R]], *, at_most_once: bool = False
    ) -> R:
        way = self.way()
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        packed = pickle.dumps(message)
        for delay_s in way.there_s[:1] if at_most_once else way.there_s:
            self._host.send(self._deliver(packed, call, delay_s, way.back_s, answer))
        try:
            async with asyncio.timeout(None if math.isinf(self._silence_s) else self._silence_s):
                return await answer
        except TimeoutError as error:
            raise LineError("silence") from error

    async def _deliver(
        self,
        packed: bytes,
        call: Callable[[Serving, Any], Awaitable[R]],
        there_s: float,
        back_s: float | None,
        answer: asyncio.Future[R],
    ) -> None:
        if there_s:
            await asyncio.sleep(there_s)
        if self.is_cut:
            return
        try:
            told = await self._host.serve(lambda owner: call(owner, pickle.loads(packed)))
            told = pickle.loads(pickle.dumps(told))
        except Exception as error:
            if answer.done() and not isinstance(error, LineError):
                raise  # nobody else would see it
            if not answer.done():
                answer.set_exception(error)
            return
        if back_s is None:
            return
        if back_s:
            await asyncio.sleep(back_s)
        if not self.is_cut and not answer.done():
            answer.set_result(told)
