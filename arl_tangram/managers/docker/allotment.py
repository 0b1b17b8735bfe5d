"""What a container may use at one time: cores and CPU time; compared with what is in effect, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from arl_tangram.errors import AllocationError
from arl_tangram.managers.cores import Placement
from arl_tangram.managers.host.cgroup import PERIOD_US, SUSPENDED_QUOTA_US, cpulist, parse_quota, quota_us_of
from arl_tangram.managers.host.machine import parse_cpulist

IDLE_QUOTA_US = 10_000  # of 100,000: an exec takes 0.2 s, a command in a session nothing more
SUSPENDED: Final = "suspended"

# What a container shall have: the cores of a grant; next to no time; or, for None, the little of an idle one.
Wish: TypeAlias = Placement | Literal["suspended"] | None

# Built-ins only: an image need not have `cat`. Version 1 shows the container's own group; version 2 does so in a
# cgroup namespace of its own, which is the default there, else its files are not found.
LOOK_INSIDE = """\
while read -r key value; do [ "$key" = Cpus_allowed_list: ] && echo "cores $value"; done </proc/self/status
for file in /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us; do
  [ -r "$file" ] && read -r quota <"$file" && echo "quota $quota" && break
done
:
"""


@dataclass(frozen=True, slots=True)
class Allotment:
    """Limits of one container.

    Attributes:
        core_ids: the host's numbers of its cores, ascending; none if it stays on those that it has.
        quota_us: CPU time in each `PERIOD_US`; None without a limit.
        comes_last: whether others go first on these cores.
    """

    core_ids: tuple[int, ...]
    quota_us: int | None
    comes_last: bool = False

    def __str__(self) -> str:
        if self.comes_last:
            return "next to no time" if self.quota_us == SUSPENDED_QUOTA_US else "more than that"
        if self.quota_us is None or self.quota_us >= len(self.core_ids) * PERIOD_US:
            return in_cores(len(self.core_ids), self.core_ids)
        return in_cores(self.quota_us / PERIOD_US, self.core_ids)


def allotment_of(wish: Wish, idle_cores: Sequence[int]) -> Allotment:
    """Return what a wish is in a container: one that is idle is on all these cores, one that is suspended where it was.

    So what looks at its cores while it is suspended sees as many as were granted.
    """
    if wish is None:
        return Allotment(tuple(idle_cores), IDLE_QUOTA_US)
    if not isinstance(wish, Placement):
        return Allotment((), SUSPENDED_QUOTA_US, comes_last=True)
    if wish.is_whole:
        return Allotment(wish.core_ids, None)
    return Allotment(wish.core_ids, quota_us_of(wish.milli_cores))


def check_in_effect(wanted: Allotment, found: Allotment) -> None:
    """Compare.

    Raises:
        AllocationError: they differ.
    """
    if wanted != found:
        raise AllocationError(f"wanted {wanted}, but {found} {'is' if _amount(found) == 1 else 'are'} in effect")


def check_seen_inside(wanted: Allotment, told: bytes) -> None:
    """Compare with what the container told about itself by `LOOK_INSIDE`; an unknown quota counts as right.

    Raises:
        AllocationError: they differ, or it told nothing.
    """
    words = dict(line.split(" ", 1) for line in told.decode(errors="replace").splitlines() if " " in line)
    if "cores" not in words:
        raise AllocationError(f"wanted {wanted}, but the container does not tell what is in effect")
    quota = parse_quota(words["quota"]) if "quota" in words else wanted.quota_us
    check_in_effect(wanted, Allotment(parse_cpulist(words["cores"]), quota))


def in_cores(amount: float, core_ids: Sequence[int]) -> str:
    """Say how many cores, and which."""
    return f"{amount:.3g} {'core' if amount == 1 else 'cores'} ({cpulist(core_ids) or 'none'})"


def _amount(setting: Allotment) -> float:
    if setting.comes_last:
        return 1  # no number
    quota = len(setting.core_ids) if setting.quota_us is None else setting.quota_us / PERIOD_US
    return min(len(setting.core_ids), quota)
