"""A server that can only be started and stopped, as a service: what a user declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.gpu import checked_dops
from arl_tangram.model.quantities import bytes_of_gib, seconds, service_name, whole
from arl_tangram.services.variables import checked_variables, is_text

if TYPE_CHECKING:
    from arl_tangram.services.processes.backend import ProcessBackend

PORT = "{port}"


@dataclass(frozen=True, slots=True)
class ProcessService:
    """A server that actions share, and that has no way to give up its memory but to end: llama.cpp, TEI and their like.

    To restore it is to start it and to wait until it is healthy; to evict it is to end it, with all that it has
    started. It sees just the devices that it was given, by `CUDA_VISIBLE_DEVICES`, which it counts from 0. Servers that
    can sleep are restored much faster: see `VllmService` and `SglangService`.

    An action calls it as `await current_service().call("/v1/completions", {...})`, or with a client of its own at
    `current_service().url`.

    Attributes:
        name: how actions call it; letters, digits, `-`, `_` and `.`.
        launch: the command, without a shell. In its words, as in `env` and `url`, `{port}` stands for a free port and
            `{dop}` for the number of devices.
        gpu_gib: memory that it takes on each of its devices, in GiB; 0 for one that needs none.
        url: where it will answer.
        health: the path that answers a GET with success once it is ready.
        dops: on how many devices it can be; 1, 2, 4 or 8.
        max_concurrency: how many actions may use an instance at once, from 1; servers put requests together.
        exclusive: whether nothing else computes on its devices while an action uses it.
        env: variables on top of this process's own.
        host_gib: memory of the host that it takes while it runs, in GiB; part of the pool's budget.
        restore_s: seconds that a start is expected to take, until one was measured.
        call_s: how long a call of an action may take.
        start_s: how long a start may take, until it is healthy.
        stop_s: how long it may take to end by itself after SIGTERM; then it is killed, with all that it started.
        settle_s: how long the memory that it had taken when it was healthy, `gpu_gib` at most, may take to be free
            after its end. As long as it is not, its room is given to nobody; for about a minute, as what is missing
            longer is not its own. So nothing outside of the pool may take memory there meanwhile.
        memory_of: measures what is free on a device with a given name; by default NVML does where there are GPUs.

    Raises:
        ConfigurationError: a value that is not possible.
    """

    name: str
    _: KW_ONLY
    launch: Sequence[str]
    gpu_gib: float
    url: str = f"http://127.0.0.1:{PORT}"
    health: str = "/health"
    dops: Sequence[int] = (1,)
    max_concurrency: int = 16
    exclusive: bool = False
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    host_gib: float = 0.0
    restore_s: float = 30.0
    call_s: float = 600.0
    start_s: float = 600.0
    stop_s: float = 10.0
    settle_s: float = 10.0
    memory_of: Callable[[str], int] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        what = f"ProcessService({self.name!r})"
        service_name(self.name, what, ConfigurationError)
        object.__setattr__(self, "launch", _words(self.launch, what))
        object.__setattr__(self, "env", checked_variables(self.env, what))
        object.__setattr__(self, "dops", checked_dops(self.dops, what))
        for name in ("gpu_gib", "host_gib"):
            bytes_of_gib(getattr(self, name), f"{what}: {name}", ConfigurationError)
        whole(self.max_concurrency, f"{what}: max_concurrency", ConfigurationError, least=1)
        for name in ("restore_s", "call_s", "start_s", "stop_s", "settle_s"):
            seconds(getattr(self, name), f"{what}: {name}", ConfigurationError)
        if not isinstance(cast(Any, self.exclusive), bool):
            raise ConfigurationError(f"{what}: exclusive= takes True or False, not {self.exclusive!r}")
        if self.memory_of is not None and not callable(self.memory_of):
            raise ConfigurationError(f"{what}: memory_of= takes a function, not {self.memory_of!r}")
        if not isinstance(cast(Any, self.health), str) or not self.health.startswith("/"):
            raise ConfigurationError(f"{what}: health= takes a path, which begins with '/', not {self.health!r}")
        _check_url(self, what)

    def backend(self) -> ProcessBackend:
        """Return a new backend for one runtime; it does nothing before its `open`."""
        from arl_tangram.services.processes.backend import ProcessBackend  # noqa: PLC0415 - its HTTP client takes long

        return ProcessBackend(self)


def _words(value: object, what: str) -> tuple[str, ...]:
    words = tuple(cast("Sequence[object]", value)) if isinstance(value, Sequence) else ()
    if isinstance(value, str) or not words or not all(is_text(word) for word in words) or not words[0]:
        raise ConfigurationError(f"{what}: launch= takes a list of words, no shell is involved, not {value!r}")
    return cast("tuple[str, ...]", words)


def _check_url(service: ProcessService, what: str) -> None:
    """Refuse what leads nowhere, and one fixed port for two instances that can run at the same time."""
    url = cast(object, service.url)
    try:
        parts = urlsplit(url.replace(PORT, "1")) if isinstance(url, str) else None
        is_good = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        is_good = False
    if not isinstance(url, str) or not is_good:
        raise ConfigurationError(f"{what}: url= takes one like http://127.0.0.1:{PORT}, not {url!r}")
    told = any(PORT in text for text in (*service.launch, *service.env.values()))
    if PORT in url and not told:
        raise ConfigurationError(
            f"{what}: neither launch= nor env= has {PORT} in it, so the server would not know its port; "
            "or say with url= where it answers"
        )
    if PORT not in url and len(service.dops) > 1:
        raise ConfigurationError(
            f"{what}: url={url!r} is one place, and instances of dops={tuple(service.dops)} can run at once: "
            f"let {PORT} stand in it"
        )
