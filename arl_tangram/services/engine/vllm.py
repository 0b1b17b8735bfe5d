"""How a vLLM server is put to sleep and woken.

What is relied on, as vLLM 0.33.0 has it:

- `POST /sleep` takes its parameters in the URL only, and answers once the memory is given up; level 1 keeps the weights
  in host memory. `mode=wait` lets requests end first; the default would cut them off, with status 200.
- `GET /is_sleeping` is true as well while the server only pauses: memory tells the rest.
- Waking an engine that is awake does nothing; waking one whose `/sleep` is not answered yet damages it.
- `GET /health` is 200 while it sleeps, and 503 when the engine behind it is dead.
- These routes exist with `VLLM_SERVER_DEV_MODE=1` only, which opens others to whoever reaches the server: it must
  listen on 127.0.0.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from arl_tangram.services.engine.calls import Requests
from arl_tangram.services.engine.remote import Door, GoneFault, RefusedFault, Remote, RemoteFault, Seen

HEALTH = "/health"
_ENV = MappingProxyType({"VLLM_SERVER_DEV_MODE": "1"})
_OURS = frozenset({
    "/sleep", "/wake_up", "/pause", "/resume", "/release_kv_cache_memory", "/collective_rpc", "/abort_requests",
    "/reset_prefix_cache",
})  # fmt: skip


class VllmKind:
    """What is particular about vLLM."""

    def __init__(self, level: int) -> None:
        self._level = level

    @property
    def env(self) -> Mapping[str, str]:
        """Variables without which it cannot be put to sleep."""
        return _ENV

    @property
    def needs(self) -> str:
        """What it must be started with."""
        return "--enable-sleep-mode, and VLLM_SERVER_DEV_MODE=1 in its environment"

    @property
    def health_path(self) -> str:
        """What tells that it is ready."""
        return HEALTH

    def remote(self, door: Door) -> tuple[Remote, Requests]:
        """Return how it is spoken to."""
        return VllmRemote(door, self._level), VllmRequests()


class VllmRemote:
    """Puts a vLLM server to sleep and wakes it."""

    def __init__(self, door: Door, level: int = 1) -> None:
        self._door = door
        self._level = level

    async def sleep(self) -> None:
        """Make it sleep once its last request has ended; answered when its memory is given up."""
        told: object = await self._door.post("/sleep", query={"level": str(self._level), "mode": "wait"})
        match told:
            case {"status": "sleeping"}:
                return
            case _:
                raise RefusedFault(f"POST /sleep was answered with {told!r}", 200)

    async def wake(self) -> None:
        """Wake it: weights and caches."""
        if self._level == 1:
            await self._wake_up({})
            return
        # Weights come back to their places before they are loaded, and caches after that: the peak stays lower.
        await self._wake_up({"tags": "weights"}, expected="sleeping")
        await self._door.post("/collective_rpc", {"method": "reload_weights"})
        await self._wake_up({"tags": "kv_cache"})
        await self._door.post("/reset_prefix_cache")

    async def _wake_up(self, query: Mapping[str, str], expected: str = "awake") -> None:
        told: object = await self._door.post("/wake_up", query=query)
        match told:
            case {"status": str(status)} if status == expected:
                return
            case _:
                raise RefusedFault(f"POST /wake_up was answered with {told!r}", 200)

    async def look(self) -> Seen:
        """Return whether it sleeps, or is dead."""
        try:
            await self._door.get(HEALTH)
        except GoneFault:
            return Seen.GONE
        except RefusedFault as fault:
            return Seen.GONE if fault.status == 503 else Seen.ALIVE
        except RemoteFault:
            return Seen.ALIVE
        try:
            told = await self._door.get("/is_sleeping")
        except GoneFault:
            return Seen.GONE
        except RemoteFault:
            return Seen.ALIVE
        match told:
            case {"is_sleeping": True}:
                return Seen.ASLEEP
            case {"is_sleeping": False}:
                return Seen.AWAKE
            case _:
                return Seen.ALIVE


class VllmRequests:
    """Requests to vLLM: it ends those whose connection is closed."""

    def refuses(self, path: str) -> bool:
        """Whether a route changes the state of the engine."""
        return path in _OURS

    def labelled(self, body: dict[str, Any], label: str) -> dict[str, Any]:
        """Return the body as it is."""
        return body

    async def abort(self, body: Mapping[str, Any]) -> bool:
        """Closing the connection is enough."""
        return False
