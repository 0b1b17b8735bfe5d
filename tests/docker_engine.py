"""Find a Docker Engine for the tests, or start private ones that can be killed and restarted.

A private engine has a network namespace of its own and no bridge (`--bridge=none` would delete the one of the host),
its data on a real file system, and a keeper (`engine_keeper`) that removes it when the tests are over, also when they
were killed. It needs root and the programs of `machine.PROGRAMS`.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self
from urllib.parse import quote

import engine_keeper
import machine

START_TIMEOUT_S = 60.0
# Who may use the socket of a private engine besides root: a group that nobody is in.
SOCKET_GROUP = 54_321
# File systems that cannot carry the layers of images, or should not: the machine's memory, another container's layers.
POOR_FILE_SYSTEMS = ("overlay", "tmpfs", "aufs")

_numbers = itertools.count(1)


class NoEngineError(RuntimeError):
    """There is no Docker Engine for the tests; the message says what to run."""


class EngineApi:
    """Speak to a Docker Engine in the plainest way, without the code that is tested.

    Args:
        url: `unix:///path` or `tcp://host:port`.
    """

    def __init__(self, url: str, *, timeout_s: float = 60.0) -> None:
        self.url = url
        self._timeout_s = timeout_s

    def answers(self) -> bool:
        """Tell whether an engine answers at the URL, and says that it is well."""
        try:
            return self.call("GET", "/_ping") == b"OK"
        except (OSError, http.client.HTTPException, ValueError):
            return False

    def call(self, method: str, path: str, body: bytes | IO[bytes] | None = None, *, kind: str = "") -> bytes:
        """Send a request and return the body of the answer.

        Raises:
            OSError: nothing listens there, or the engine refused; the message is its own.
        """
        connection = self._connect()
        try:
            connection.request(method, path, body, {"Content-Type": kind} if kind else {})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.status >= 400:
            raise OSError(answer.status, data.decode(errors="replace").strip())
        return data

    def stream(self, path: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a GET request whose answer comes as long as it is read; both are to be closed."""
        connection = self._connect()
        connection.request("GET", path)
        assert connection.sock is not None
        connection.sock.settimeout(None)
        return connection, connection.getresponse()

    def get(self, path: str) -> Any:
        """Return what a GET request is answered with."""
        return json.loads(self.call("GET", path))

    def containers(self, label: str = "") -> list[dict[str, Any]]:
        """Return all containers, running or not, that have a label."""
        wanted = quote(json.dumps({"label": [label]} if label else {}))
        found: list[dict[str, Any]] = self.get(f"/containers/json?all=1&filters={wanted}")
        return found

    def remove(self, container: str) -> None:
        """Remove a container, whatever it does; one that is gone is no error."""
        with contextlib.suppress(OSError):
            self.call("DELETE", f"/containers/{container}?force=1&v=1")

    def _connect(self) -> http.client.HTTPConnection:
        kind, _, place = self.url.partition("://")
        if kind == "unix":
            return _UnixConnection(place, self._timeout_s)
        if kind == "tcp" and not os.environ.get("DOCKER_TLS_VERIFY"):
            return http.client.HTTPConnection(place, timeout=self._timeout_s)
        raise ValueError(f"the tests cannot use an engine at {self.url}: only unix:// and tcp:// without TLS")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("docker", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            raise


def candidates() -> list[str]:
    """Return where an engine would be that somebody else runs: `DOCKER_HOST`, else the usual sockets."""
    if host := os.environ.get("DOCKER_HOST"):
        return [host]
    sockets = ["/var/run/docker.sock"]
    if folder := os.environ.get("XDG_RUNTIME_DIR"):
        sockets.append(f"{folder}/docker.sock")
    return [f"unix://{path}" for path in sockets if Path(path).exists()]


def find_engine() -> str | None:
    """Return the URL of an engine that somebody else runs and that answers."""
    return next((url for url in candidates() if EngineApi(url, timeout_s=5).answers()), None)


def base_folder() -> Path:
    """Return the folder below which private engines keep their files: on a real file system if there is one."""
    places = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/var/lib"), Path.cwd()]
    return next((place for place in places if file_system(place) not in POOR_FILE_SYSTEMS), places[0])


def file_system(folder: Path) -> str:
    """Return the kind of file system that a folder is on."""
    best, kind = "", ""
    for line in Path("/proc/mounts").read_text().splitlines():
        place, name = line.split()[1:3]
        if len(place) >= len(best) and folder.resolve().is_relative_to(place):
            best, kind = place, name
    return kind


@dataclass
class PrivateEngine:
    """A Docker Engine of the tests' own.

    Attributes:
        live_restore: its containers outlive the daemon.
        folder: all that it has.
    """

    live_restore: bool = False
    folder: Path = field(default_factory=lambda: base_folder() / engine_keeper.new_name(next(_numbers)))
    _keeper: subprocess.Popen[bytes] | None = None
    _daemon: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.folder}/docker.sock"

    @property
    def api(self) -> EngineApi:
        return EngineApi(self.url)

    @property
    def pid(self) -> int:
        """The process of the daemon."""
        assert self._daemon is not None, "the engine does not run"
        return self._daemon.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the daemon, for the first time or again, and wait until it answers.

        Raises:
            NoEngineError: it cannot be started here; the message says why, and what to run.
        """
        self._watch()
        with (self.folder / "dockerd.log").open("ab") as log:
            self._daemon = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not EngineApi(self.url, timeout_s=2).answers():
            if self._daemon.poll() is not None or time.monotonic() > deadline_s:
                raise NoEngineError(f"dockerd did not come up; its last words:\n{self.last_words()}")
            time.sleep(0.02)

    def command(self) -> list[str]:
        """Return the command that starts the daemon.

        Raises:
            NoEngineError: we are not root, or a program is missing; the message says what to run.
        """
        try:
            programs = [machine.require("unshare"), "-n", machine.require("dockerd")]
        except machine.MissingProgramError as error:
            raise NoEngineError(str(error)) from None
        if os.geteuid() != 0:
            raise NoEngineError("a private Docker Engine needs root; run the tests as root, or with DOCKER_HOST set")
        options = {
            "data-root": self.folder / "data",
            "exec-root": self.folder / "exec",
            "host": self.url,
            "pidfile": self.folder / "dockerd.pid",
            "group": SOCKET_GROUP,
            "bridge": "none",
            "iptables": "false",
            "ip6tables": "false",
            "exec-opt": "native.cgroupdriver=cgroupfs",
            "cgroup-parent": f"/{self.folder.name}",
            "live-restore": "true" if self.live_restore else "false",
            "log-level": "warn",
        }
        # One core file of a machine's administrator could contradict these options.
        (self.folder / "daemon.json").write_text("{}")
        options["config-file"] = self.folder / "daemon.json"
        return [*programs, *(f"--{name}={value}" for name, value in options.items())]

    def stop(self) -> None:
        """Stop the daemon in good order. Without live restore its containers end."""
        assert self._daemon is not None
        self._daemon.terminate()
        self._daemon.wait(60)
        self._daemon = None

    def kill(self) -> None:
        """Kill the daemon as a crash would: its containers go on. Its containerd dies with it."""
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon.wait(60)
        self._daemon = None
        # The next daemon would take a containerd that is dying, or that no init has waited for yet, for its own.
        containerd = self.folder / "exec" / "containerd" / "containerd.pid"
        engine_keeper.wait_for_end(containerd, timeout_s=5)
        containerd.unlink(missing_ok=True)

    def restart(self, *, crash: bool = False) -> None:
        """Stop or kill the daemon, and start it again."""
        (self.kill if crash else self.stop)()
        self.start()

    def close(self) -> None:
        """Remove the engine with all that it has; it may be running or not, and be closed twice."""
        with contextlib.suppress(OSError, ValueError):
            containers = self.api.containers() if self._daemon is not None and self._daemon.poll() is None else []
            for each in containers:
                self.api.remove(each["Id"])
        if self._keeper is not None:
            self._keeper.communicate()  # closes its stdin, upon which it removes everything
            self._keeper = None
        if self._daemon is not None:
            self._daemon.wait(60)
            self._daemon = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def last_words(self) -> str:
        """Return the end of the daemon's log."""
        with contextlib.suppress(OSError):
            return "\n".join((self.folder / "dockerd.log").read_text(errors="replace").splitlines()[-20:])
        return "(no log)"

    def _watch(self) -> None:
        if self._keeper is not None:
            return
        engine_keeper.sweep(self.folder.parent)
        self.folder.mkdir(mode=0o711, parents=True)  # the socket can be reached by those that may use it
        program = [sys.executable, "-S", engine_keeper.__file__, str(self.folder), str(os.getpid())]
        self._keeper = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == b"ready\n", "the keeper of the engine did not start"


def close_all(engines: Iterable[PrivateEngine]) -> None:
    """Close several engines, each of them whatever happens to another."""
    with contextlib.ExitStack() as stack:
        for engine in engines:
            stack.callback(engine.close)
