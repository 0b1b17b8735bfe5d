"""`VllmService`: a vLLM server as a service that sleeps while it is evicted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.instances.backend import Backend
from arl_tangram.services.engine.declared import EngineDeclaration


@dataclass(frozen=True, slots=True)
class VllmService(EngineDeclaration):
    """A vLLM server that sleeps while it is evicted.

    Start it with sleep mode, on the loopback device, such as `launch=["vllm", "serve", MODEL, "--enable-sleep-mode",
    "--host", "127.0.0.1", "--port", "{port}", "--tensor-parallel-size", "{dop}"]`; a server given by `url` also needs
    `VLLM_SERVER_DEV_MODE=1` in its environment. Only this pool may send requests to it. Written after the source of
    vLLM 0.33.0.

    Attributes:
        level: 1 keeps the weights in host memory while it sleeps; 2 drops them, and loads them again from the disk.
    """

    level: Literal[1, 2] = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        EngineDeclaration.__post_init__(self)
        if self.level not in (1, 2):
            raise ConfigurationError(f"VllmService({self.name!r}): level={self.level!r}: there are 1 and 2")

    def backend(self) -> Backend:
        """Return a new backend for one runtime."""
        # Late: the HTTP client is slow to import, and only who opens a pool with such a service needs it.
        from arl_tangram.services.engine.backend import EngineBackend  # noqa: PLC0415
        from arl_tangram.services.engine.vllm import VllmKind  # noqa: PLC0415

        return EngineBackend(self, VllmKind(self.level))
