"""Look at Ray: whether processes and machines can share a runtime, and which ones there are. Blocks."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from arl_tangram.doctor.findings import Finding
from arl_tangram.doctor.installed import version_of

CONNECT_LIMIT_S = 1.0
JOIN_LIMIT_S = 30.0
LEAST_VERSION = (2, 40)

_EXTRA = "pip install 'arl-tangram[ray]'"


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a process that has joined a cluster saw.

    Attributes:
        machines: how many are alive.
        shared: the names of the shared runtimes, and the jobs that have opened them.
        error: why it could not join; empty if it has.
    """

    machines: int = 0
    shared: tuple[tuple[str, str], ...] = ()
    error: str = ""


def join(address: str) -> Cluster:
    """Join a cluster in a process of its own, as joining prints, starts threads, and may not end."""
    words = [sys.executable, "-m", "arl_tangram.doctor.ray_cluster", address]
    try:
        done = subprocess.run(
            words, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=JOIN_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Cluster(error=f"it was not joined within {JOIN_LIMIT_S:g} s")
    try:
        told = cast("dict[str, Any]", json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        return Cluster(error=f"the process that tried has ended with exit code {done.returncode}: {last[0]}")
    return Cluster(told["machines"], tuple((name, job) for name, job in told["shared"]), told["error"])


def look(root: Path = Path("/"), *, join: Callable[[str], Cluster] = join) -> Finding:
    """Tell whether Ray is installed, and of the cluster that a program of this user would join.

    Args:
        root: stands before the paths.
        join: joins a cluster.
    """
    version = version_of("ray")
    if version is None:
        return Finding("ray", "absent", "not installed: processes and machines cannot share a runtime", _EXTRA)
    if _numbers(version) < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        return Finding("ray", "limited", f"{version}, and a shared runtime needs {least} or newer", _EXTRA)
    address = os.environ.get("RAY_ADDRESS", "") or _text(root / "tmp/ray/ray_current_cluster")
    if not address or address in ("auto", "local"):
        return Finding("ray", "ok", f"{version}; no cluster runs here")
    if address.startswith("ray://"):
        advice = "run the program on a machine of the cluster, such as with `ray job submit`"
        return Finding("ray", "limited", f"{version}; {address} is a Ray Client, which cannot share a runtime", advice)
    if not _answers(address):
        return Finding("ray", "ok", f"{version}; there was a cluster at {address}, which does not answer")
    return judge(version, address, join(address))


def judge(version: str, address: str, cluster: Cluster) -> Finding:
    """Say what a cluster that answers is good for."""
    if cluster.error:
        text = f"{version}; a cluster runs at {address}, which this Python cannot join: {cluster.error}"
        return Finding("ray", "wrong", text, "use the versions of Python and Ray that the cluster has")
    machines = f"{cluster.machines} machine" + ("" if cluster.machines == 1 else "s")
    shared = ", ".join(f"{name!r} of job {job}" for name, job in cluster.shared) or "none"
    return Finding("ray", "ok", f"{version}; a cluster runs at {address}, of {machines}; shared runtimes: {shared}")


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host or "127.0.0.1", int(port)), CONNECT_LIMIT_S):
            return True
    except (OSError, ValueError):
        return False


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
