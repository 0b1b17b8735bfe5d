"""Numbers and acknowledgements: what one end of a session puts in comes out at the other in order, each once.

Each direction of a session is a `Sender` at one end and a `Receiver` at the other. Every frame carries all that was not
acknowledged, as far as it fits, so that a frame that is lost, late, doubled or overtaken does no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_PER_FRAME = 1024
"""Items in one frame; what waits behind them goes when they are acknowledged."""


class Sender(Generic[T]):
    """What goes out, numbered from 1, until it is acknowledged.

    Args:
        most: items in one frame.
    """

    __slots__ = ("_first", "_items", "_most")

    def __init__(self, most: int = MOST_PER_FRAME) -> None:
        self._items: deque[T] = deque()
        self._first = 1
        self._most = most

    def put(self, item: T) -> None:
        """Send an item with the next frame, and with those that follow until it is acknowledged."""
        self._items.append(item)

    def unacked(self) -> tuple[int, tuple[T, ...]]:
        """Return what the next frame carries: the number of the first item, and the items."""
        return self._first, tuple(islice(self._items, self._most))

    def acked(self, upto: int) -> None:
        """The other end has all up to this number; a number below one that was given before says nothing new.

        Raises:
            ValueError: there was no item of this number yet.
        """
        if upto > self.last:
            raise ValueError(f"item {upto} is acknowledged, and {self.last} is the last there is")
        for _ in range(upto - self._first + 1):
            self._items.popleft()
        self._first = max(self._first, upto + 1)

    @property
    def upto(self) -> int:
        """The number of the last item that is acknowledged; 0 if none is."""
        return self._first - 1

    @property
    def last(self) -> int:
        """The number of the last item; 0 if there was none."""
        return self._first + len(self._items) - 1


class Receiver(Generic[T]):
    """What comes in.

    Attributes:
        upto: the number of the last item that has come in, and so of all before it; to be acknowledged.
    """

    __slots__ = ("upto",)

    def __init__(self) -> None:
        self.upto = 0

    def take(self, first: int, items: Sequence[T]) -> Sequence[T]:
        """Return those items of a frame that are new, in order.

        Args:
            first: the number of the first item.
            items: those of the frame. If some before them have not come in, they are left for a later frame, which
                carries those, too.
        """
        known = self.upto + 1 - first
        if known < 0:
            return ()
        new = items[known:] if known else items
        self.upto += len(new)
        return new
