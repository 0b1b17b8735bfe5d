"""Docker's own credentials for a registry: from its configuration, or from the helper that it names."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import anyio.to_thread

from arl_tangram.managers.docker.answers import mapping, text

HUB = "https://index.docker.io/v1/"  # what Docker files the credentials for its own registry under
HELPER_LIMIT_S = 30.0
_TOKEN = "<token>"


class CredentialsError(Exception):
    """Docker's credentials are there but cannot be read; the message says why and tells no secret."""


async def registry_auth(ref: str) -> str:
    """Return what the header X-Registry-Auth is to say for pulling an image; empty if there are no credentials.

    Raises:
        CredentialsError: they cannot be read.
    """
    return await anyio.to_thread.run_sync(read_auth, ref, config_path())


def config_path() -> Path:
    """Return where Docker's configuration is."""
    folder = os.environ.get("DOCKER_CONFIG")
    return Path(folder) / "config.json" if folder else Path(os.path.expanduser("~/.docker/config.json"))


def registry_of(ref: str) -> str:
    """Return the registry of an image, as credentials are filed."""
    first, slash, _ = ref.partition("/")
    if (
        slash
        and ("." in first or ":" in first or first == "localhost")
        and first not in ("docker.io", "index.docker.io")
    ):
        return first
    return HUB


def read_auth(ref: str, path: Path) -> str:
    """Do what `registry_auth` does; blocks, for as long as a helper takes."""
    registry = registry_of(ref)
    try:
        config = cast("object", json.loads(path.read_text()))
        helpers = mapping(config, "credHelpers")
        helper = text(helpers, registry, "") or text(config, "credsStore", "")
        found = _ask_helper(helper, registry) if helper else _stored(mapping(config, "auths"), registry)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise CredentialsError(f"{path} cannot be used: {error}") from error
    if not found:
        return ""
    return base64.urlsafe_b64encode(json.dumps({**found, "serveraddress": registry}).encode()).decode()


def _stored(auths: Mapping[str, object], registry: str) -> dict[str, str]:
    for name in auths:
        if _bare(name) != _bare(registry):
            continue
        entry = auths[name]
        if token := text(entry, "identitytoken", ""):
            return {"identitytoken": token}
        if encoded := text(entry, "auth", ""):
            return _decoded(name, encoded)
        if user := text(entry, "username", ""):
            return {"username": user, "password": text(entry, "password", "")}
    return {}


def _decoded(name: str, encoded: str) -> dict[str, str]:
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:
        user = colon = password = ""
    if not colon:
        raise ValueError(f"the entry of {name} in auths is no encoded user and password")
    return {"username": user, "password": password.rstrip("\0")}


def _bare(registry: str) -> str:
    """Return a registry without what may or may not stand around it."""
    return registry.removeprefix("https://").removeprefix("http://").partition("/")[0]


def _ask_helper(helper: str, registry: str) -> dict[str, str]:
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run(
            [program, "get"], input=registry.encode(), capture_output=True, timeout=HELPER_LIMIT_S, check=False
        )
    except FileNotFoundError:
        raise CredentialsError(f"Docker's configuration names the helper {program}, which is not installed") from None
    except subprocess.TimeoutExpired:
        raise CredentialsError(f"{program} has not answered within {HELPER_LIMIT_S:g} s") from None
    if done.returncode:
        said = (done.stdout or done.stderr).decode(errors="replace").strip()
        if "credentials not found" in said:
            return {}
        raise CredentialsError(f"{program} failed with exit code {done.returncode}: {said[:200]}")
    answer = cast("object", json.loads(done.stdout))
    user, secret = text(answer, "Username", ""), text(answer, "Secret")
    return {"identitytoken": secret} if user == _TOKEN else {"username": user, "password": secret}
