from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from arl_tangram.managers.docker import credentials
from arl_tangram.managers.docker.credentials import (
    HUB,
    CredentialsError,
    config_path,
    read_auth,
    registry_auth,
    registry_of,
)


def auth_of(tmp_path: Path, config: Any, ref: str = "host:5000/a/b:1") -> Any:
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    found = read_auth(ref, path)
    return json.loads(base64.urlsafe_b64decode(found)) if found else None


def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "docker-credential-test"
    program.write_text(f"#!/bin/sh\nread -r registry\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


@pytest.mark.parametrize(
    ("ref", "registry"),
    [
        ("ubuntu", HUB), ("ubuntu:22.04", HUB), ("someone/image", HUB), ("docker.io/library/ubuntu", HUB),
        ("ghcr.io/a/b:1", "ghcr.io"), ("host:5000/b", "host:5000"), ("localhost/b", "localhost"),
    ],
)  # fmt: skip
def test_the_registry_of_an_image(ref: str, registry: str) -> None:
    assert registry_of(ref) == registry


def test_user_and_password(tmp_path: Path) -> None:
    encoded = base64.b64encode(b"me:pass:word").decode()
    wanted = {"username": "me", "password": "pass:word", "serveraddress": "host:5000"}
    assert auth_of(tmp_path, {"auths": {"other": {}, "host:5000": {"auth": encoded}}}) == wanted
    assert auth_of(tmp_path, {"auths": {"https://host:5000/v2/": {"auth": encoded}}}) == wanted
    assert auth_of(tmp_path, {"auths": {"host:5000": {"username": "me", "password": "pass:word"}}}) == wanted


def test_an_identity_token(tmp_path: Path) -> None:
    assert auth_of(tmp_path, {"auths": {"host:5000": {"auth": "eDo=", "identitytoken": "t"}}}) == {
        "identitytoken": "t", "serveraddress": "host:5000",
    }  # fmt: skip


@pytest.mark.parametrize(
    "config", [{}, {"auths": {}}, {"auths": {"other": {"auth": "eDp5"}}}, {"auths": {"host:5000": {}}}]
)
def test_no_credentials(tmp_path: Path, config: Any) -> None:
    assert auth_of(tmp_path, config) is None


def test_no_configuration(tmp_path: Path) -> None:
    assert read_auth("a", tmp_path / "config.json") == ""


@pytest.mark.parametrize(
    "config",
    ["{", "[]", {"auths": []}, {"auths": {"host:5000": {"auth": "!!"}}}, {"auths": {"host:5000": {"auth": "eA=="}}}],
)
def test_a_configuration_that_makes_no_sense(tmp_path: Path, config: Any) -> None:
    with pytest.raises(CredentialsError, match=r"config.json cannot be used"):
        auth_of(tmp_path, config)


@pytest.mark.parametrize("config", [{"credsStore": "test"}, {"credsStore": "no", "credHelpers": {"host:5000": "test"}}])
def test_a_helper_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Any) -> None:
    helper(tmp_path, monkeypatch, """printf '{"Username": "me", "Secret": "%s"}' "$registry" """)
    assert auth_of(tmp_path, config) == {"username": "me", "password": "host:5000", "serveraddress": "host:5000"}


def test_a_helper_gives_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(tmp_path, monkeypatch, """echo '{"Username": "<token>", "Secret": "t"}'""")
    assert auth_of(tmp_path, {"credsStore": "test"}) == {"identitytoken": "t", "serveraddress": "host:5000"}


def test_a_helper_that_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(tmp_path, monkeypatch, "echo credentials not found in native keychain; exit 1")
    assert auth_of(tmp_path, {"credsStore": "test"}) is None


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no keychain; exit 2", "docker-credential-test failed with exit code 2: no keychain"),
        ("echo nonsense", "cannot be used"),
        ("sleep 5", "has not answered within 0.05 s"),
    ],
)
def test_a_helper_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str) -> None:
    monkeypatch.setattr(credentials, "HELPER_LIMIT_S", 0.05 if "sleep" in script else 30.0)
    helper(tmp_path, monkeypatch, script)
    with pytest.raises(CredentialsError, match=message):
        auth_of(tmp_path, {"credsStore": "test"})


def test_a_helper_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="docker-credential-nowhere, which is not installed"):
        auth_of(tmp_path, {"credsStore": "nowhere"})


async def test_the_configuration_is_where_docker_looks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"auths": {HUB: {"auth": "eDp5"}}}))
    assert json.loads(base64.urlsafe_b64decode(await registry_auth("ubuntu")))["username"] == "x"
    monkeypatch.delenv("DOCKER_CONFIG")
    monkeypatch.setenv("HOME", "/home/me")
    assert config_path() == Path("/home/me/.docker/config.json")
