"""Make the images of the Docker tests from files of this machine: no registry is asked.

| image | what it has |
|---|---|
| `busybox` | busybox: ash and its applets |
| `python` | dash as sh, GNU coreutils, the machine's python3 with its standard library |
| `bash` | bash as sh, GNU coreutils |
| `shell_less` | one program, `sleep` |
| `user` | busybox, with a user that has no rights, and her home folder |
| `workdir` | busybox, with a working folder that holds a file, and an environment of its own |
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import urlencode

import machine
from docker_engine import EngineApi

FOLDERS = ("bin", "dev", "etc", "proc", "root", "sys", "usr/bin", "var")
PASSWD = "root:x:0:0:root:/root:/bin/sh\nagent:x:1234:1234::/home/agent:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
GROUP = "root:x:0:\nagent:x:1234:\nnogroup:x:65534:\n"
USER = 1234
COREUTILS = """
    [ basename cat chmod chown cp cut date dd df dirname du echo env expr false head id ln ls mkdir mkfifo mktemp mv
    nice nproc od paste printenv printf pwd readlink realpath rm rmdir seq sha256sum sleep sort split stat stty sync
    tail tee test timeout touch tr true truncate tty uname uniq wc whoami yes
"""
OTHERS = "grep sed find xargs setsid taskset"
# What Python's standard library can do without in a sandbox.
LEFT_OUT = re.compile(
    r"/(__pycache__|tests?|idlelib|lib2to3|tkinter|ensurepip|pydoc_data|(dist|site)-packages|config-.*)$"
)
SYSTEM_PYTHON = "/usr/bin/python3"  # another one may lie in a home folder, with libraries of its own


@dataclass
class ImageFiles:
    """The files of an image, written into a tar archive as they are added."""

    tar: tarfile.TarFile
    _there: set[str] = field(default_factory=set[str])

    def folder(self, path: str, mode: int = 0o755, owner: int = 0) -> None:
        """Add a folder, and those above it."""
        above = os.path.dirname(path)
        if above and above not in self._there:
            self.folder(above)
        if path not in self._there:
            self._add(path, tarfile.DIRTYPE, mode, owner=owner)

    def text(self, path: str, text: str) -> None:
        """Add a file with this text."""
        self.folder(os.path.dirname(path))
        self._add(path, tarfile.REGTYPE, 0o644, data=text.encode())

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link, unless there is something of that name."""
        if path not in self._there:
            self.folder(os.path.dirname(path))
            self._add(path, tarfile.SYMTYPE, 0o777, target=target)

    def file(self, source: str, path: str = "") -> None:
        """Add a file of the machine, at the same place or another; links are followed."""
        path = (path or source).lstrip("/")
        if path in self._there:
            return
        self.folder(os.path.dirname(path))
        self._add(path, tarfile.REGTYPE, os.stat(source).st_mode & 0o777, data=Path(source).read_bytes())

    def program(self, source: str, path: str = "") -> None:
        """Add a program with the libraries that it is linked with."""
        self.file(source, path)
        for library in libraries(source):
            self.file(library)

    def _add(self, path: str, kind: bytes, mode: int, *, data: bytes = b"", target: str = "", owner: int = 0) -> None:
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode, entry.linkname, entry.size = kind, mode, target, len(data)
        entry.uid = entry.gid = owner
        self.tar.addfile(entry, io.BytesIO(data))
        self._there.add(path)


def libraries(program: str) -> list[str]:
    """Return the shared libraries of a program, and its loader."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return re.findall(r"(/\S+\.so\S*)", listed.stdout)  # a static program has none, and ldd fails


def add_base(files: ImageFiles) -> None:
    """Add what every image has: the folders, two users and a place for temporary files."""
    for name in FOLDERS:
        files.folder(name)
    files.folder("tmp", 0o1777)
    files.folder("home/agent", owner=USER)
    files.text("etc/passwd", PASSWD)
    files.text("etc/group", GROUP)


def add_busybox(files: ImageFiles) -> None:
    """Add busybox, and a link for each of its applets."""
    busybox = machine.require("busybox")
    files.program(busybox, "bin/busybox")
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    for applet in listed.stdout.split():
        files.link(f"bin/{applet}", "busybox")  # none of that name: busybox lists itself


def add_tools(files: ImageFiles, shell: str) -> None:
    """Add a shell, GNU coreutils and a few more programs of this machine."""
    files.program(_which(shell), "bin/sh")
    files.program(_which(shell), f"bin/{shell}")
    for name in (COREUTILS + OTHERS).split():
        files.program(_which(name), f"usr/bin/{name}")


def add_python(files: ImageFiles) -> None:
    """Add the system's Python with the larger part of its standard library."""
    python = os.path.realpath(machine.require(SYSTEM_PYTHON))
    files.program(python)
    for name in ("python3", "python"):
        files.link(f"usr/bin/{name}", os.path.basename(python))
    ask = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    library = subprocess.run([python, "-I", "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    for folder, folders, names in os.walk(library):
        folders[:] = sorted(each for each in folders if not LEFT_OUT.search(f"{folder}/{each}"))
        for name in sorted(names):
            source = f"{folder}/{name}"
            if os.path.exists(source):  # a link may lead nowhere
                (files.program if name.endswith(".so") else files.file)(source)


def _which(name: str) -> str:
    path = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
    if path is None:
        raise machine.MissingProgramError(f"{name} is not installed; the images of the Docker tests hold it")
    return os.path.realpath(path) if name != "[" else path


def write_image(name: str, target: IO[bytes]) -> None:
    """Write the files of an image as a tar archive."""
    with tarfile.open(fileobj=target, mode="w") as tar:
        files = ImageFiles(tar)
        if name == "shell_less":
            files.folder("tmp", 0o1777)
            files.program(machine.require("busybox"), "bin/sleep")
            return
        add_base(files)
        if name == "python":
            add_tools(files, "dash")
            add_python(files)
        elif name == "bash":
            add_tools(files, "bash")
        else:
            add_busybox(files)
        if name == "workdir":
            files.text("srv/project/README", "a file of the image\n")


CHANGES = {
    "user": (f"USER {USER}", "ENV HOME=/home/agent", "WORKDIR /home/agent"),
    "workdir": ("WORKDIR /srv/project", "ENV FLAVOUR=plain"),
}


@dataclass
class Images:
    """The images of the tests in one engine, each made when it is first asked for.

    Attributes:
        api: the engine.
        tag: tells the images of this run from those of others.
    """

    api: EngineApi
    tag: str

    @functools.cached_property
    def busybox(self) -> str:
        return self._make("busybox")

    @functools.cached_property
    def python(self) -> str:
        return self._make("python")

    @functools.cached_property
    def bash(self) -> str:
        return self._make("bash")

    @functools.cached_property
    def shell_less(self) -> str:
        return self._make("shell_less")

    @functools.cached_property
    def user(self) -> str:
        return self._make("user")

    @functools.cached_property
    def workdir(self) -> str:
        return self._make("workdir")

    def remove(self) -> None:
        """Remove those that were made from the engine."""
        for name in ("busybox", "python", "bash", "shell_less", "user", "workdir"):
            if name in self.__dict__:
                with contextlib.suppress(OSError):
                    self.api.call("DELETE", f"/images/{self.__dict__.pop(name)}?force=1")

    def _make(self, name: str) -> str:
        repository = f"arl-tangram-test/{name.replace('_', '-')}"
        changes = [("changes", each) for each in CHANGES.get(name, ())]
        query = urlencode([("fromSrc", "-"), ("repo", repository), ("tag", self.tag), *changes])
        with tempfile.TemporaryFile() as archive:
            write_image(name, archive)
            archive.seek(0)
            self.api.call("POST", f"/images/create?{query}", archive, kind="application/x-tar")
        reference = f"{repository}:{self.tag}"
        self.api.get(f"/images/{reference}/json")  # an import that fails says so only in the text of its answer
        return reference


if __name__ == "__main__":
    write_image(sys.argv[1], sys.stdout.buffer)
