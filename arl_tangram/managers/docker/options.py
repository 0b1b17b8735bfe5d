"""Checks the values of a `DockerPool` and its hosts; every message says what was asked and what there is. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar, cast, get_args

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.docker.declared import HostSettings
from arl_tangram.managers.manager import counted
from arl_tangram.model.quantities import bytes_of_gib, seconds, whole

LEAST_MEMORY_BYTES = 16 << 20  # a sandbox's shells and guard need half of that; Docker takes no less than 6 MB
LEAST_PIDS = 32  # a sandbox at rest has about ten processes of ours
SCHEMES = ("unix://", "tcp://", "http://", "https://", "ssh://")
CAPABILITIES = frozenset({
    "ALL", "AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE", "CHOWN",
    "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE",
    "LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE", "MKNOD", "NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST",
    "NET_RAW", "PERFMON", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYSLOG", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT",
    "SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG",
    "WAKE_ALARM",
})  # fmt: skip

_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]*")

C = TypeVar("C", bound=str)


def host(owner: str, *, name: str, url: object, cores: object, memory_gib: object, core_ids: object) -> HostSettings:
    """Return the settings of a host whose `core_ids` were checked before."""
    return HostSettings(
        name=name,
        url=_url(url, owner),
        cores=None if cores is None else whole(cores, f"{owner}(cores=)", ConfigurationError, least=1),
        memory_bytes=None if memory_gib is None else _memory(memory_gib, owner),
        core_ids=cast("tuple[int, ...] | None", core_ids),
    )


def core_ids(asked: object, cores: object, owner: str) -> tuple[int, ...] | None:
    """Return numbers of cores, ascending: at least as many as there shall be cores."""
    if asked is None:
        return None
    numbers = list(cast("Sequence[object]", asked)) if _is_list(asked) or isinstance(asked, range) else [None]
    if not numbers or any(type(number) is not int or number < 0 for number in numbers):
        raise ConfigurationError(f"{owner}(core_ids={asked!r}): numbers of cores from 0 are needed")
    found = tuple(sorted(cast("list[int]", numbers)))
    if len(set(found)) < len(found):
        raise ConfigurationError(f"{owner}(core_ids={asked!r}): a core is named twice")
    if isinstance(cores, int) and cores > len(found):
        raise ConfigurationError(f"{owner}(cores={cores}, core_ids={asked!r}): these are {counted(len(found), 'core')}")
    return found


def node_name(asked: object) -> str:
    """Return the name of a host, which becomes part of the names of its dimensions."""
    if not isinstance(asked, str) or not _NODE_NAME.fullmatch(asked):
        raise ConfigurationError(f"DockerHost(name={asked!r}): letters, digits, '-', '_' and '.' make a name")
    return asked


def check_distinct(what: str, values: Sequence[str]) -> None:
    """Raise unless no two hosts have the same."""
    for value, times in Counter(values).items():
        if times > 1:
            said = repr(value) if value else "no url, so the same daemon"
            raise ConfigurationError(f"DockerPool(hosts=…): {times} hosts have the same {what}: {said}")


def image(asked: object, where: str) -> str:
    """Return the name of an image."""
    if not isinstance(asked, str) or not _IMAGE.fullmatch(asked):
        raise ConfigurationError(f"{where}{asked!r}): the name of an image is needed, such as 'python:3.12-slim'")
    return asked


def count(asked: object, what: str, *, least: int = 1) -> int:
    """Return how many of something there may be."""
    return whole(asked, f"DockerPool({what}=)", ConfigurationError, least=least, most=1 << 22)


def network(asked: object) -> str:
    """Return the name of a network."""
    if not isinstance(asked, str) or not _NETWORK.fullmatch(asked):
        raise ConfigurationError(
            f"DockerPool(network={asked!r}): 'none', 'bridge' or the name of a Docker network is needed"
        )
    return asked


def user(asked: object) -> str | None:
    """Return who runs the commands."""
    if asked is not None and (not isinstance(asked, str) or not _USER.fullmatch(asked)):
        raise ConfigurationError(f"DockerPool(user={asked!r}): 'name', '1000' or '1000:1000' is needed")
    return asked


def capabilities(asked: object) -> tuple[str, ...]:
    """Return the names of capabilities, in capitals and without `CAP_`."""
    if not _is_list(asked):
        example = asked if isinstance(asked, str) and asked else "NET_RAW"
        raise ConfigurationError(
            f"DockerPool(capabilities={asked!r}): a list is needed: capabilities={[example]!r}, or () for none"
        )
    names = list(cast("Sequence[object]", asked))
    found = [name.upper().removeprefix("CAP_") if isinstance(name, str) else "" for name in names]
    for name, known in zip(names, found, strict=True):
        if known not in CAPABILITIES:
            raise ConfigurationError(
                f"DockerPool(capabilities={asked!r}): names such as 'NET_RAW' are needed, and {name!r} is "
                f"none of {', '.join(sorted(CAPABILITIES))}"
            )
    return tuple(dict.fromkeys(found))


def workdir(asked: object) -> str | None:
    """Return the working folder: an absolute path below the root."""
    if asked is None:
        return None
    parts = asked.split("/")[1:] if isinstance(asked, str) and asked.startswith("/") else []
    if not any(parts) or ".." in parts or "\0" in str(asked):
        raise ConfigurationError(f"DockerPool(workdir={asked!r}): an absolute path below '/' is needed")
    return "/" + "/".join(part for part in parts if part not in ("", "."))


def choice(asked: C, what: str, kinds: Any) -> C:
    """Return one of the values of a `Literal`."""
    known = get_args(kinds)
    if asked not in known:
        words = " and ".join(map(repr, known)) if len(known) == 2 else f"{known[0]!r}, {known[1]!r} and {known[2]!r}"
        raise ConfigurationError(f"DockerPool({what}={asked!r}): there are {words}")
    return asked


def warm(asked: object, of_image: str | None, most: int) -> int:
    """Return how many containers are kept ready."""
    number = count(asked, "warm", least=0)
    if number and of_image is None:
        raise ConfigurationError(f"DockerPool(warm={number}): which image? DockerPool(image=…) is missing")
    if number > most:
        raise ConfigurationError(f"DockerPool(warm={number}): max_sandboxes={most} are all that there can be")
    return number


def limit_s(asked: object, what: str) -> float:
    """Return a time limit."""
    return seconds(asked, f"DockerPool({what}=)", ConfigurationError)


def _url(asked: object, owner: str) -> str | None:
    if asked is None:
        return None
    text = asked if isinstance(asked, str) else ""
    scheme = next((scheme for scheme in SCHEMES if text.startswith(scheme)), "")
    rest = text.removeprefix(scheme)
    if not scheme and text.startswith("/"):
        raise ConfigurationError(f"{owner}(url={asked!r}): did you mean 'unix://{text}'?")
    if not scheme or not rest or any(c.isspace() or c == "\0" for c in text):
        raise ConfigurationError(f"{owner}(url={asked!r}): {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]} is needed")
    if scheme == "unix://" and not rest.startswith("/"):
        raise ConfigurationError(f"{owner}(url={asked!r}): the path of the socket must be absolute, as in unix:///…")
    return text


def _memory(asked: object, owner: str) -> int:
    size = bytes_of_gib(asked, f"{owner}(memory_gib=)", ConfigurationError)
    if size == 0:
        raise ConfigurationError(f"{owner}(memory_gib={asked!r}): GiB above 0 are needed")
    return size


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))
