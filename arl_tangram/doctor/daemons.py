"""Look at Docker and Podman: which daemon is there, how grants would be applied, and whose containers it has."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio.to_thread

from arl_tangram.doctor.findings import Finding, Leftover
from arl_tangram.errors import ConfigurationError, MissingExtraError
from arl_tangram.managers.docker.answers import DaemonError, EngineInfo, Listed
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.group import NEEDED, NoGroupError, check_writable, find_group
from arl_tangram.managers.docker.labels import OWNER, SANDBOX, find_left, remove_left
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.managers.docker.location import sockets
from arl_tangram.managers.docker.probe import is_this_machine
from arl_tangram.managers.host.hierarchy import read_hierarchies

ANSWER_LIMIT_S = 10.0
_LOOK = "look at the daemon's own log"
TRIED_CONTAINERS = 5


@dataclass(frozen=True, slots=True)
class Grants:
    """How limits of containers would be changed.

    Attributes:
        is_direct: whether this process would write cgroup files.
        reason: why, or why not.
    """

    is_direct: bool
    reason: str


async def look(url: str | None) -> tuple[list[Finding], list[Leftover]]:
    """Ask the daemon at a URL, or all that can be found here; return also what dead owners have left with them."""
    findings: list[Finding] = []
    leftovers: list[Leftover] = []
    if url is not None:
        finding, left = await _ask("docker", url)
        return [finding], left
    docker = await _ask("docker", None)
    podman_url = await anyio.to_thread.run_sync(_podman_url)
    for finding, left in [docker, *([await _ask("podman", podman_url)] if podman_url else [])]:
        if finding.subject not in {each.subject for each in findings}:  # Docker's own tools may have been led to Podman
            findings.append(finding)
            leftovers += left
    if podman_url is None and not any(finding.subject == "podman" for finding in findings):
        findings.append(await anyio.to_thread.run_sync(_no_podman))
    return findings, leftovers


async def remove(leftovers: Sequence[Leftover]) -> dict[str, str]:
    """Remove containers that `look` has found, after another look; return the errors by id.

    One that somebody has given a new life meanwhile is left alone.
    """
    errors: dict[str, str] = {}
    for url in dict.fromkeys(leftover.place for leftover in leftovers):
        wanted = {leftover.name for leftover in leftovers if leftover.place == url}
        try:
            async with _opened(url) as (engine, _):
                still = {container.id: container for container in await find_left(engine)}
                for container_id in wanted & still.keys():
                    try:
                        await remove_left(engine, still[container_id])
                    except DaemonError as error:
                        errors[container_id] = str(error)
                now = {container.id for container in await engine.list({OWNER: ""})}
                errors |= dict.fromkeys((wanted & now) - errors.keys(), "it is still there")
        except (ConfigurationError, DaemonError) as error:
            errors |= dict.fromkeys(wanted, str(error))
    return errors


def judge(url: str, info: EngineInfo, grants: Grants) -> Finding:
    """Say what a daemon is good for."""
    name = "podman" if info.is_podman else "docker"
    driver = f"cgroup version {info.cgroup_version} ({info.cgroup_driver or 'driver unknown'})"
    rootless = ", rootless" if info.rootless else ""
    keeps = ", containers outlive the daemon" if info.live_restore else ""
    warns = "".join(f", it warns: {warning.removeprefix('WARNING: ')}" for warning in info.warnings)
    text = f"{'Podman' if info.is_podman else 'Docker'} {info.version} at {url}{rootless}, {driver}{keeps}{warns}; "
    if info.cgroup_driver == "none":
        advice = "delegate cgroups to this user's systemd, or run the daemon as root"
        return Finding(name, "wrong", f"{text}it can limit nothing, so grants cannot be enforced", advice)
    if grants.is_direct:
        return Finding(name, "ok", f"{text}grants would be written to cgroup files: {grants.reason}")
    advice = "" if os.geteuid() == 0 else "run as root on the daemon's machine to make a grant about 1000 times cheaper"
    return Finding(name, "ok", f"{text}grants would go through the daemon: {grants.reason}", advice)


async def _ask(subject: str, url: str | None) -> tuple[Finding, list[Leftover]]:
    try:
        async with _opened(url) as (engine, info):
            grants = await _grants(engine, info)
            left = [_leftover(container, engine.url) for container in await find_left(engine)]
            return judge(engine.url, info, grants), left
    except MissingExtraError as error:
        return Finding(subject, "wrong", str(error)), []
    except ConfigurationError as error:
        is_absent = url is None and str(error).startswith("no Docker daemon was found")
        return Finding(subject, "absent" if is_absent else "wrong", str(error)), []
    except DaemonError as error:
        where = url or "its usual place"
        return Finding(subject, "wrong", f"the daemon at {where} does not do as it is asked: {error}", _LOOK), []


@asynccontextmanager
async def _opened(url: str | None) -> AsyncGenerator[tuple[Engine, EngineInfo]]:
    engine = Engine(url, LatencyMeter())
    try:
        yield engine, await engine.open(timeout_s=ANSWER_LIMIT_S)
    finally:
        await engine.aclose()


async def _grants(engine: Engine, info: EngineInfo) -> Grants:
    """Find out as a `DockerPool` would, but without a container of its own: on one that runs, if there is one."""
    if engine.socket is None:
        return Grants(False, "it is not reached through a socket of this machine")
    if not is_this_machine(engine.url, info):
        return Grants(False, f"it is {info.name}'s, and this is {os.uname().nodename}")
    for container in (await engine.list({}, all=False))[:TRIED_CONTAINERS]:
        try:
            state = await engine.inspect(container.id)
        except DaemonError as error:
            if error.status == 404:
                continue  # it ended meanwhile
            raise
        if state.running:
            return await anyio.to_thread.run_sync(partial(try_group, container.id, state.pid))
    return await anyio.to_thread.run_sync(foresee)


def try_group(container_id: str, pid: int, root: Path = Path("/")) -> Grants:
    """Look whether the limits of a container could be written; changes nothing. Blocks."""
    try:
        group = find_group(container_id, pid, root)
        check_writable(group)
    except NoGroupError as error:
        return Grants(False, str(error))
    return Grants(True, f"this process may write those of container {container_id[:12]}, of version {group.version}")


def foresee(root: Path = Path("/")) -> Grants:
    """Guess from the mounts, where no container runs. Blocks."""
    hierarchies = read_hierarchies(root)
    missing = [name for name in NEEDED if name not in hierarchies]
    if missing:
        return Grants(False, f"no cgroup controller {' and '.join(missing)} is mounted here")
    for name in NEEDED:
        if not os.access(hierarchies[name].mount, os.W_OK):
            return Grants(False, f"this process may not write below {hierarchies[name].mount}")
    version = hierarchies["cpu"].version
    return Grants(True, f"this process may write cgroups of version {version}; the first sandbox will tell for sure")


def _leftover(container: Listed, url: str) -> Leftover:
    sandbox = container.labels.get(SANDBOX) or "?"
    owner = container.labels.get(OWNER) or "?"
    return Leftover("container", container.id, f"sandbox {sandbox} of owner {owner}, {container.state}", url)


def _podman_url() -> str | None:
    found = [path for path in sockets(os.environ) if "podman" in path and os.path.exists(path)]
    return f"unix://{found[0]}" if found else None


def _no_podman() -> Finding:
    if shutil.which("podman") is None:
        return Finding("podman", "absent", "not installed, which is no loss where Docker works")
    advice = "systemctl --user start podman.socket (or: podman system service --time=0)"
    return Finding("podman", "absent", "it is installed, and offers no socket", advice)
