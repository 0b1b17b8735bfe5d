"""The actors of a shared runtime without Ray: their classes, called over the real handles, all in this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from arl_tangram.integrations.ray import agent_actor, handles, owner_actor
from arl_tangram.integrations.ray.lines import LineError


class Ray:
    """A `Library` whose actors are objects; what one of them raises is a `LineError`, as with Ray.

    Attributes:
        actors: by name.
        restarted: whether actors that are made now have died before.
    """

    node_id = "here"

    def __init__(self) -> None:
        self.actors: dict[str, Any] = {}
        self.restarted = False

    def find(self, name: str) -> Any:
        return self.actors.get(name)

    def was_restarted(self) -> bool:
        return self.restarted

    async def answer(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await ask()
        except Exception as error:
            raise LineError(f"RayTaskError: {error!r}") from error

    def put(self, name: str, actor: object) -> Any:
        """Give an object a name, and return its handle."""
        self.actors[name] = _Handle(actor)
        return self.actors[name]


class _Handle:
    def __init__(self, actor: object) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> Any:
        return _Method(getattr(self._actor, name))


class _Method:
    def __init__(self, method: Callable[..., Awaitable[Any]]) -> None:
        self.remote = method


@contextmanager
def ray_here() -> Iterator[Ray]:
    """Let actors and handles use this instead of Ray."""

    async def on_loop(work: Callable[[], Any]) -> Any:
        return work()

    ray = Ray()
    with pytest.MonkeyPatch.context() as patch:
        for module in (agent_actor, handles):
            patch.setattr(module, "off_loop", on_loop)
        for actors in (agent_actor, owner_actor):
            patch.setattr(actors, "connected", lambda *, start: ray)
        yield ray
