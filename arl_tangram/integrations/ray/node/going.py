"""The calls of one session that go on at an agent: each runs once, and can be cancelled, also before it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from arl_tangram.errors import TangramError
from arl_tangram.integrations.ray.answers import raised
from arl_tangram.integrations.ray.node.recent import Recent
from arl_tangram.integrations.ray.wire import AgentCall, AgentReply


class Going:
    """The calls of one session that go on at an agent."""

    def __init__(self) -> None:
        self._seen = Recent()
        self._tasks: dict[int, asyncio.Task[AgentReply]] = {}
        self._over: TangramError | None = None

    async def run(self, request: AgentCall, work: Callable[[], Awaitable[AgentReply]]) -> AgentReply:
        """Run a call to its end, whatever becomes of the task that waits for it, and return its reply."""
        number = request.id.number
        if (over := self._over) is not None:
            return raised(over)
        if number in self._tasks:
            return await _ended(self._tasks[number])
        if not self._seen.add(number):
            return raised(asyncio.CancelledError())
        task = asyncio.get_running_loop().create_task(_replied(work))
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))
        return self._checked(await _ended(task))

    def cancel(self, number: int) -> None:
        """Cancel a call, or do not begin it when it comes."""
        self._seen.add(number)
        if (task := self._tasks.get(number)) is not None:
            task.cancel()

    def _checked(self, reply: AgentReply) -> AgentReply:
        return reply if self._over is None else raised(self._over, reply.value)

    async def end(self, error: TangramError) -> None:
        """Cancel all calls and begin no other; wait until they have ended."""
        self._over = error
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _replied(work: Callable[[], Awaitable[AgentReply]]) -> AgentReply:
    try:
        return await work()
    except BaseException as error:  # goes to the client, whatever it is
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return raised(error)


async def _ended(task: asyncio.Task[AgentReply]) -> AgentReply:
    await asyncio.wait([task])
    if task.cancelled():  # before its first step
        return raised(asyncio.CancelledError())
    return task.result()
