"""What finds and keeps the Docker Engines of the tests, without a daemon."""

from __future__ import annotations

import http.server
import io
import os
import signal
import socketserver
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import docker_engine
import docker_images
import engine_keeper
import machine
from docker_engine import EngineApi, NoEngineError, PrivateEngine


class Daemon(http.server.BaseHTTPRequestHandler):
    """Answers as a Docker Engine does, as far as the tests ask here."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        found = {"/_ping": b"OK", "/version": b'{"Version": "1"}'}.get(self.path)
        body = found if found is not None else b'{"message": "no such thing"}'
        self.send_response(200 if found is not None else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Path]:
    """Return the socket of something that answers as an engine."""
    path = tmp_path / "docker.sock"
    with socketserver.UnixStreamServer(str(path), Daemon) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield path
        server.shutdown()
        thread.join()


def test_an_engine_that_answers_is_found(listening: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{listening}")
    assert docker_engine.find_engine() == f"unix://{listening}"
    assert EngineApi(f"unix://{listening}").get("/version") == {"Version": "1"}


def test_what_an_engine_refuses_is_an_error_with_its_words(listening: Path) -> None:
    with pytest.raises(OSError, match="no such thing"):
        EngineApi(f"unix://{listening}").get("/images")


@pytest.mark.parametrize("host", ["unix:///no/such/socket", "tcp://127.0.0.1:1", "ssh://somewhere", "nonsense"])
def test_an_engine_that_does_not_answer_is_none(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    assert docker_engine.find_engine() is None


def test_a_socket_that_nobody_serves_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    (tmp_path / "docker.sock").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert f"unix://{tmp_path}/docker.sock" in docker_engine.candidates()
    assert not EngineApi(f"unix://{tmp_path}/docker.sock").answers()


def test_without_dockerd_the_command_that_installs_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_find", lambda name: None if name == "dockerd" else f"/usr/bin/{name}")
    with pytest.raises(NoEngineError, match=r"dockerd is not installed .*apt-get install .* docker\.io"):
        PrivateEngine(folder=tmp_path / "engine").command()


def test_without_root_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_find", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoEngineError, match=r"needs root; run the tests as root, or with DOCKER_HOST set"):
        PrivateEngine(folder=tmp_path / "engine").command()


def test_an_engine_has_nothing_to_do_with_that_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_find", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    first, second = (PrivateEngine(folder=tmp_path / name) for name in "ab")
    for engine in (first, second):
        engine.folder.mkdir()
        command = engine.command()
        assert command[:3] == ["/usr/bin/unshare", "-n", "/usr/bin/dockerd"], "--bridge=none would delete docker0"
        for option in ("data-root", "exec-root", "pidfile", "config-file"):
            assert any(word.startswith(f"--{option}={engine.folder}/") for word in command)
    assert first.url != second.url
    assert PrivateEngine(live_restore=True).folder != PrivateEngine().folder


def test_an_engine_that_was_never_started_is_closed_without_harm(tmp_path: Path) -> None:
    engine = PrivateEngine(folder=tmp_path / "engine")
    engine.close()
    engine.close()
    assert engine_keeper.leftovers(engine.folder) == []


def stand_in(folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that looks like the daemon of an engine and ends when it is told to."""
    folder.mkdir()
    process = subprocess.Popen(
        ["dockerd", "-c", "import sys; print('up', flush=True); sys.stdin.read()", f"--data-root={folder}/data"],
        executable=sys.executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    (folder / "dockerd.pid").write_text(str(process.pid))
    return process


def test_only_the_engines_of_dead_runs_are_swept(tmp_path: Path) -> None:
    mine = tmp_path / engine_keeper.new_name(1)
    dead = tmp_path / f"{engine_keeper.PREFIX}{os.getpid()}-1-1"  # this number, but of an earlier process
    others = tmp_path / f"{engine_keeper.PREFIX}of-somebody"
    with stand_in(mine) as alive, stand_in(dead) as left:
        others.mkdir()
        assert engine_keeper.sweep(tmp_path) == [dead.name]
        assert left.wait(10) == -signal.SIGTERM
        assert alive.poll() is None
        assert engine_keeper.daemon_of(mine) == alive.pid
        assert sorted(tmp_path.iterdir()) == sorted([mine, others])
        engine_keeper.remove_engine(mine)
        assert alive.wait(10) == -signal.SIGTERM
    assert engine_keeper.leftovers(mine) == []


def test_a_number_that_now_belongs_to_another_process_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "dockerd.pid").write_text(str(os.getpid()))
    assert engine_keeper.daemon_of(folder) is None
    engine_keeper.remove_engine(folder)
    assert not folder.exists()


OWNER = "import sys; print('up', flush=True); sys.stdin.read()"


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_the_keeper_removes_the_engine_whatever_became_of_its_run(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with stand_in(folder) as daemon, subprocess.Popen([sys.executable, "-c", OWNER], **pipes) as owner:
        command = [sys.executable, "-S", engine_keeper.__file__, str(folder), str(owner.pid)]
        with subprocess.Popen(command, **pipes) as keeper:
            assert keeper.stdout is not None
            assert keeper.stdin is not None
            assert keeper.stdout.readline() == b"ready\n"
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                keeper.send_signal(number)  # what ends a test run does not end its keeper
            assert daemon.poll() is None
            if how == "killed":
                owner.kill()
                owner.wait()
            else:
                keeper.stdin.close()
            assert keeper.wait(30) == 0
        assert daemon.wait(10) == -signal.SIGTERM
        if how == "closed":
            assert owner.stdin is not None
            owner.stdin.close()
    assert not folder.exists()


def write(name: str) -> tarfile.TarFile:
    archive = io.BytesIO()
    docker_images.write_image(name, archive)
    archive.seek(0)
    return tarfile.open(fileobj=archive)


@pytest.fixture
def small_busybox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Put a program in the place of busybox that lists two applets and itself; return its content."""
    program = tmp_path / "busybox"
    program.write_text("#!/bin/sh\nprintf 'sh\\nbusybox\\nls\\n'\n")
    program.chmod(0o755)
    monkeypatch.setattr(machine, "_find", lambda name: str(program))
    return program.read_bytes()


def test_busybox_is_not_a_link_to_itself(small_busybox: bytes) -> None:
    with write("busybox") as tar:
        content = tar.extractfile("bin/busybox")
        assert content is not None
        assert content.read() == small_busybox
        assert [tar.getmember(f"bin/{name}").linkname for name in ("sh", "ls")] == ["busybox"] * 2
        assert len(tar.getnames()) == len(set(tar.getnames()))
        assert tar.getmember("tmp").mode == 0o1777


def test_the_image_without_a_shell_has_one_program(small_busybox: bytes) -> None:
    with write("shell_less") as tar:
        assert [entry.name for entry in tar if not entry.isdir()] == ["bin/sleep"]


def test_the_image_with_a_working_folder_has_its_file(small_busybox: bytes) -> None:
    with write("workdir") as tar:
        assert "srv/project/README" in tar.getnames()
