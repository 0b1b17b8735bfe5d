"""Gather what rollouts ask of the model into one call at a time, made by the thread that trains.

Rollouts run on an event loop of their own; the model is called by the thread that trains. It is called when nobody is
about to ask: every rollout has asked, is with a tool, or is over. So all begin with one call for all of them, and who
comes back from a tool need not wait for those whose tools take longer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Said:
    """What the model said in one turn.

    Attributes:
        ids: its tokens.
        logprobs: of each token, if the model's server tells them.

    Raises:
        ValueError: there are more or fewer logprobs than tokens.
    """

    ids: list[int]
    logprobs: list[float] | None = None

    def __post_init__(self) -> None:
        if self.logprobs is not None and len(self.logprobs) != len(self.ids):
            raise ValueError(f"Said() has {len(self.ids)} tokens with {len(self.logprobs)} logprobs")


Generate = Callable[[list[list[int]]], Sequence[Said]]
"""Calls the model with the tokens of several conversations, and returns what it says in each, in their order."""


@dataclass(slots=True, eq=False)
class _Question:
    ids: list[int]
    answer: concurrent.futures.Future[Said] = field(default_factory=concurrent.futures.Future[Said])
    is_back: bool = False  # whether who has asked counts again as one that is about to ask


class Turns:
    """The turns of some rollouts.

    Args:
        rollouts: how many there are; each is to `leave`.
    """

    def __init__(self, rollouts: int) -> None:
        self._changed = threading.Condition()
        self._about_to_ask = rollouts
        self._questions: list[_Question] = []
        self._is_over = False

    async def ask(self, ids: list[int]) -> Said:
        """Return what the model says after these tokens. Cancelling takes the question back."""
        question = _Question(ids)
        with self._changed:
            self._questions.append(question)
            self._about_to_ask -= 1
            self._changed.notify()
        try:
            return await asyncio.wrap_future(question.answer)
        finally:
            with self._changed:
                self._back(question)

    @contextmanager
    def away(self) -> Generator[None]:
        """Mark the time in which a rollout is with its tools: nobody waits for what it will ask."""
        self._count(-1)
        try:
            yield
        finally:
            self._count(1)

    def leave(self) -> None:
        """Tell that a rollout will ask no more."""
        self._count(-1)

    def end(self) -> None:
        """Tell that all rollouts are over: `serve` returns."""
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def serve(self, generate: Generate) -> None:
        """Call the model on this thread whenever that is due, until `end` was called. What `generate` raises passes.

        Raises:
            ValueError: it returned more or fewer answers than there were questions.
        """
        while asked := self._next():
            said = generate([question.ids for question in asked])
            if len(said) != len(asked):
                raise ValueError(f"generate= was asked for {len(asked)} turns, and returned {len(said)}")
            with self._changed:
                for question in asked:
                    self._back(question)
            for question, answer in zip(asked, said, strict=True):
                question.answer.set_result(answer)

    def _next(self) -> list[_Question]:
        """Wait for questions, and take them; none if all is over."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or (self._questions and self._about_to_ask <= 0))
                questions, self._questions = self._questions, []
                if self._is_over:
                    return []
            if asked := [one for one in questions if one.answer.set_running_or_notify_cancel()]:
                return asked

    def _count(self, change: int) -> None:
        with self._changed:
            self._about_to_ask += change
            self._changed.notify()

    def _back(self, question: _Question) -> None:
        """Count who has asked as about to ask, once. The lock is held."""
        if not question.is_back:
            question.is_back = True
            self._about_to_ask += 1
