"""What may still use memory that was freed: events of streams, which whoever writes there next must wait for. Pure."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Passing(Protocol):
    """Something that comes to pass."""

    def query(self) -> bool:
        """Tell whether it has."""
        ...


E = TypeVar("E", bound=Passing)


class LastUses(Generic[E]):
    """Ranges of bytes, each with the event behind its last use; those that have come to pass are forgotten."""

    def __init__(self) -> None:
        self._uses: list[tuple[int, int, E]] = []

    def add(self, start: int, stop: int, event: E) -> None:
        """A range was freed; what used it is over when an event has come to pass."""
        self._uses = [use for use in self._uses if not use[2].query()]
        self._uses.append((start, stop, event))

    def of(self, start: int, stop: int) -> tuple[E, ...]:
        """Return the events to wait for before a range is written."""
        return tuple(event for first, last, event in self._uses if first < stop and start < last and not event.query())
