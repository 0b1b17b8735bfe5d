"""Who owns what is created here, and the removal of what dead owners have left behind."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.environment import SANDBOX_VARIABLE
from arl_tangram.managers.host.cgroup import kill_group, lift_limits, remove_group
from arl_tangram.managers.host.hierarchy import Hierarchy
from arl_tangram.managers.host.trees import remove_tree

CGROUP_PREFIX = "arl_tangram-"
KILL_LIMIT_S = 2.0

_NAME = re.compile(r"(?P<namespace>[0-9]+)-(?P<pid>[0-9]+)-(?P<started>[0-9]+)-[0-9a-f]+")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Owner:
    """One manager of one process; its name tells whether the process lives.

    Attributes:
        name: PID namespace, process number, start time of the process in clock ticks since boot, and a random part.
        folder: where its sandboxes are.
    """

    name: str
    folder: str


def default_root() -> str:
    """Return the folder for sandboxes of this user."""
    return os.path.join(tempfile.gettempdir(), f"arl_tangram-{os.getuid()}")


def make_root(root: str) -> bool:
    """Create the folder for sandboxes if there is none; return whether it was created.

    Raises:
        ConfigurationError: it cannot be created, is a link or somebody else's.
    """
    made = not os.path.lexists(root)
    try:
        os.makedirs(root, mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"the folder for sandboxes, {root}, cannot be created: {error}") from error
    if os.path.islink(root) or os.lstat(root).st_uid != os.getuid():
        raise ConfigurationError(f"the folder for sandboxes, {root}, is a link or not of user {os.getuid()}")
    return made


def claim(root: str) -> Owner:
    """Become an owner: create its folder, and the root if need be.

    Raises:
        ConfigurationError: the root is somebody else's.
    """
    unnamed = _unnamed_folder(root)
    # Filled before it gets its name: a folder with a valid name always tells its boot.
    told = {"pid": os.getpid(), "started": started(os.getpid()), "boot": _boot()}
    Path(unnamed, "owner.json").write_text(json.dumps(told))
    name = new_name()
    folder = os.path.join(root, name)
    os.rename(unnamed, folder)
    return Owner(name, folder)


def new_name() -> str:
    """Return a new name for an owner in this process."""
    return f"{_namespace()}-{os.getpid()}-{started(os.getpid())}-{secrets.token_hex(3)}"


def _unnamed_folder(root: str) -> str:
    """Create a folder in the root; the last owner of another process may remove the root at any moment."""
    while True:
        make_root(root)
        with contextlib.suppress(FileNotFoundError):
            return tempfile.mkdtemp(prefix=".claim-", dir=root)


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What dead owners have left on this machine.

    Attributes:
        groups: their cgroups, with the version of each.
        processes: processes of their sandboxes and workers by number, with the sandbox of each.
        folders: their folders.
    """

    groups: Mapping[Path, int]
    processes: Mapping[int, str]
    folders: Sequence[Path]


def left_behind(root: str, hierarchies: Mapping[str, Hierarchy]) -> LeftBehind:
    """Find what dead owners have left, and change nothing; blocks."""
    return LeftBehind(dict(_dead_groups(hierarchies)), _marked(_is_dead_sandbox), list(_dead_folders(root)))


def sweep(root: str, hierarchies: Mapping[str, Hierarchy]) -> int:
    """Remove the cgroups, processes and folders of dead owners; blocks. Return how many had left some."""
    dead: set[str] = set()
    for folder, version in _dead_groups(hierarchies):
        dead.add(folder.name.removeprefix(CGROUP_PREFIX))
        remove_cgroups(version, folder)
    dead |= kill_marked(_is_dead_sandbox)
    for folder in _dead_folders(root):
        dead.add(folder.name)
        try:
            remove_tree(str(folder))
        except OSError as error:  # one bad folder must not keep every later run from starting
            _logger.warning("%s, left behind by a run that was killed, cannot be removed: %s", folder, error)
    return len(dead)


def _dead_groups(hierarchies: Mapping[str, Hierarchy]) -> Iterator[tuple[Path, int]]:
    for hierarchy in hierarchies.values():
        for parent in list(hierarchy.up())[:2]:
            for folder in _listed(parent):
                if folder.name.startswith(CGROUP_PREFIX) and is_dead(folder.name.removeprefix(CGROUP_PREFIX)):
                    yield folder, hierarchy.version


def _dead_folders(root: str) -> Iterator[Path]:
    for folder in _listed(Path(root)):
        if is_dead(folder.name, _boot_of(folder)) or _is_stale_claim(folder):
            yield folder


def _is_dead_sandbox(sandbox: str) -> bool:
    return is_dead(sandbox.partition(".")[0])


def is_dead(name: str, boot: str | None = None) -> bool:
    """Whether this is the name of an owner whose process is gone; when in doubt, it is not."""
    matched = _NAME.fullmatch(name)
    if matched is None:
        return False
    if boot is not None and boot != _boot():
        return True
    if matched["namespace"] != str(_namespace()):
        return False  # another container's: its processes cannot be seen from here
    return started(int(matched["pid"])) != int(matched["started"])


def kill_marked(is_victim: Callable[[str], bool]) -> set[str]:
    """Kill all processes of some sandboxes, and their sessions; return the owners found. Blocks, for up to 2 s."""
    deadline = time.monotonic() + KILL_LIMIT_S
    owners: set[str] = set()
    while True:
        found = _marked(is_victim)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        owners.update(sandbox.partition(".")[0] for sandbox in found.values())
        if not found or time.monotonic() > deadline:
            return owners
        time.sleep(0.005)


def remove_cgroups(version: int, folder: Path) -> None:
    """Kill what is in a cgroup and below it, and remove them; blocks."""
    for child in _listed(folder):
        remove_cgroups(version, child)
    lift_limits(version, folder)  # what is suspended would take long to die
    kill_group(version, [folder])
    remove_group(folder)


def _marked(is_victim: Callable[[str], bool]) -> dict[int, str]:
    """Return the processes by number whose environment names such a sandbox, or whose session leader's did."""
    mark = SANDBOX_VARIABLE.encode() + b"="
    found: dict[int, str] = {}
    sessions: dict[int, str] = {}
    others: list[tuple[int, int]] = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if pid == os.getpid():
            continue
        session, state = _session_and_state(pid)
        if state in ("Z", "X", ""):
            continue
        sandbox = ""
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if entry.startswith(mark):
                    sandbox = entry[len(mark) :].decode(errors="replace")
        if sandbox and is_victim(sandbox):
            found[pid] = sandbox
            sessions[session] = sandbox
        else:
            others.append((pid, session))
    own_session = os.getsid(0)
    found.update({pid: sessions[session] for pid, session in others if session in sessions and session != own_session})
    return found


def _session_and_state(pid: int) -> tuple[int, str]:
    fields = _stat(pid)
    return (int(fields[3]), fields[0]) if fields else (0, "")


def started(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot; -1 if it is gone or a zombie."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in ("Z", "X") else -1


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat from the state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _boot_of(folder: Path) -> str | None:
    try:
        boot = json.loads((folder / "owner.json").read_text())["boot"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return boot if isinstance(boot, str) else None


def _is_stale_claim(folder: Path) -> bool:
    """Whether a claim was broken off: such a folder lives for an instant, so an hour is far more than enough."""
    with contextlib.suppress(OSError):
        return folder.name.startswith(".claim-") and time.time() - folder.stat().st_mtime > 3600
    return False


def _listed(folder: Path) -> Iterable[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []
