"""`DockerPool` and `DockerHost`: the declaration of a pool of containers, checked when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.docker import options
from arl_tangram.managers.docker.declared import ChannelKind, Grants, HostSettings, Pull, SandboxSettings
from arl_tangram.managers.docker.manager import DockerManager
from arl_tangram.managers.manager import CpuManager
from arl_tangram.model.sharing import Share, check_share


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerHost:
    """One Docker daemon among several of a `DockerPool`.

    Attributes:
        url: where it listens: `unix://`, `tcp://` or `ssh://`; None asks `DOCKER_HOST`, the docker context and the
            usual sockets.
        cores: whole cores; by default all that the daemon has (and, of this machine, this process may use).
        memory_gib: memory to share out; by default all that the daemon has.
        name: of its dimensions (`cpu@NAME`); by default its number from 1.
        core_ids: numbers of the cores that the pool may use there; by default the first that there are.

    Raises:
        ConfigurationError: a value that is not possible.
    """

    url: str | None = None
    cores: int | None = None
    memory_gib: float | None = None
    name: str | None = None
    core_ids: Sequence[int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "core_ids", options.core_ids(self.core_ids, self.cores, "DockerHost"))
        self.settings("1")

    def settings(self, name: str) -> HostSettings:
        """Return what was declared, under this name if none was given."""
        return options.host(
            "DockerHost",
            name=options.node_name(self.name) if self.name is not None else name,
            url=self.url,
            cores=self.cores,
            memory_gib=self.memory_gib,
            core_ids=self.core_ids,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerPool:
    """Cores and memory of one or several Docker daemons: each trajectory owns a container.

    A container has the memory of its trajectory as its limit, no network, no capabilities and no new privileges unless
    that is asked for here. It idles at a tenth of a core; an action gets its cores for as long as it runs: whole ones
    for itself, by cpuset, so that `nproc` tells them; fractions by quota.

    Attributes:
        cores: whole cores; by default all that the daemon has (and, of this machine, this process may use).
        memory_gib: memory to share out among trajectories; by default all that the daemon has.
        image: of trajectories that name none; it needs a POSIX shell at `/bin/sh`.
        url: where the daemon listens: `unix://`, `tcp://` or `ssh://`; None asks `DOCKER_HOST`, the docker context and
            the usual sockets.
        hosts: several daemons instead of one; then they, not the pool, have `url`, `cores`, `memory_gib`, `core_ids`.
        max_sandboxes: containers at once, on each host; more trajectories wait.
        network: the name of a Docker network, such as `bridge`; `none` for no network.
        user: runs the commands, as `name`, `1000` or `1000:1000`; None leaves that to the image.
        capabilities: Linux capabilities that commands get, such as `NET_RAW`.
        pids_limit: processes and threads in one sandbox.
        workdir: the working folder, created if need be; None takes that of the image, else `/workspace`.
        grants: `direct` writes the cgroup files of this machine, `api` asks the daemon; `auto` takes `direct` where a
            check shows that it works.
        channel: `session` runs the commands of a sandbox in shells that stay open; `exec` starts one per command.
        warm: containers of `image` that are kept ready on each host.
        start_timeout_s: seconds that a sandbox may take to start, once it is its turn.
        pull_timeout_s: seconds that an image may take to be pulled.
        pull: `missing` pulls images that the daemon does not have, `never` does not.
        core_ids: numbers of the cores that the pool may use; by default the first that there are.
        share: lets running actions in sandboxes share the cores of their host: each grows into those that fall free,
            shrinks when others need them, and may be suspended. `resize` is `policies.size_aware()`, another policy
            (such as `policies.equal_shares()`) decides otherwise; None leaves every action the cores that it started
            with.

    Raises:
        ConfigurationError: a value, or a combination of values, that is not possible.
    """

    cores: int | None = None
    memory_gib: float | None = None
    image: str | None = None
    url: str | None = None
    hosts: Sequence[DockerHost] | None = None
    max_sandboxes: int = 256
    network: str = "none"
    user: str | None = None
    capabilities: Sequence[str] = ()
    pids_limit: int = 4096
    workdir: str | None = None
    grants: Grants = "auto"
    channel: ChannelKind = "session"
    warm: int = 0
    start_timeout_s: float = 60
    pull_timeout_s: float = 600
    pull: Pull = "missing"
    core_ids: Sequence[int] | None = None
    share: Share = None
    _hosts: tuple[HostSettings, ...] = field(init=False, repr=False, compare=False)
    _settings: SandboxSettings = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "core_ids", options.core_ids(self.core_ids, self.cores, "DockerPool"))
        object.__setattr__(self, "hosts", _check_hosts(self.hosts))
        object.__setattr__(self, "capabilities", options.capabilities(self.capabilities))
        check_share(self.share, "DockerPool")
        object.__setattr__(self, "_hosts", self._host_settings())
        object.__setattr__(self, "_settings", self._sandbox_settings())

    def manager(self) -> CpuManager:
        """Return a new manager of this pool; it does nothing before its `prepare`."""
        return DockerManager(self._hosts, self._settings)

    def _host_settings(self) -> tuple[HostSettings, ...]:
        if self.hosts is None:
            return (
                options.host(
                    "DockerPool",
                    name="",
                    url=self.url,
                    cores=self.cores,
                    memory_gib=self.memory_gib,
                    core_ids=self.core_ids,
                ),
            )
        given = ("url", "cores", "memory_gib", "core_ids")
        if wrong := [name for name in given if getattr(self, name) is not None]:
            raise ConfigurationError(
                f"DockerPool(hosts=…, {wrong[0]}={getattr(self, wrong[0])!r}): with hosts, each has its own {wrong[0]}"
            )
        if len(self.hosts) == 1:
            return (self.hosts[0].settings(""),)
        hosts = tuple(host.settings(str(number)) for number, host in enumerate(self.hosts, 1))
        options.check_distinct("name", [host.name for host in hosts])
        options.check_distinct("url", [host.url or "" for host in hosts])
        return hosts

    def _sandbox_settings(self) -> SandboxSettings:
        return SandboxSettings(
            image=None if self.image is None else options.image(self.image, "DockerPool(image="),
            max_sandboxes=options.count(self.max_sandboxes, "max_sandboxes"),
            network=options.network(self.network),
            user=options.user(self.user),
            capabilities=tuple(self.capabilities),
            pids_limit=options.count(self.pids_limit, "pids_limit", least=options.LEAST_PIDS),
            workdir=options.workdir(self.workdir),
            grants=options.choice(self.grants, "grants", Grants),
            channel=options.choice(self.channel, "channel", ChannelKind),
            warm=options.warm(self.warm, self.image, self.max_sandboxes),
            start_timeout_s=options.limit_s(self.start_timeout_s, "start_timeout_s"),
            pull_timeout_s=options.limit_s(self.pull_timeout_s, "pull_timeout_s"),
            pull=options.choice(self.pull, "pull", Pull),
            resizes=self.share is not None,
        )


def _check_hosts(hosts: object) -> tuple[DockerHost, ...] | None:
    if hosts is None:
        return None
    is_list = isinstance(hosts, Sequence) and not isinstance(hosts, (str, bytes))
    found = tuple(cast("Sequence[object]", hosts)) if is_list else ()
    checked = tuple(host for host in found if isinstance(host, DockerHost))
    if not checked or len(checked) < len(found):
        raise ConfigurationError(f"DockerPool(hosts={hosts!r}): one or more DockerHost(url=…) are needed")
    return checked
