"""`SglangService`: an SGLang server that gives up its memory while it is evicted."""

from __future__ import annotations

from dataclasses import dataclass, field

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.instances.backend import Backend
from arl_tangram.services.engine.declared import EngineDeclaration, is_key


@dataclass(frozen=True, slots=True)
class SglangService(EngineDeclaration):
    """An SGLang server that gives up its memory while it is evicted.

    Start it with both flags, such as `launch=["python", "-m", "sglang.launch_server", "--model-path", MODEL,
    "--enable-memory-saver", "--enable-weights-cpu-backup", "--host", "127.0.0.1", "--port", "{port}", "--tp",
    "{dop}"]`.
    A server given by `url` must be awake when the pool opens, should have `SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0`
    in its environment, and is left as it is when the pool closes. Only this pool may send requests to it. Written after
    the source of SGLang 0.5.23.

    Attributes:
        admin_api_key: for the routes that change its state, if it has one; by default `api_key`.
    """

    admin_api_key: str | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        EngineDeclaration.__post_init__(self)
        if not is_key(self.admin_api_key):
            raise ConfigurationError(f"SglangService({self.name!r}): admin_api_key= takes a text of printable ASCII")

    def backend(self) -> Backend:
        """Return a new backend for one runtime."""
        # Late: the HTTP client is slow to import, and only who opens a pool with such a service needs it.
        from arl_tangram.services.engine.backend import EngineBackend  # noqa: PLC0415
        from arl_tangram.services.engine.sglang import SglangKind  # noqa: PLC0415

        return EngineBackend(self, SglangKind(self.admin_api_key))
