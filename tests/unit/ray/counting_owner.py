"""An owner that grants nothing: it takes down what arrives, says numbered things, and keeps sessions as owners must."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from arl_tangram.errors import LeaseLostError, TangramError
from arl_tangram.integrations.ray.sessions.greeting import (
    check_versions,
    refusal_answer,
    resume_of,
    welcome_answer,
)
from arl_tangram.integrations.ray.sessions.numbering import Receiver, Sender
from arl_tangram.integrations.ray.wire import (
    AgentReply,
    ClientFrame,
    Command,
    Event,
    Expired,
    Leave,
    OwnerFrame,
    Resume,
    Welcome,
    Withdraw,
)

LEASE_S, GRACE_S = 6.0, 3.0


class Session:
    """One session at the owner: what it has been told, and what it tells."""

    def __init__(self, owner: CountingOwner, name: str, resume: Resume | None) -> None:
        self.owner = owner
        self.name = name
        self.resume = resume
        self.numbers: list[int] = [] if resume is None else [number for number, _, _ in resume.charges]
        self.sender: Sender[Event] = Sender(7)
        self.receiver: Receiver[Command] = Receiver()
        self.told = 0
        self.ended: TangramError | None = None
        self.left = False
        self.something = asyncio.Event()
        self.heard_s = owner.now()

    def tell(self) -> None:
        """Say the next number."""
        self.told += 1
        self.sender.put(Expired(self.told))
        self.something.set()


class CountingOwner:
    """An owner; `sessions` are all that it ever had, by name."""

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        self.sessions: dict[str, Session] = {}
        self.refuse: TangramError | None = None
        self.late_resumes = False
        self._tokens: dict[str, Session] = {}
        self.on_expiry: list[Any] = []

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    def live(self) -> list[Session]:
        self.expire()
        return [session for session in self.sessions.values() if session.ended is None]

    def expire(self) -> None:
        """End those that were not heard of for too long."""
        for session in self.sessions.values():
            if session.ended is None and self.now() >= session.heard_s + LEASE_S + GRACE_S:
                session.ended = LeaseLostError(f"{session.name} was silent for too long")
                session.something.set()
                for tell in self.on_expiry:
                    tell(self, session)

    async def hello(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        self.expire()
        try:
            check_versions(message)
            if self.refuse is not None:
                raise self.refuse
            session = self._tokens.get(message["token"])
            if session is None:
                resume = resume_of(message)
                if resume is not None and self.late_resumes:
                    raise LeaseLostError("too late")
                session = Session(self, f"{message['name']}-{len(self.sessions)}-{self.epoch}", resume)
                self.sessions[session.name] = self._tokens[message["token"]] = session
            if session.ended is not None:
                raise session.ended
        except TangramError as error:
            return refusal_answer(error)
        session.heard_s = self.now()
        return welcome_answer(Welcome(self.epoch, session.name, LEASE_S, GRACE_S, None))

    async def exchange(self, frame: ClientFrame) -> OwnerFrame:
        self.expire()
        if frame.epoch != self.epoch:
            return OwnerFrame(self.epoch, 1, (), 0)
        session = self.sessions[frame.session]
        if session.ended is None:
            session.heard_s = self.now()
            session.sender.acked(frame.ack)
            for command in session.receiver.take(frame.first, frame.commands):
                if isinstance(command, Leave):
                    session.left = True
                    session.ended = LeaseLostError("it has left")
                    break
                assert isinstance(command, Withdraw)
                session.numbers.append(command.id)
            if frame.wait_s and not session.sender.unacked()[1]:
                session.something.clear()
                try:
                    async with asyncio.timeout(frame.wait_s):
                        await session.something.wait()
                except TimeoutError:
                    pass
        first, events = session.sender.unacked()
        return OwnerFrame(self.epoch, first, events, session.receiver.upto, session.ended)

    async def ask(self, session: str, what: str, arguments: Mapping[str, Any]) -> AgentReply:
        return AgentReply(dict(arguments))
