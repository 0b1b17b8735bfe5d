"""How an SGLang server is made to give up its memory and to take it again.

What is relied on, as SGLang 0.5.23 has it. Its server dies of what others refuse, so that the order matters:

- `/release_memory_occupation` while a request is on its way, or for the second time, and `/resume_memory_occupation`
  for the second time, kill it; so does `/health` while it is released, unless
  `SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0`. What state it is in it does not tell: it is remembered here, together
  with how long its start took, by which a server that was started again is known: that one is awake.
- A pause in place freezes the scheduler between two steps, and a step can be left over after the last answer was sent.
  `/flush_cache` succeeds only if nothing is left, so it is asked before the pause, and again in it.
- Without `--enable-memory-saver`, both routes answer 200 and do nothing; without `--enable-weights-cpu-backup`, what
  comes back is rubbish. The memory that is measured, and the question with a known answer, tell.
- A request whose connection is closed is on its way for a while; `/abort_request` is answered at once, and the request
  itself when it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from arl_tangram.services.engine.calls import Requests
from arl_tangram.services.engine.remote import Door, GoneFault, RefusedFault, Remote, RemoteFault, Seen

HEALTH = "/health"
_ENV = MappingProxyType({"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"})
_IDLE_LIMIT_S = 30
_LABEL = "rid"
_OURS = frozenset({
    "/release_memory_occupation", "/resume_memory_occupation", "/pause_generation", "/continue_generation",
    "/flush_cache", "/abort_request", "/health", "/health_generate", "/slow_down",
})  # fmt: skip


class SglangKind:
    """What is particular about SGLang."""

    def __init__(self, key: str | None) -> None:
        self._key = key

    @property
    def env(self) -> Mapping[str, str]:
        """Variables without which it cannot be put to sleep."""
        return _ENV

    @property
    def needs(self) -> str:
        """What it must be started with."""
        return "--enable-memory-saver and --enable-weights-cpu-backup"

    @property
    def health_path(self) -> str:
        """What tells that it is ready."""
        return HEALTH

    def remote(self, door: Door) -> tuple[Remote, Requests]:
        """Return how it is spoken to."""
        return SglangRemote(door, self._key), SglangRequests(door, self._key)


class SglangRemote:
    """Makes an SGLang server give up its memory and take it again, each once in turn."""

    def __init__(self, door: Door, key: str | None = None) -> None:
        self._door = door
        self._key = key
        self._seen = Seen.AWAKE
        self._start: object = None  # of the process that was seen last

    async def sleep(self) -> None:
        """Wait until its scheduler has nothing left, pause it, and release all of its memory."""
        await self._is_another()
        await self._post("/flush_cache", query={"timeout": str(_IDLE_LIMIT_S)})
        await self._post("/pause_generation", {"mode": "in_place"})
        try:
            await self._post("/flush_cache", query={"timeout": "0"})
        except RefusedFault:
            await self._post("/continue_generation", {})
            raise
        self._seen = Seen.ALIVE
        await self._post("/release_memory_occupation", {})
        self._seen = Seen.ASLEEP

    async def wake(self) -> None:
        """Take the memory again, and go on."""
        if await self._is_another():
            raise RefusedFault("it was started again since it was put to sleep", 409)
        self._seen = Seen.ALIVE
        await self._post("/resume_memory_occupation", {})
        await self._post("/continue_generation", {})
        self._seen = Seen.AWAKE

    async def look(self) -> Seen:
        """Return what it was told last, if it is alive; `ALIVE` if it is not known whether it did that."""
        try:
            await self._is_another()
        except GoneFault:
            return Seen.GONE
        except RemoteFault:
            return Seen.ALIVE
        return self._seen

    async def _is_another(self) -> bool:
        """Whether the process is not the one that was seen last, as far as can be told.

        Raises:
            GoneFault: it has ended.
            SilentFault: it does not answer.
        """
        try:
            told: Any = await self._door.get("/server_info")  # no generation, unlike /health
            start: object = told["startup_time"]
        except (RefusedFault, LookupError, TypeError):
            return False
        is_another = self._start is not None and start != self._start
        self._start = start
        if is_another:
            self._seen = Seen.AWAKE
        return is_another

    async def _post(self, path: str, body: object = None, *, query: Mapping[str, str] | None = None) -> Any:
        return await self._door.post(path, body, query=query, key=self._key)


class SglangRequests:
    """Requests to SGLang: their labels are its `rid`."""

    def __init__(self, door: Door, key: str | None = None) -> None:
        self._door = door
        self._key = key

    def refuses(self, path: str) -> bool:
        """Whether a route changes the state of the engine."""
        return path in _OURS

    def labelled(self, body: dict[str, Any], label: str) -> dict[str, Any]:
        """Return the body with the label, unless it has one."""
        return {_LABEL: label, **body}

    async def abort(self, body: Mapping[str, Any]) -> bool:
        """Ask it to end the request, or the requests of a batch; it answers then."""
        label: object = body[_LABEL]
        labels = cast("list[object]", label) if isinstance(label, list) else [label]
        try:
            for each in labels:
                await self._door.post("/abort_request", {_LABEL: each}, key=self._key)
        except RemoteFault:
            return False
        return True
