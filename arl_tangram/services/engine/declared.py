"""What a user declares of an engine, whichever server it is, checked when it is declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import cast
from urllib.parse import urlsplit

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.gpu import CHUNK_SIZES
from arl_tangram.model.quantities import bytes_of_gib, is_name, seconds, service_name, whole
from arl_tangram.services.engine.limits import Limits
from arl_tangram.services.engine.probe import Probe
from arl_tangram.services.servers.memory import MemoryOf
from arl_tangram.services.variables import checked_variables

_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EngineDeclaration:
    """An inference server as a service of a `GpuPool`: it gives up its memory when another service needs the room.

    Attributes:
        name: by which actions ask for it.
        url: of a running server. With `launch`, where the launched server listens, if its command has no `{port}`.
        launch: the command that starts a server, ended with the pool; `{port}` and `{dop}` in it are filled in. It
            sees just its devices.
        gpu_gib: what it has of each device while it is awake, everything included.
        dop: on how many devices it is: 1, 2, 4 or 8.
        devices: which, by name or by number in the pool, neighbours all; by default all of a pool that has just `dop`.
        asleep_gib: what it keeps of each device while it sleeps; by default what is measured when it first sleeps, or
            2 GiB where nothing can be measured.
        host_gib: host memory in which it keeps its weights while it sleeps; counted in the pool's budget.
        restore_s: what waking is expected to take, until that was measured; by default 0.2 s for each GiB.
        max_concurrency: how many actions may use it at once; it batches what they ask.
        exclusive: whether nothing else may compute on its devices while an action uses it.
        model: what the server calls its model; by default the first that it names.
        probe: the question that it must answer as before after each restore; None for no question at all.
        env: variables for a launched server, on top of this process's own.
        api_key: sent as a bearer token.
        call_s: how long a call of an action may take.
        transition_s: how long it may take to answer that it sleeps, or is awake.
        settle_s: how long its memory may take to be free after that answer.
        start_s: how long a launched server may take until it is ready.
        stop_s: how long one may take to end by itself; then it is killed, with all that it started.
        memory_of: measures what is free on a device with a given name; by default NVML does where there are GPUs.

    Raises:
        ConfigurationError: something of it is impossible.
    """

    name: str
    url: str | None = field(default=None, kw_only=True)
    launch: Sequence[str] | None = field(default=None, kw_only=True)
    gpu_gib: float = field(kw_only=True)
    dop: int = field(default=1, kw_only=True)
    devices: Sequence[int | str] | None = field(default=None, kw_only=True)
    asleep_gib: float | None = field(default=None, kw_only=True)
    host_gib: float = field(default=0.0, kw_only=True)
    restore_s: float | None = field(default=None, kw_only=True)
    max_concurrency: int = field(default=16, kw_only=True)
    exclusive: bool = field(default=False, kw_only=True)
    model: str | None = field(default=None, kw_only=True)
    probe: Probe | None = field(default_factory=Probe, kw_only=True)
    env: Mapping[str, str] = field(default_factory=lambda: _NO_VARIABLES, kw_only=True, repr=False)
    api_key: str | None = field(default=None, kw_only=True, repr=False)
    call_s: float = field(default=600.0, kw_only=True)
    transition_s: float = field(default=120.0, kw_only=True)
    settle_s: float = field(default=10.0, kw_only=True)
    start_s: float = field(default=900.0, kw_only=True)
    stop_s: float = field(default=10.0, kw_only=True)
    memory_of: MemoryOf | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        what = f"{type(self).__name__}({self.name!r})"
        service_name(self.name, what, ConfigurationError)
        what = f"{what}: "
        self._check_server(what)
        self._check_devices(what)
        for name in ("call_s", "transition_s", "settle_s", "start_s", "stop_s", "restore_s"):
            value: object = getattr(self, name)
            if value is not None:
                seconds(value, f"{what}{name}", ConfigurationError)
        whole(self.max_concurrency, f"{what}max_concurrency", ConfigurationError, least=1)
        object.__setattr__(self, "env", checked_variables(self.env, what.removesuffix(": ")))
        if not isinstance(cast(object, self.exclusive), bool):
            raise ConfigurationError(f"{what}exclusive= takes True or False, not {self.exclusive!r}")
        if self.memory_of is not None and not callable(self.memory_of):
            raise ConfigurationError(f"{what}memory_of= takes a function, not {self.memory_of!r}")
        if self.model is not None and not is_name(self.model):
            raise ConfigurationError(f"{what}model= takes the name of a model, not {self.model!r}")
        if not is_key(self.api_key):
            raise ConfigurationError(f"{what}api_key= takes a text of printable ASCII")
        if not isinstance(cast(object, self.probe), Probe | None):
            raise ConfigurationError(f"{what}probe={self.probe!r}: a Probe is needed, or None")

    def _check_server(self, what: str) -> None:
        url, launch = cast(object, self.url), cast(object, self.launch)
        if url is None and launch is None:
            raise ConfigurationError(f"{what}a url is needed, or a command with launch=[…]")
        if url is not None and not _is_url(url):
            raise ConfigurationError(f"{what}url={url!r}: http://host:port or https://host:port is needed")
        if launch is None:
            return
        if isinstance(launch, str) or not isinstance(launch, Sequence) or not launch:
            raise ConfigurationError(f"{what}launch={launch!r}: a list of words is needed")
        words = cast("Sequence[object]", launch)
        if not all(isinstance(word, str) and "\0" not in word for word in words):
            raise ConfigurationError(f"{what}launch={launch!r}: its words are texts")
        if url is None and not any("{port}" in cast(str, word) for word in words):
            raise ConfigurationError(f"{what}launch has no {{port}}: it must listen where we say, or url= says where")

    def _check_devices(self, what: str) -> None:
        resident = bytes_of_gib(self.gpu_gib, f"{what}gpu_gib", ConfigurationError)
        if not resident:
            raise ConfigurationError(f"{what}gpu_gib={self.gpu_gib!r}: what it has of each device is needed")
        if self.asleep_gib is not None:
            asleep = bytes_of_gib(self.asleep_gib, f"{what}asleep_gib", ConfigurationError)
            if asleep >= resident:
                raise ConfigurationError(
                    f"{what}asleep_gib={self.asleep_gib}: less than gpu_gib={self.gpu_gib} is needed"
                )
        bytes_of_gib(self.host_gib, f"{what}host_gib", ConfigurationError)
        if whole(self.dop, f"{what}dop", ConfigurationError, least=1, most=CHUNK_SIZES[-1]) not in CHUNK_SIZES:
            raise ConfigurationError(f"{what}dop={self.dop}: there are {', '.join(map(str, CHUNK_SIZES))}")
        devices = cast(object, self.devices)
        if devices is None:
            return
        if isinstance(devices, str) or not isinstance(devices, Sequence):
            raise ConfigurationError(f"{what}devices={devices!r}: a list of names or numbers is needed")
        named = cast("Sequence[object]", devices)
        if len(named) != self.dop or len(set(named)) != len(named):
            raise ConfigurationError(
                f"{what}devices={devices!r}: {self.dop} different ones are needed for dop={self.dop}"
            )

    @property
    def resident_bytes(self) -> int:
        """What it has of each device while it is awake."""
        return bytes_of_gib(self.gpu_gib, "gpu_gib", ConfigurationError)

    @property
    def limits(self) -> Limits:
        """How long things may take."""
        return Limits(self.transition_s, self.settle_s, self.start_s, self.stop_s)

    def expected_restore_s(self) -> float:
        """Return what waking is expected to take."""
        return self.restore_s if self.restore_s is not None else max(0.01, 0.2 * self.gpu_gib)


def is_key(value: object) -> bool:
    """Return whether something can be sent as a bearer token, or is None."""
    return value is None or (isinstance(value, str) and value.isascii() and value.isprintable() and bool(value))


def _is_url(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        url = urlsplit(value)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0 and not url.query
    except ValueError:  # a port that is no number
        return False
