"""What an action asks for that uses a GPU service, or devices of its own."""

from __future__ import annotations

from typing import NamedTuple


class SeatRequest(NamedTuple):
    """An action that wants to sit.

    Attributes:
        action_id: unique, ascending in order of submission; one that is tried again has its id again.
        service: the name of the service; None for a body that has its devices for itself.
        dops: the numbers of devices that it may have, ascending.
        expected_s: how long it is expected to run at each of them, restore not included; finite.
        callers: ids of running actions that wait for it, and keep their seats meanwhile.
    """

    action_id: int
    service: str | None
    dops: tuple[int, ...]
    expected_s: tuple[float, ...]
    callers: tuple[int, ...] = ()


class Wait(NamedTuple):
    """What one blocks that was passed over.

    Attributes:
        placing: whether nobody behind it may be placed before it; otherwise only those who want the same service wait
            behind it.
        until_s: when it should be looked at again though nothing has changed; None if never.
    """

    placing: bool
    until_s: float | None
