"""What a node tells of itself, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from arl_tangram.managers.docker.answers import EngineInfo
from arl_tangram.managers.docker.declared import ChannelKind
from arl_tangram.managers.docker.probe import Probe
from arl_tangram.model.statistics import LatencyStatistics


def titled(name: str) -> str:
    """Return a name as the beginning of a line; nothing if there is none."""
    return f"{name}: " if name else ""


def host_in_words(name: str, url: str) -> str:
    """Say which node it is, and where its daemon is."""
    quoted = f" {name!r}" if name else ""
    return f"the Docker host{quoted} at {url}"


def daemon_in_words(info: EngineInfo) -> str:
    """Say which daemon it is."""
    kind = "Podman" if info.is_podman else "Docker"
    return f"{kind} {info.version}, cgroup version {info.cgroup_version}"


def probe_in_words(probe: Probe | None) -> str:
    """Say how grants are applied, and why so."""
    if probe is None:
        return "how grants are applied is found out with the first sandbox"
    how = "directly" if probe.is_direct else "through its API"
    return f"grants are applied {how}: {probe.reason}"


def channel_in_words(channel: ChannelKind) -> str:
    """Say how commands are run."""
    return "commands run in shells that stay open" if channel == "session" else "each command has a shell of its own"


def latency_in_words(latencies: Mapping[str, LatencyStatistics]) -> str:
    """Say how long operations took; nothing if there were none."""
    told = [
        f"{operation} {each.count} × {_in_time(each.p50_s)} (99 %: {_in_time(each.p99_s)})"
        + (f", {each.failures} failed" if each.failures else "")
        for operation, each in latencies.items()
        if each.count
    ]
    return "; ".join(told)


def _in_time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.{1 if seconds < 0.01 else 0}f} ms"
