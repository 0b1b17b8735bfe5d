"""Name the places of the package that may block the event loop for a moment, each with its reason.

Everywhere else a blocking call made by arl_tangram on a running loop fails the test (blockbuster).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from blockbuster import blockbuster_ctx


@dataclass(frozen=True, slots=True)
class Exemption:
    """A function of the package that may block the loop, with all that it calls."""

    file: str
    function: str
    reason: str


EXEMPTIONS: tuple[Exemption, ...] = (
    Exemption("doorway.py", "do", "from another loop: what `statistics` and its kin ask is answered in one step"),
    Exemption("integrations/rollouts/here.py", "open_here", "a trainer's constructor waits until its pools are open"),
    Exemption("integrations/rollouts/here.py", "close_here", "the end of a trainer waits until its pools are closed"),
    Exemption("integrations/verl/owning.py", "_off_loop", "between two steps, a trainer waits for what it asks"),
    Exemption("integrations/versions.py", "check", "a worker that is made looks once which trainer is installed"),
    Exemption("managers/host/machine.py", "read_machine", "reads /proc and /sys once per pool; no disk"),
    Exemption("managers/local/pool.py", "manager", "resolves the path of its folder, once, before any action runs"),
    Exemption("managers/host/cgroup.py", "set_cores", "a grant is one write to a cgroup file, about 0.02 ms"),
    Exemption("managers/host/cgroup.py", "set_quota_us", "the same for fractions of a core, and to suspend"),
    Exemption("managers/host/cgroup.py", "set_weight", "the same for what is suspended"),
    Exemption("managers/host/cgroup.py", "effective_cores", "a grant is read back: one file of a cgroup, 0.01 ms"),
    Exemption("managers/host/cgroup.py", "quota_us", "the same"),
    Exemption("managers/host/cgroup.py", "cpu_s", "the usage of a cgroup: one file, 0.01 ms"),
    Exemption("managers/docker/direct_limits.py", "want", "a grant is two writes and two reads of files, 0.05 ms"),
    Exemption("managers/docker/group.py", "find_group", "reads a few files of /proc, once per sandbox: 1 ms"),
    Exemption("managers/docker/group.py", "check_writable", "asks for three permissions, once per daemon"),
    Exemption("managers/docker/group.py", "processes", "what is left of a session: one file of a cgroup, 0.02 ms"),
    Exemption("managers/docker/offer.py", "_online", "one file of /sys, once per daemon"),
    Exemption("managers/docker/available.py", "above", "looks for one file, once per daemon"),
    Exemption("managers/docker/available.py", "read", "one file of a cgroup, 0.01 ms"),
    Exemption("managers/channel.py", "write_all", "copies 64 KiB at most, or arguments, to memory"),
    Exemption("managers/host/owner.py", "new_name", "reads two entries of /proc, once per worker"),
    Exemption("managers/processes/preparation.py", "_folder", "asks for the current folder, once per worker"),
    Exemption("managers/processes/reference.py", "main_is_a_file", "one stat per call of a body in the script itself"),
    Exemption("managers/local/files.py", "resolve", "follows the links of one path: a few lstat calls"),
)


@contextmanager
def no_blocking() -> Iterator[None]:
    """Turn every other blocking call that the package makes on a running loop into an error."""
    with blockbuster_ctx("arl_tangram") as watch:
        for exemption in EXEMPTIONS:
            for call in watch.functions.values():
                call.can_block_in(f"arl_tangram/{exemption.file}", exemption.function)
        yield
