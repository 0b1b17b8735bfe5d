"""The sessions of one container: opens them, keeps some of them open, and kills what was started in them.

With a cgroup for each session, what one has started is known and killed from outside, certainly, whatever it is.
Without (the daemon is remote, or its cgroups are not ours to write), killing is done from inside: all of the container
at once, or, beside other commands, what none of the other sessions has started. That is done by one at a time, and no
session is handed out or opened meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Collection, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio

from arl_tangram.managers.docker import script
from arl_tangram.managers.docker.answers import DaemonError
from arl_tangram.managers.docker.daemon import Daemon
from arl_tangram.managers.docker.exchange import Exchange
from arl_tangram.managers.docker.group import is_stopped
from arl_tangram.managers.docker.guards import Guards
from arl_tangram.managers.docker.limits import Limits
from arl_tangram.managers.docker.session import Session, SessionError, open_session
from arl_tangram.managers.running_time import RunningTime
from arl_tangram.uninterrupted import in_thread

TAKE_ATTEMPTS = 4
KEPT = 4  # an open session takes about 2 MB, opening one 0.1 s
REPLY_S = 1.5  # for a shell to tell that what it waited for has been killed
FIRST_REPLY_S = 0.01
END_S = 2.0
OPEN_ATTEMPTS = 5
AWAY_S = 10.0  # a daemon that is restarted is away for a few seconds
RETRY_S = 0.25
INFANCY_S = 0.05  # in which a guard that ends now may still kill what has just been opened
SWEEP_S = 2
THREADS = 2


class SurvivorsError(Exception):
    """Something could not be killed; the message says what."""


class Sessions:
    """The sessions of one container.

    Args:
        daemon: its daemon.
        container_id: which.
        env: variables of the commands, on top of those of the container.
        limits: of the container; knows the cgroups of sessions.
        clock: of the sandbox.

    Attributes:
        guards: of all of them.
        killing: who kills holds it from the moment when it looks at what else is running.
    """

    def __init__(
        self, daemon: Daemon, container_id: str, *, env: Mapping[str, str], limits: Limits, clock: RunningTime
    ) -> None:
        self._daemon = daemon
        self._container_id = container_id
        self._env = env
        self._limits = limits
        self._clock = clock
        self._is_direct = limits.is_direct
        self._limiter = anyio.CapacityLimiter(THREADS)
        self._numbers = itertools.count(1)
        self.guards = Guards()
        self._idle: list[Session] = []
        self._out: set[Session] = set()  # handed out
        self._retired: set[Session] = set()
        self._opening: set[asyncio.Task[Session]] = set()
        self._unclaimed: list[asyncio.Task[Session]] = []
        self._chores: set[asyncio.Task[None]] = set()
        self.killing: AbstractAsyncContextManager[None] = (
            contextlib.nullcontext() if self._is_direct else asyncio.Lock()
        )
        self._calm = asyncio.Event()  # unset while something is killed from inside
        self._calm.set()
        self._strays: frozenset[str] = frozenset()
        self._closed = False

    @property
    def has_left_alive(self) -> bool:
        """Whether something that a command has left behind may be alive."""
        return bool(self._retired or self._strays)

    async def take(self, *, fresh: bool = False) -> Session:
        """Return a session that is free, opening one if there is none; `give_back` it.

        Args:
            fresh: open one in any case.

        Raises:
            SessionError, DaemonError, OSError: none can be opened.
        """
        for _ in range(TAKE_ATTEMPTS):
            await self._calm.wait()
            while self._idle and not fresh:
                session = self._idle.pop()
                if session.is_usable:
                    self._out.add(session)
                    return session
                self._dispose(session)
            session = await self._opened(fresh=fresh)
            if self._calm.is_set() and session.is_usable:
                self._out.add(session)
                return session
            self.give_back(session)  # what is killed from inside now may take it along
        raise SessionError("what else is killed has taken it along, again and again")

    async def _opened(self, *, fresh: bool) -> Session:
        opening = self._unclaimed.pop() if self._unclaimed and not fresh else self._begin_opening()
        try:
            await asyncio.wait([opening])
        except asyncio.CancelledError:
            self._unclaimed.append(opening)
            opening.add_done_callback(self._keep)
            raise
        if opening.cancelled():
            raise SessionError("it was closed")
        return opening.result()

    def give_back(self, session: Session, exchange: Exchange | None = None, *, keep: bool = True) -> None:
        """Take a session back, after a command: for the next one, unless something of it is alive, or may be."""
        self._out.discard(session)
        if self._closed:
            session.hang_up()
        elif self._has_strays(session, exchange):
            self._retired.add(session)
        elif session.is_usable and keep and len(self._idle) < KEPT:
            self._idle.append(session)
        else:
            self._dispose(session)

    # killing

    async def kill(self, busy: Mapping[Session, Exchange | None], own: Iterable[Exchange]) -> None:
        """Kill everything that was started.

        Args:
            busy: the sessions with commands, and what runs in them: it ends.
            own: scripts of ours that are running; they are let finish.

        Raises:
            SurvivorsError: something could not be killed.
        """
        if self._is_direct:
            await self._kill_groups(busy)
        else:
            await self._kill_inside(busy, own)

    async def kill_one(
        self, session: Session, exchange: Exchange | None, others: Collection[Session], marks: Collection[str]
    ) -> None:
        """Kill what one session has started, beside others with their marks, which are spared.

        Raises:
            SurvivorsError: something could not be killed.
        """
        if self._is_direct:
            await self._kill_groups({session: exchange}, retired=())
        else:
            await self._sweep(session, others, marks)

    async def aclose(self, sessions: Iterable[Session]) -> None:
        """Hang up all of them, these too; everything in the container is killed by that or with the container."""
        self._closed = True
        all_sessions = {*sessions, *self._idle, *self._retired}
        self.hang_up(all_sessions)
        for task in self._opening:
            task.cancel()
        groups = [session.group for session in all_sessions if session.group is not None]

        def work() -> None:
            for group in groups:
                group.kill()
                group.remove()

        tasks = [*self._opening, *self._chores]
        if tasks:
            await asyncio.wait(tasks)
        if groups:
            await in_thread(work, self._limiter)
        for session in all_sessions:
            await session.settled()
        self._idle.clear()
        self._retired.clear()
        self._strays = frozenset()

    def hang_up(self, sessions: Iterable[Session], *, reason: str | None = None) -> None:
        """End the streams of these and of those that are idle; see `Session.hang_up`."""
        for session in [*sessions, *self._idle]:
            session.hang_up(reason=reason)

    # with cgroups

    async def _kill_groups(
        self, busy: Mapping[Session, Exchange | None], retired: Collection[Session] | None = None
    ) -> None:
        """Kill what is in the cgroups of sessions: of those that are retired all, of the others all but themselves."""
        whole = set(self._retired if retired is None else retired)
        whole |= {session for session in busy if session.is_spoilt or session.gone.done()}
        whole |= await in_thread(lambda: set(filter(_is_stopped, busy)), self._limiter)  # it would not reply
        await self._kill_processes(whole, [session for session in busy if session not in whole])
        replies = {each.done: session for session, each in busy.items() if each is not None and session not in whole}
        if stopped := await self._silent(replies):
            await self._kill_processes(stopped, ())
            whole |= stopped
        for session in whole:
            self._retired.discard(session)
            session.hang_up(killed=True)
        await self._end_stopped()

    async def _end_stopped(self) -> None:
        """End the idle sessions that a command has stopped: the next one would wait in them for ever."""
        idle = list(self._idle)

        def work() -> list[Session]:
            return list(filter(_is_stopped, idle))

        for session in await in_thread(work, self._limiter):
            if session in self._idle:
                self._idle.remove(session)
                self._dispose(session)

    async def _silent(self, replies: Mapping[asyncio.Future[None], Session]) -> set[Session]:
        """Wait until shells tell that what they waited for was killed; return those that do not.

        A command whose text was on its way starts only now, so it is killed again.
        """
        deadline_s = asyncio.get_running_loop().time() + REPLY_S
        silent, pause_s = set(replies), FIRST_REPLY_S
        while silent and asyncio.get_running_loop().time() < deadline_s:
            _, silent = await asyncio.wait(silent, timeout=pause_s)
            pause_s *= 2
            await self._kill_processes((), [replies[reply] for reply in silent])
        return {replies[reply] for reply in silent}

    async def _kill_processes(self, whole: Collection[Session], others: Collection[Session]) -> None:
        if not whole and not others:
            return

        def work() -> list[int]:
            survivors: list[int] = []
            for session in [*whole, *others]:
                if session.group is None:
                    continue
                spared = () if session in whole else session.own
                if not session.group.kill(spared):
                    survivors += session.group.processes()
                elif session in whole:
                    session.group.remove()
            return survivors

        if survivors := await in_thread(work, self._limiter):
            raise SurvivorsError(f"processes {', '.join(map(str, survivors))} could not be killed")

    # from inside

    async def _kill_inside(self, busy: Mapping[Session, Exchange | None], own: Iterable[Exchange]) -> None:
        """Kill everything in the container, and open a session that has made sure of it."""
        self._calm.clear()
        try:
            waited: list[asyncio.Future[Any]] = [*(exchange.done for exchange in own), *self._opening]
            if waited:
                await asyncio.wait(waited, timeout=END_S)
            # Nothing runs yet in what is handed out besides: who has it hears, and takes another one.
            doomed = {*busy, *self._out, *self._idle, *self._retired}
            self._idle.clear()
            # Each of their guards kills everything, now; the number of processes cannot be in the way of the next.
            for session in doomed:
                session.hang_up(killed=True)
            self._idle.append(await self._open_clean())
            self._retired.clear()
            self._strays = frozenset()
        finally:
            self._calm.set()

    async def _open_clean(self) -> Session:
        """Open a session that kills everything else; a guard of an earlier one may kill it in its infancy."""
        deadline_s = asyncio.get_running_loop().time() + AWAY_S
        attempts = 0
        while True:
            try:
                session = await self._open(clean=True)
            except (SessionError, DaemonError) as error:
                attempts += 1
                is_away = isinstance(error, DaemonError) and error.kind == "gone"
                if asyncio.get_running_loop().time() > deadline_s or (attempts >= OPEN_ATTEMPTS and not is_away):
                    raise SurvivorsError(f"no shell can be started that kills what is left: {error}") from error
                await asyncio.sleep(RETRY_S if is_away else INFANCY_S)
                continue
            if session.left_alive:
                session.hang_up()
                raise SurvivorsError(f"processes {' '.join(session.left_alive)} in it could not be killed")
            return session

    async def _sweep(self, session: Session, others: Collection[Session], marks: Collection[str]) -> None:
        try:
            sweeper = await self.take()
        except (SessionError, DaemonError) as error:
            raise SurvivorsError(f"no shell can be started that kills what is left: {error}") from error
        self._calm.clear()
        try:
            if self._opening:
                await asyncio.wait(self._opening, timeout=END_S)
            kept = {sweeper, *others, *self._out, *self._idle} - {session}
            text = script.own(
                script.sweep([each.id for each in kept], [*marks], [session.id], SWEEP_S), script.Redirection()
            )
            exchange = sweeper.begin(text, 1 << 12)
            await asyncio.wait([exchange.done], timeout=SWEEP_S + END_S)
        except SessionError as error:
            raise SurvivorsError(f"the shell that kills what is left has ended: {error}") from error
        finally:
            self._calm.set()
            session.hang_up(killed=True)
            self.give_back(sweeper)
        if not exchange.done.done() or exchange.done.exception() is not None or exchange.code != 0:
            left = exchange.stdout.content().decode(errors="replace").strip()
            raise SurvivorsError(f"processes {left or '?'} in it could not be killed beside other commands")

    # opening and closing

    def _begin_opening(self) -> asyncio.Task[Session]:
        opening = asyncio.get_running_loop().create_task(self._open())
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        return opening

    async def _open(self, *, clean: bool = False) -> Session:
        number = next(self._numbers)
        guard = self.guards.add()
        try:
            return await open_session(
                self._daemon,
                self._container_id,
                number=number,
                env=self._env,
                guard=guard,
                group=self._limits.session_group(number),
                limiter=self._limiter,
                clock=RunningTime() if clean else self._clock,  # killing is bounded, also while that stands still
                clean=clean,
            )
        except BaseException:
            guard.end()
            raise

    def _keep(self, opening: asyncio.Task[Session]) -> None:
        """Keep a session that nobody waits for any more."""
        if opening in self._unclaimed:
            self._unclaimed.remove(opening)
            if not opening.cancelled() and opening.exception() is None:
                self.give_back(opening.result())

    def _has_strays(self, session: Session, exchange: Exchange | None) -> bool:
        """Return whether something that this session has started is alive, apart from the session itself."""
        if session.group is not None:
            return bool(set(session.group.processes()) - session.own)
        if exchange is None or exchange.children is None:
            return False
        children = exchange.children
        news = children - self._strays
        # Process 1 has one child of its own.
        self._strays = children if len(children) > 1 else frozenset()
        if not self._strays:
            for retired in self._retired:
                self._dispose(retired)
            self._retired.clear()
        return len(children) > 1 and bool(news)

    def _dispose(self, session: Session) -> None:
        """End a session in which nothing runs, in the background."""
        self._chore(self._end(session))

    def _chore(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def _end(self, session: Session) -> None:
        group = session.group
        if group is not None:
            if await in_thread(lambda: group.kill() and group.remove(), self._limiter):
                session.hang_up()
            else:
                self._retired.add(session)
        elif await session.end(END_S):
            session.hang_up()
        else:
            self._retired.add(session)  # to hang up would kill everything


def _is_stopped(session: Session) -> bool:
    """Return whether a command has stopped the shell of a session, or its guard."""
    return session.group is not None and any(map(is_stopped, session.own))
