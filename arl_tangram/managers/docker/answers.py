"""What a daemon answers, as values; an answer that makes no sense is an error, never a default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

Kind = Literal["gone", "refused", "failed", "late"]


class DaemonError(Exception):
    """A call to a daemon did not succeed.

    Attributes:
        kind: `gone`: it cannot be reached, or the connection broke; `refused`: it will not (4xx); `failed`: it could
            not, or its answer makes no sense (5xx); `late`: no answer before the deadline.
        status: the status of its answer; 0 without one.
        message: what it said, or what happened.
    """

    def __init__(self, kind: Kind, status: int, message: str) -> None:
        super().__init__(kind, status, message)
        self.kind: Kind = kind
        self.status = status
        self.message = message

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """A daemon and its machine.

    Attributes:
        name: name of its machine.
        ncpu: cores that the daemon counts.
        memory_bytes: memory of the machine.
        cgroup_version: 1 or 2.
        cgroup_driver: `cgroupfs`, `systemd`, or `none` for a rootless daemon that can set no limits.
        live_restore: whether containers outlive the daemon.
        root_dir: where it keeps its files.
        version: version of the daemon.
        is_podman: whether it is Podman that answers as if it were Docker.
        api_version: version of the API that is spoken to it.
        rootless: whether it runs without root.
        limits_time: whether it can limit the CPU time of containers: if not, it ignores what is asked.
        warnings: what it says is missing, such as support for limits.
        clock_s: its clock when it answered, in seconds since 1970.
    """

    name: str
    ncpu: int
    memory_bytes: int
    cgroup_version: int
    cgroup_driver: str
    live_restore: bool
    root_dir: str
    version: str
    is_podman: bool
    api_version: str
    rootless: bool
    limits_time: bool
    warnings: tuple[str, ...]
    clock_s: float


@dataclass(frozen=True, slots=True)
class EngineVersion:
    """Which daemon it is, and which versions of its API it speaks.

    Attributes:
        version: version of the daemon.
        api: newest version of the API, as two numbers.
        least_api: oldest version of the API.
        podman: version of Podman's own API, for routes that Docker's lacks; None if it is Docker.
    """

    version: str
    api: tuple[int, int]
    least_api: tuple[int, int]
    podman: str | None


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What an image says about how its containers run.

    Attributes:
        env: variables.
        workdir: working folder, or "".
        user: user, or "".
    """

    env: Mapping[str, str]
    workdir: str
    user: str


@dataclass(frozen=True, slots=True)
class ContainerState:
    """How a container is.

    Attributes:
        running: whether it runs; also while it is paused.
        pid: number of its first process on its machine; 0 if it does not run.
        exit_code: with what it ended last; 0 while it runs.
        oom_killed: whether the kernel killed something in it for lack of memory.
        error: why it could not be started, or "".
        ended_s: when it ended last, by the daemon's clock, in seconds since 1970; 0 if it never did.
    """

    running: bool
    pid: int
    exit_code: int
    oom_killed: bool
    error: str
    ended_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Listed:
    """A container in a list.

    Attributes:
        id: its id.
        labels: its labels.
        state: `created`, `running`, `paused`, `restarting`, `removing`, `exited` or `dead`.
        created_s: when it was created, by the daemon's clock, in seconds since 1970.
    """

    id: str
    labels: Mapping[str, str]
    state: str
    created_s: int


@dataclass(frozen=True, slots=True)
class ExecState:
    """How a process that was started in a container is.

    Attributes:
        running: whether it runs, or has not begun yet.
        exit_code: with what it ended; None before.
        pid: its number on the daemon's machine; 0 before it has begun.
    """

    running: bool
    exit_code: int | None
    pid: int


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """What happened to a container.

    Attributes:
        id: its id.
        action: `start`, `die`, `oom`, `exec_die`, `destroy` and the like.
        exit_code: of `die` and `exec_die`; None for others.
        at_ns: when, by the daemon's clock, in nanoseconds since 1970.
    """

    id: str
    action: str
    exit_code: int | None
    at_ns: int


NEVER = "0001-01-01T00:00:00Z"  # as Docker says when a container ended that has not

# Podman's words for the same events.
_ACTIONS = {"died": "die", "exec_died": "exec_die", "remove": "destroy"}


def read_version(answer: object) -> EngineVersion:
    """Read the answer to `/version`."""
    podman = None
    for component in items(answer, "Components"):
        if text(component, "Name", "").startswith("Podman"):
            details = mapping(component, "Details")
            podman = text(details, "APIVersion", "") or text(component, "Version")
    api = version_pair(text(answer, "ApiVersion"))
    least = text(answer, "MinAPIVersion", "")
    return EngineVersion(text(answer, "Version", "?"), api, version_pair(least) if least else api, podman)


