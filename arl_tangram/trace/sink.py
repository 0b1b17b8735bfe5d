"""Where events go: the `Sink` protocol, and the sink that keeps them in memory."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from arl_tangram.model.events import Event


@runtime_checkable
class Sink(Protocol):
    """Takes the events of one runtime, in order."""

    def write(self, event: Event) -> None:
        """Take one event: cheap, called on the event loop; never waits and never raises."""
        ...

    async def aclose(self) -> None:
        """Finish what was taken, within a bounded time; later events are discarded. Closing twice is fine."""
        ...


class MemorySink:
    """Keep every event in `events`, for demos and tests; memory grows with the run."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, event: Event) -> None:
        """Append the event."""
        self.events.append(event)

    async def aclose(self) -> None:
        """Do nothing: the events stay readable."""
