"""What state an engine is in and what is to be done next: one transition at a time, shared by all who want it. Pure.

The rules:

- A wish is that the engine be awake, or that it be asleep. Wishes are met in the order in which they came; one that
  comes while the last one is for the same state shares its fate.
- An engine that is wanted asleep drains first: nothing enters any more, and it is not told to sleep before the last
  call has left.
- The next transition begins when the one before has ended, however long that takes. A wish can be given up, a
  transition cannot: what it leads to is found out when it ends, and undone if nobody wants it by then.
- A lost engine is dead, or nobody knows what it does: what comes next begins with finding that out.
"""

from __future__ import annotations

from collections import deque
from enum import Enum


class State(Enum):
    """What is known of an engine."""

    LOST = "lost"
    AWAKE = "awake"
    DRAINING = "draining"
    SLEEPING = "sleeping"
    ASLEEP = "asleep"
    WAKING = "waking"


class Step(Enum):
    """A transition that is to be carried out now."""

    SLEEP = "sleep"
    WAKE = "wake"


class Wish:
    """That an engine be awake, or asleep.

    Attributes:
        state: `AWAKE` or `ASLEEP`.
        is_over: whether it has been met, has failed or was given up.
        error: why it was not met.
    """

    __slots__ = ("error", "is_over", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.is_over = False
        self.error: Exception | None = None

    def end(self, error: Exception | None) -> None:
        """Say what came of it; only the first word counts."""
        if not self.is_over:
            self.is_over = True
            self.error = error


class Course:
    """The state of one engine, who uses it, and what is wanted of it."""

    def __init__(self, state: State = State.LOST) -> None:
        self.state = state
        self.users = 0
        self._wishes: deque[Wish] = deque()

    @property
    def is_under_way(self) -> bool:
        """Whether a transition has begun and not ended."""
        return self.state in (State.SLEEPING, State.WAKING)

    @property
    def is_overdue(self) -> bool:
        """Whether nobody waits any more for the transition that is under way."""
        return self.is_under_way and self._wishes[0].is_over

    def want(self, state: State) -> Wish:
        """Wish for a state: `AWAKE` or `ASLEEP`. What is to be done for it, `next` says."""
        if self._wishes and self._wishes[-1].state is state and not self._wishes[-1].is_over:
            return self._wishes[-1]
        wish = Wish(state)
        self._wishes.append(wish)
        return wish

    def next(self) -> Step | None:
        """Begin the next transition, if there is one to begin now."""
        while self._wishes and not self.is_under_way:
            wish = self._wishes[0]
            if wish.is_over:
                self._wishes.popleft()
                if self.state is State.DRAINING:
                    self.state = State.AWAKE
            elif wish.state is self.state:
                self._wishes.popleft()
                wish.end(None)
            elif wish.state is State.AWAKE:
                self.state = State.WAKING
                return Step.WAKE
            else:
                self.state = State.DRAINING if self.users else State.SLEEPING
                return None if self.users else Step.SLEEP
        return None

    def give_up(self, error: Exception) -> None:
        """Let those who wait for the transition that is under way wait no longer; it goes on."""
        self._wishes[0].end(error)

    def ended(self, state: State, error: Exception | None = None) -> None:
        """The transition has ended, and left the engine `AWAKE`, `ASLEEP` or `LOST`.

        Args:
            state: where it is now.
            error: why this is no success, though the state may be the one that was wanted.
        """
        wish = self._wishes.popleft()
        was_given_up = wish.is_over
        self.state = state
        wish.end(error)
        if was_given_up and state is State.AWAKE and all(later.is_over for later in self._wishes):
            self._wishes.append(Wish(State.ASLEEP))

    def died(self) -> bool:
        """The engine is dead, while no transition is under way; return whether it was to stay awake."""
        was_awake = self.state is State.AWAKE
        self.state = State.LOST
        return was_awake

    def enter(self) -> bool:
        """Begin to use it; False if it is not awake, or is wanted asleep."""
        if self.state is not State.AWAKE:
            return False
        self.users += 1
        return True

    def leave(self) -> None:
        """Use it no more; `next` may have something to do then."""
        self.users -= 1
