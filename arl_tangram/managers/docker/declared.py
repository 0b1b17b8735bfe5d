"""What was declared of a pool of daemons, checked: the settings of one host, and those of all sandboxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Grants = Literal["auto", "direct", "api"]
ChannelKind = Literal["session", "exec"]
Pull = Literal["missing", "never"]


@dataclass(frozen=True, slots=True)
class HostSettings:
    """One daemon; None leaves a number to what the daemon says.

    Attributes:
        name: of the node, empty if the pool has one node.
        url: where the daemon listens; None asks the environment.
        cores: whole cores.
        memory_bytes: memory to share out.
        core_ids: numbers of the cores that the pool may use.
        beside: the memory that was declared of each other host of the pool that is on the same machine.
    """

    name: str
    url: str | None
    cores: int | None
    memory_bytes: int | None
    core_ids: tuple[int, ...] | None
    beside: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """What all sandboxes of a pool have in common.

    Attributes:
        image: of trajectories that name none.
        max_sandboxes: at once, on each host.
        network: the name of a Docker network.
        user: runs the commands; None leaves that to the image.
        capabilities: without `CAP_`.
        pids_limit: processes and threads in one sandbox.
        workdir: the working folder; None leaves that to the image.
        grants: how they are applied.
        channel: how commands are run.
        warm: containers of `image` that are kept ready on each host.
        start_timeout_s: for a sandbox, once it is its turn.
        pull_timeout_s: for an image.
        pull: whether images that are missing are pulled.
        resizes: whether the cores of running actions are changed.
    """

    image: str | None
    max_sandboxes: int
    network: str
    user: str | None
    capabilities: tuple[str, ...]
    pids_limit: int
    workdir: str | None
    grants: Grants
    channel: ChannelKind
    warm: int
    start_timeout_s: float
    pull_timeout_s: float
    pull: Pull
    resizes: bool
