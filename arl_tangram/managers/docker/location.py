"""Where a daemon listens: what was given, or what Docker's own tools would take."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from arl_tangram.errors import ConfigurationError

TCP_PORT = 2375
TLS_PORT = 2376


@dataclass(frozen=True, slots=True)
class Location:
    """A daemon's address.

    Attributes:
        url: as it was given or found, for messages; with the port that is meant, if it names none.
        base: what stands before the paths of requests.
        socket: path of its socket on this machine; None if it is reached otherwise.
        is_ssh: whether it is reached through ssh.
        tls: how to check it and to prove who asks; None without TLS.
    """

    url: str
    base: str
    socket: str | None = None
    is_ssh: bool = False
    tls: ssl.SSLContext | None = None


def sockets(environ: Mapping[str, str]) -> list[str]:
    """Return where a daemon of this machine may listen, Docker's places before Podman's."""
    found = ["/var/run/docker.sock", "/run/docker.sock"]
    if home := environ.get("HOME"):
        found.append(f"{home}/.docker/run/docker.sock")
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime:
        found.append(f"{runtime}/docker.sock")
        found.append(f"{runtime}/podman/podman.sock")
    return [*found, "/run/podman/podman.sock"]


def find_socket(places: Sequence[str]) -> str:
    """Return the URL of the first socket that there is, one that this user may use before others; blocks.

    Raises:
        ConfigurationError: there is none.
    """
    present = [path for path in places if os.path.exists(path)]
    usable = [path for path in present if os.access(path, os.R_OK | os.W_OK)]
    if not present:
        raise ConfigurationError(
            "no Docker daemon was found: DOCKER_HOST is not set, no docker context is chosen, and there is no socket "
            f"at {', '.join(places)}; start one, or give its url"
        )
    return f"unix://{(usable or present)[0]}"


def parse(url: str, tls: ssl.SSLContext | None, environ: Mapping[str, str]) -> Location:
    """Return what a URL means; blocks if there are certificates to read.

    Raises:
        ConfigurationError: it means nothing, or the certificates are not usable.
    """
    scheme, found, rest = url.partition("://")
    if not found or not rest:
        raise ConfigurationError(_not_a_url(url))
    if scheme == "unix":
        if not rest.startswith("/"):
            raise ConfigurationError(f"{url}: the path of a socket must be absolute, as in unix:///var/run/docker.sock")
        return Location(url, "unix://localhost", socket=rest)
    if scheme == "ssh":
        return Location(url, "unix://localhost", is_ssh=True)
    if scheme not in ("tcp", "http", "https"):
        raise ConfigurationError(_not_a_url(url))
    if tls is None and environ.get("DOCKER_TLS_VERIFY"):
        tls = _certificates(environ)
    is_tls = tls is not None or scheme == "https"
    host = rest.rstrip("/")
    if ":" not in host.rpartition("]")[2]:
        host += f":{TLS_PORT if is_tls else TCP_PORT}"
    return Location(f"{scheme}://{host}", f"{'https' if is_tls else 'http'}://{host}", tls=tls)


def explain_context(error: Exception) -> str:
    """Say why the docker context that was chosen cannot be used, from what the client library raised."""
    name = getattr(error, "context_name", None)
    if name and isinstance(error.__cause__, FileNotFoundError):
        return (
            f"there is no docker context {name!r}, which DOCKER_CONTEXT or Docker's config.json names; "
            "`docker context ls` lists those that there are"
        )
    return f"the docker context cannot be used: {error}"


def _certificates(environ: Mapping[str, str]) -> ssl.SSLContext:
    folder = Path(environ.get("DOCKER_CERT_PATH") or Path.home() / ".docker")
    try:
        tls = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        tls.load_cert_chain(str(folder / "cert.pem"), str(folder / "key.pem"))
    except OSError as error:  # an ssl.SSLError is one
        raise ConfigurationError(
            f"DOCKER_TLS_VERIFY is set, but ca.pem, cert.pem and key.pem in {folder} cannot be used: {error}"
        ) from error
    return tls


def _not_a_url(url: str) -> str:
    return f"{url!r} is not the url of a Docker daemon: unix:///PATH, tcp://HOST:PORT and ssh://USER@HOST are known"
