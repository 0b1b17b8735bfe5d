"""The events of a daemon's containers, one after the other."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from arl_tangram.managers.docker.answers import ContainerEvent, read_event
from arl_tangram.managers.docker.connection import Connection
from arl_tangram.managers.docker.failures import understood
from arl_tangram.managers.docker.naming import label_filter


@asynccontextmanager
async def hear_events(
    connection: Connection, labels: Mapping[str, str], actions: Sequence[str], *, since_s: int | None, timeout_s: float
) -> AsyncGenerator[AsyncIterator[ContainerEvent]]:
    """Hear of events from when the context is entered; see `Engine.events`."""
    filters: dict[str, list[str]] = {"type": ["container"], "label": label_filter(labels)}
    if actions:
        filters["event"] = [*actions]
    params = {"filters": json.dumps(filters)} | ({} if since_s is None else {"since": str(since_s)})
    async with connection.lines("events", "events", timeout_s=timeout_s, params=params) as lines:
        yield _Events(lines)


class _Events:
    """The events of a stream."""

    def __init__(self, lines: AsyncIterator[object]) -> None:
        self._lines = lines

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> ContainerEvent:
        while True:
            event = understood(read_event, await anext(self._lines))
            if event is not None:
                return event