def read_info(answer: object, version: EngineVersion, api_version: str) -> EngineInfo:
    """Read the answer to `/info`."""
    return EngineInfo(
        name=text(answer, "Name", ""),
        ncpu=number(answer, "NCPU"),
        memory_bytes=number(answer, "MemTotal"),
        cgroup_version=int(text(answer, "CgroupVersion", "1")),
        cgroup_driver=text(answer, "CgroupDriver", ""),
        live_restore=flag(answer, "LiveRestoreEnabled"),
        root_dir=text(answer, "DockerRootDir", ""),
        version=text(answer, "ServerVersion", version.version),
        is_podman=version.podman is not None,
        api_version=api_version,
        rootless=any("rootless" in str(option) for option in items(answer, "SecurityOptions")),
        limits_time=text(answer, "CgroupDriver", "") != "none" and _get(answer, "CpuCfsQuota") is not False,
        warnings=tuple(str(warning) for warning in items(answer, "Warnings")),
        clock_s=datetime.fromisoformat(text(answer, "SystemTime")).timestamp(),
    )


def read_image(answer: object) -> ImageConfig:
    """Read the answer to `/images/NAME/json`."""
    config = mapping(answer, "Config")
    pairs = (str(entry).partition("=") for entry in items(config, "Env"))
    env = {name: value for name, _, value in pairs}
    return ImageConfig(env, text(config, "WorkingDir", ""), text(config, "User", ""))


def read_state(answer: object) -> ContainerState:
    """Read the answer to `/containers/ID/json`."""
    state = mapping(answer, "State", required=True)
    return ContainerState(
        running=flag(state, "Running", required=True),
        pid=number(state, "Pid", 0),
        exit_code=number(state, "ExitCode", 0),
        oom_killed=flag(state, "OOMKilled"),
        error=text(state, "Error", ""),
        ended_s=max(0.0, datetime.fromisoformat(text(state, "FinishedAt", "") or NEVER).timestamp()),
    )


def read_list(answer: object) -> list[Listed]:
    """Read the answer to `/containers/json`."""
    if not isinstance(answer, list):
        raise ValueError(f"a list of containers was expected, not {answer!r:.100}")
    return [
        Listed(
            text(entry, "Id"),
            {str(name): str(value) for name, value in mapping(entry, "Labels").items()},
            text(entry, "State", ""),
            number(entry, "Created", 0),
        )
        for entry in cast("list[object]", answer)
    ]


def read_exec(answer: object) -> ExecState:
    """Read the answer to `/exec/ID/json`; while it runs, Podman tells 0 as its exit code."""
    pid, running = number(answer, "Pid", 0), flag(answer, "Running", required=True)
    code = None if running or _get(answer, "ExitCode") is None else number(answer, "ExitCode")
    return ExecState(running or code is None, code, pid)


def read_event(answer: object) -> ContainerEvent | None:
    """Read one event; None if it is not one of a container."""
    if text(answer, "Type", "container") != "container":
        return None
    actor = mapping(answer, "Actor")
    attributes = mapping(actor, "Attributes")
    action = text(answer, "Action", "") or text(answer, "status", "")
    action = action.partition(":")[0]  # exec_create and exec_start carry the command line behind it
    code = str(attributes.get("exitCode", attributes.get("containerExitCode", "")))
    return ContainerEvent(
        id=text(actor, "ID", "") or text(answer, "id"),
        action=_ACTIONS.get(action, action),
        exit_code=int(code) if code.lstrip("-").isdigit() else None,
        at_ns=number(answer, "timeNano", 0) or number(answer, "time", 0) * 1_000_000_000,
    )


def version_pair(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def text(answer: object, key: str, default: str | None = None) -> str:
    """Return a text; null and, with a default, a missing one are the default."""
    value = _get(answer, key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise ValueError(f"{key} should be a text, not {value!r:.100}")
    return value


def number(answer: object, key: str, default: int | None = None) -> int:
    """Return a whole number."""
    value = _get(answer, key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{key} should be a whole number, not {value!r:.100}")
    return value


def flag(answer: object, key: str, *, required: bool = False) -> bool:
    """Return a truth value; unless it is required, a missing one is false."""
    value = _get(answer, key)
    if not isinstance(value, bool) and (required or value is not None):
        raise ValueError(f"{key} should be true or false, not {value!r:.100}")
    return bool(value)


def mapping(answer: object, key: str, *, required: bool = False) -> Mapping[str, object]:
    """Return an object; unless it is required, a missing one is empty."""
    value = _get(answer, key)
    if value is None and not required:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{key} should be an object, not {value!r:.100}")
    return cast("dict[str, object]", value)


def items(answer: object, key: str) -> list[object]:
    """Return a list; a missing one is empty."""
    value = _get(answer, key)
    if value is not None and not isinstance(value, list):
        raise ValueError(f"{key} should be a list, not {value!r:.100}")
    return cast("list[object]", value or [])


def _get(answer: object, key: str) -> object:
    if not isinstance(answer, Mapping):
        raise ValueError(f"an object with {key} was expected, not {answer!r:.100}")
    return cast("Mapping[str, object]", answer).get(key)
