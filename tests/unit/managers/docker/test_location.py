from __future__ import annotations

import hashlib
import json
import socket
from pathlib import Path

import pytest

from arl_tangram.errors import ConfigurationError, MissingExtraError
from arl_tangram.managers.docker.connection import locate
from arl_tangram.managers.docker.engine import Engine
from arl_tangram.managers.docker.latency import LatencyMeter
from arl_tangram.managers.docker.location import find_socket, parse, sockets


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def listen(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def test_a_unix_socket() -> None:
    location = parse("unix:///run/docker.sock", None, {})
    assert (location.url, location.base, location.socket) == (
        "unix:///run/docker.sock", "unix://localhost", "/run/docker.sock",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("tcp://host", "http://host:2375"), ("tcp://host:99/", "http://host:99"), ("http://host:99", "http://host:99"),
        ("https://host", "https://host:2376"), ("tcp://[::1]", "http://[::1]:2375"), ("tcp://[::1]:9", "http://[::1]:9"),
    ],
)  # fmt: skip
def test_tcp(url: str, base: str) -> None:
    location = parse(url, None, {})
    assert (location.base, location.socket, location.tls) == (base, None, None)


@pytest.mark.parametrize(
    ("url", "told"),
    [("tcp://host", "tcp://host:2375"), ("https://host/", "https://host:2376"), ("http://[::1]:9", "http://[::1]:9")],
)
def test_messages_name_the_port_that_is_meant(url: str, told: str) -> None:
    assert parse(url, None, {}).url == told


@pytest.mark.parametrize("url", ["", "host:99", "/run/docker.sock", "unix://", "ftp://host", "npipe:////./pipe/x"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the url of a Docker daemon"):
        parse(url, None, {})


def test_the_path_of_a_socket_must_be_absolute() -> None:
    with pytest.raises(ConfigurationError, match="must be absolute"):
        parse("unix://docker.sock", None, {})


def test_certificates_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=rf"ca.pem, cert.pem and key.pem in {tmp_path} cannot be used"):
        parse("tcp://host", None, {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)})


def test_the_environment_goes_before_the_context_and_the_context_before_the_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    listen(tmp_path / "run/docker.sock")
    name = hashlib.sha256(b"far").hexdigest()
    meta = tmp_path / f".docker/contexts/meta/{name}/meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"Endpoints": {"docker": {"Host": "tcp://far:1"}}}))
    (tmp_path / ".docker/config.json").write_text(json.dumps({"currentContext": "far"}))
    assert locate(None).url == "tcp://far:1"
    monkeypatch.setenv("DOCKER_HOST", "tcp://near:2")
    assert locate(None).url == "tcp://near:2"
    assert locate("tcp://given:3").url == "tcp://given:3"
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    with pytest.raises(ConfigurationError, match=r"there is no docker context 'nowhere', which DOCKER_CONTEXT"):
        locate(None)
    monkeypatch.delenv("DOCKER_CONTEXT")
    meta.write_text("{}")
    with pytest.raises(ConfigurationError, match=r"the docker context cannot be used: .*Endpoints"):
        locate(None)


def test_rootless_and_podman_sockets_are_found(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": "/nowhere"}
    mine = [path for path in sockets(environ) if path.startswith(str(tmp_path))]
    assert mine == [f"{tmp_path}/docker.sock", f"{tmp_path}/podman/podman.sock"]
    with pytest.raises(ConfigurationError, match=rf"no Docker daemon was found.*{mine[0]}"):
        find_socket(mine)
    listen(tmp_path / "podman/podman.sock")
    assert find_socket(mine) == f"unix://{tmp_path}/podman/podman.sock"
    listen(tmp_path / "docker.sock")
    assert find_socket(mine) == f"unix://{tmp_path}/docker.sock"


async def test_ssh_without_what_it_needs_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'aiodocker\[ssh\]'"):
        await Engine("ssh://me@host", LatencyMeter()).open()
