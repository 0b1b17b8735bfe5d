"""A session at its client or agent: commands go out and events come in, whatever becomes of the way and of the owner.

One exchange carries all that one turn of the loop, or one round trip, has gathered. One more is always out to listen:
it brings what is granted later, and shows the owner that this process lives. What was put out of reach of the owner for
the length of its lease has lost what it held. That is counted from when the last frame was sent that was answered, and
the owner counts from when it got that one, and longer: so this end lets go before the owner gives it to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from arl_tangram.errors import LeaseLostError, OwnerLostError, ShutdownError, TangramError
from arl_tangram.integrations.ray.lines import LineError, OwnerLine, pause_s
from arl_tangram.integrations.ray.sessions.greeter import Greeter, no_owner
from arl_tangram.integrations.ray.sessions.greeting import NotYetError
from arl_tangram.integrations.ray.sessions.numbering import Receiver, Sender
from arl_tangram.integrations.ray.wire import ClientFrame, Command, Event, Leave, OwnerFrame, Resume, Welcome

WINDOW = 2
"""Exchanges with commands that may be out at a time."""
BEATS = 6
"""How often in a lease an owner that has nothing to say is heard of."""
_TURNS = 2
_SHORT_S = 0.05
_GOODBYE_S = 5.0
_EARLY_S = 0.001


@dataclass(slots=True)
class _Link:
    """A session as long as its owner knows of it.

    Attributes:
        epoch: of the owner.
        session: its name there.
        beat_s: for how long one exchange listens at most, and how long an answer may take beyond what was asked for.
        sent: the number of the last command that some frame has carried.
        exchanging: how many exchanges with commands are out.
        listening: whether one that listens is out.
        failures: how many exchanges have failed since one was answered.
    """

    epoch: str
    session: str
    beat_s: float
    sent: int = 0
    exchanging: int = 0
    listening: bool = False
    failures: int = 0


class Pump:
    """The session of this process with the owner; all of it on one event loop.

    Attributes:
        greeter: greets the owner.

    Args:
        line: the way to the owner.
        about: who this is, in builtins, for the greeting.
        on_events: is given what the owner tells, in order, each once.
        on_lost: is told that all that was held is lost, and all that waits and was posted, too: the pump has forgotten
            it. Unless there will be no owner any more, what is posted from then on belongs to a new session.
        resume: returns what is held, and waits, for an owner that was started again.
        now: tells the time in seconds, monotonic.
        on_begun: is told of each session that begins, or is resumed.
        owner_timeout_s: for how long an owner may be away when nothing is held.
    """

    def __init__(
        self,
        line: OwnerLine,
        about: Mapping[str, Any],
        on_events: Callable[[Sequence[Event]], None],
        on_lost: Callable[[TangramError], None],
        resume: Callable[[], Resume],
        *,
        now: Callable[[], float],
        owner_timeout_s: float = 60.0,
        on_begun: Callable[[Welcome], None] | None = None,
    ) -> None:
        self._on_begun = on_begun
        self.greeter = Greeter(line, about, now)
        self._line = line
        self._on_events = on_events
        self._on_lost = on_lost
        self._resume = resume
        self._now = now
        self._owner_timeout_s = owner_timeout_s
        self._loop = asyncio.get_running_loop()
        self._sender: Sender[Command] = Sender()
        self._receiver: Receiver[Event] = Receiver()
        self._link: _Link | None = None
        self._lease_s = 0.0
        self._until_s = 0.0
        self._limit: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_flushing = False
        self._begun_s = 0.0
        self._short = 0
        self._dead: TangramError | None = None
        self._emptied: asyncio.Future[None] | None = None

    async def open(self, on_wait: Callable[[NotYetError], None] | None = None) -> Welcome:
        """Begin a session; whoever calls bounds the wait for an owner that does not answer.

        Args:
            on_wait: is told, each time, that the owner lets nobody begin yet.

        Raises:
            VersionMismatchError: the owner has another version of the library.
            ConfigurationMismatchError: it has another configuration.
            OwnerLostError: there is none any more.
        """
        welcome, sent_s = await self.greeter.begin(on_wait)
        self._begin(welcome, sent_s)
        return welcome

    @property
    def is_over(self) -> bool:
        """Whether there is no owner any more, or none that has us: `on_lost` was told, and nothing posted goes out."""
        return self._dead is not None

    def post(self, command: Command) -> None:
        """Send a command with the next frame; if the session `is_over`, `on_lost` is told again, in a later turn."""
        self._sender.put(command)
        self._wake()

    def unheard(self) -> ClientFrame | None:
        """Return a frame with what the owner may not have yet, for whoever asks it otherwise; on the loop."""
        return None if self._link is None else self._frame(self._link, *self._sender.unacked(), 0.0)

    def end(self, error: TangramError) -> None:
        """Have no session any more: all that is held, or posted from now on, is lost."""
        self._die(error)

    async def aclose(self) -> None:
        """Leave: send what was posted, wait for a few seconds at most until the owner has it, and stop."""
        if self._lease_s and self._dead is None:
            self._emptied = self._loop.create_future()
            self.post(Leave())
            await asyncio.wait([self._emptied], timeout=_GOODBYE_S)
        tasks = self._stop()
        await asyncio.gather(*tasks, return_exceptions=True)

    # To begin a session.

    async def _join(self, before: _Link | None = None, resume: Resume | None = None, *, pause_s: float = 0.0) -> None:
        """Begin a session after another one, and a pause."""
        if pause_s:
            await asyncio.sleep(pause_s)
        try:
            if before is None or resume is None:
                welcome, sent_s = await self.greeter.begin()
            else:
                welcome, sent_s = await self.greeter.resume(before.epoch, before.session, resume, self._lease_s)
        except LeaseLostError as error:
            self._lose(error)
        except TangramError as error:
            self._die(error)
        else:
            self._begin(welcome, sent_s)

    def _begin(self, welcome: Welcome, sent_s: float) -> None:
        self._link = _Link(welcome.epoch, welcome.session, welcome.lease_s / BEATS)
        self._lease_s = welcome.lease_s
        self._begun_s = self._now()
        self._bound(sent_s + welcome.lease_s)
        if self._on_begun is not None:
            self._on_begun(welcome)
        self._wake()

    def _join_again(self, before: _Link) -> None:
        """Resume with an owner that was started again: it learns what is held now, and what is posted from now on."""
        self._stop(keep_limit=True)
        self._sender, self._receiver = Sender(), Receiver()
        self._spawn(self._join(before, self._resume()))

    # To lose it.

    def _bound(self, until_s: float) -> None:
        """All that is held, or posted, is lost then, unless the owner is heard of."""
        self._until_s = until_s
        if self._limit is not None:
            self._limit.cancel()
        left_s = max(0.0, until_s - self._now())
        self._limit = self._loop.call_later(left_s, self._reach_limit, context=Context())

    def _reach_limit(self) -> None:
        if self._until_s - self._now() > _EARLY_S:
            self._bound(self._until_s)
        else:
            self._give_up()

    def _give_up(self) -> None:
        if self._lease_s:
            text = f"the owner of the shared runtime was not heard of for {self._lease_s:g} s: {self.greeter.trouble}"
            self._lose(LeaseLostError(text))
        else:
            text = f"the shared runtime has had no owner for {self._owner_timeout_s:g} s: {self.greeter.trouble}"
            self._lose(OwnerLostError(text))

    def _lose(self, error: TangramError) -> None:
        """Forget the session, and begin a new one."""
        self._stop()
        self._sender, self._receiver = Sender(), Receiver()
        if self._emptied is not None:
            self._end_goodbye()
            return
        self._lease_s = 0.0
        self._bound(self._now() + self._owner_timeout_s)
        is_short = self._now() < self._begun_s + _SHORT_S  # as if the owner will have none of us
        self._short = self._short + 1 if is_short else 0
        self._spawn(self._join(pause_s=pause_s(self._short) if self._short else 0.0))
        self._on_lost(error)

    def _die(self, error: TangramError) -> None:
        """There is no owner any more, or none that has us."""
        self._stop()
        self._dead = error
        self._end_goodbye()
        self._on_lost(error)

    def _stop(self, *, keep_limit: bool = False) -> list[asyncio.Task[None]]:
        """Give up all that is out; return what ends by that."""
        self._link = None
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._limit is not None and not keep_limit:
            self._limit.cancel()
            self._limit = None
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        return tasks

    # To exchange frames.

    def _wake(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._gather, _TURNS, context=Context())

    def _gather(self, turns: int) -> None:
        """Let some more turns of the loop pass: whoever hears of an end mostly makes a next call, in the same frame."""
        if turns > 0:
            self._loop.call_soon(self._gather, turns - 1, context=Context())
        else:
            self._flush()

    def _flush(self) -> None:
        """Send what was gathered, and listen."""
        self._is_flushing = False
        if self._dead is not None:
            self._sender = Sender()
            self._on_lost(self._dead)
            return
        link = self._link
        if link is None or self._pause is not None:
            return
        first, commands = self._sender.unacked()
        last = first + len(commands) - 1
        if last > link.sent and link.exchanging < WINDOW:
            link.sent = last
            link.exchanging += 1
            self._spawn(self._exchange(link, self._frame(link, first, commands, 0.0)))
        if not link.listening and self._emptied is None:
            link.listening = True
            self._spawn(self._exchange(link, self._frame(link, first, (), self._listen_s(link))))

    def _listen_s(self, link: _Link) -> float:
        """Return for how long to listen: shorter when an answer is due, as after a stop of this process."""
        return min(link.beat_s, max(_SHORT_S, (self._until_s - self._now()) / 4))

    def _frame(self, link: _Link, first: int, commands: tuple[Command, ...], wait_s: float) -> ClientFrame:
        return ClientFrame(link.epoch, link.session, first, commands, self._receiver.upto, wait_s)

    async def _exchange(self, link: _Link, frame: ClientFrame) -> None:
        sent_s = self._now()
        try:
            async with asyncio.timeout(frame.wait_s + link.beat_s):
                answer = await self._line.exchange(frame)
        except (LineError, TimeoutError) as error:
            _is_back(link, frame)
            self._failed(link, error)
        except Exception as error:  # noqa: BLE001 - whatever the classes of the user raise
            _is_back(link, frame)
            if self._link is link:  # to send it again is in vain: nothing that was posted would ever get out
                self._lose(LeaseLostError(f"a frame cannot be sent, or its answer cannot be read: {error!r}"))
        else:
            _is_back(link, frame)
            self._answered(link, answer, sent_s)

    def _answered(self, link: _Link, answer: OwnerFrame, sent_s: float) -> None:
        if self._link is not link:
            return
        if answer.epoch != link.epoch:
            self._join_again(link)
            return
        if answer.ended is not None:
            lose = self._die if isinstance(answer.ended, ShutdownError) else self._lose  # a closed owner has no heir
            lose(answer.ended)
            return
        self._until_s = max(self._until_s, sent_s + self._lease_s)
        if self._now() >= self._until_s:
            self._give_up()  # before its timer, as after a long stop of this process: it is too late for events
            return
        link.failures = 0
        self._end_pause()
        self._sender.acked(answer.ack)
        if self._sender.upto == self._sender.last:
            self._end_goodbye()
        try:
            if events := self._receiver.take(answer.first, answer.events):
                self._on_events(events)
        finally:
            self._wake()

    def _failed(self, link: _Link, error: Exception) -> None:
        """Send again, after a while, what the exchange carried."""
        if self._link is not link:
            return
        if isinstance(error, LineError) and error.for_good:
            self._die(no_owner(error))
            return
        self.greeter.trouble = str(error) or "no answer"
        link.sent = self._sender.upto
        if self._pause is None:
            self._pause = self._loop.call_later(pause_s(link.failures), self._end_pause, context=Context())
        link.failures += 1

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
            self._wake()

    def _end_goodbye(self) -> None:
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "in a shared runtime", "exception": error, "task": task})


def _is_back(link: _Link, frame: ClientFrame) -> None:
    """Take note that an exchange has ended."""
    if frame.wait_s:
        link.listening = False
    else:
        link.exchanging -= 1
