"""`LocalPool`: the declaration of a pool on this machine, checked when it is made."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import cast

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.host.machine import read_machine
from arl_tangram.managers.host.owner import default_root
from arl_tangram.managers.local.manager import LocalManager
from arl_tangram.managers.local.site import IsolationChoice
from arl_tangram.managers.manager import CpuManager
from arl_tangram.model.quantities import GIB
from arl_tangram.model.sharing import Share, check_share


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPool:
    """Cores and memory of this machine, for sandboxes that need no Docker and for host bodies.

    A sandbox is a folder with `work` (the working folder), `home` and `tmp` beside each other, and a
    process that starts, reaps and kills its commands. Grants are enforced by own cgroups where this process may have
    some, else by CPU affinity, which a command can undo: advisory. With bwrap installed, commands see the machine's
    files read-only, but for their own folder, have /tmp and process numbers of their own, and share the network.
    That guards against accidents; it is no boundary against hostile code.

    Attributes:
        cores: whole cores; by default all that this process may use (affinity, cpuset and CPU quota of its cgroups).
        memory_gib: memory to share out; by default the limit of this process's cgroups, or all of the machine.
        ignore_image: run trajectories that name an image on the files of this machine, instead of refusing them.
        isolation: `auto` uses bwrap where it works, `bwrap` insists on it, `none` never does.
        root: the folder for sandboxes; by default one per user in the folder for temporary files.
        share: lets running actions in sandboxes share the cores: each grows into those that fall free, shrinks when
            others need them, and may be suspended. `resize` is `policies.size_aware()`, another policy (such as
            `policies.equal_shares()`) decides otherwise; None leaves every action the cores that it started with. It
            needs cgroups: where there are none, nothing is shared, which `describe()` and `report()` say.

    Raises:
        ConfigurationError: cores or memory that there are not, or options that make no sense.
    """

    cores: int | None = None
    memory_gib: float | None = None
    ignore_image: bool = False
    isolation: IsolationChoice = "auto"
    root: str | os.PathLike[str] | None = None
    share: Share = None
    _cores: int = field(init=False, repr=False, compare=False)
    _memory_bytes: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        machine = read_machine()
        object.__setattr__(self, "_cores", _check_cores(self.cores, machine.usable_cores))
        object.__setattr__(self, "_memory_bytes", _check_memory(self.memory_gib, machine.memory_bytes))
        _check_root(self.root)
        if self.isolation not in ("auto", "bwrap", "none"):
            raise ConfigurationError(f"LocalPool(isolation={self.isolation!r}): there are 'auto', 'bwrap' and 'none'")
        check_share(self.share, "LocalPool")

    def manager(self) -> CpuManager:
        """Return a new manager of this pool; it does nothing before its `start`."""
        return LocalManager(
            read_machine(),
            cores=self._cores,
            memory_bytes=self._memory_bytes,
            ignore_image=self.ignore_image,
            isolation=self.isolation,
            root=os.path.realpath(self.root if self.root is not None else default_root()),
            resizes=self.share is not None,
        )


def _check_root(asked: object) -> None:
    if asked is None:
        return
    path: object = os.fspath(cast("os.PathLike[str]", asked)) if isinstance(asked, (str, os.PathLike)) else None
    if not isinstance(path, str) or not path or "\0" in path or path.startswith("~"):
        raise ConfigurationError(f"LocalPool(root={asked!r}): the path of a folder is needed; `~` is not expanded")


def _check_cores(asked: object, usable: int) -> int:
    if asked is None:
        return usable
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise ConfigurationError(
            f"LocalPool(cores={asked!r}): a whole number of at least 1 is needed; {usable} can be used here"
        )
    if asked > usable:
        raise ConfigurationError(
            f"LocalPool(cores={asked}): this process may use {usable} "
            "(by its affinity, and the cpuset and CPU quota of its cgroups)"
        )
    return asked


def _check_memory(asked: object, usable: int) -> int:
    if asked is None:
        return usable
    there_is = f"{usable / GIB:.1f} GiB can be used here"
    if isinstance(asked, bool) or not isinstance(asked, (int, float)) or not math.isfinite(asked) or asked <= 0:
        raise ConfigurationError(f"LocalPool(memory_gib={asked!r}): a positive number is needed; {there_is}")
    size = int(asked * GIB)
    if size > usable:
        raise ConfigurationError(f"LocalPool(memory_gib={asked}): {there_is}")
    return size
