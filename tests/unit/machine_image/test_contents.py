"""An image of this machine's files holds what it says, in good order, and its tag tells it from others."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from arl_tangram.errors import ConfigurationError
from arl_tangram.machine_image.entries import (
    Compiled,
    Copied,
    Folder,
    Link,
    Written,
    arranged,
    copied,
    fingerprint_of,
)
from arl_tangram.machine_image.libraries import libraries_of
from arl_tangram.machine_image.programs import NEEDED, base_entries
from arl_tangram.machine_image.python_files import interpreter, python_entries, with_requirements
from arl_tangram.machine_image.tar_stream import pieces


def unpacked(entries: tuple[object, ...], folder: Path) -> None:
    stream = b"".join(pieces(entries))  # type: ignore[arg-type]
    with tarfile.open(fileobj=BytesIO(stream)) as tar:
        tar.extractall(folder, filter="fully_trusted")


def test_every_kind_of_entry_arrives(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text("x = 1\n" * 1000)
    os.utime(source, (1_700_000_000, 1_700_000_000))
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o700)
    file = copied(source, "/lib/ä/" + "long" * 60 + "/source.py")
    entries = arranged(
        [
            file,
            Compiled("lib/source.pyc", file),
            copied(script, "/bin/script"),
            Written("etc/passwd", "root:x:0:0\n"),
            Link("bin/other", "script"),
            Folder("tmp", 0o1777),
        ]
    )
    unpacked(entries, tmp_path / "image")
    root = tmp_path / "image"
    arrived = root / file.path
    assert arrived.read_text() == source.read_text()
    assert arrived.stat().st_mtime == 1_700_000_000  # compiled Python files name it
    assert (root / "lib/source.pyc").read_bytes() == Path(
        py_compile.compile(str(source), str(tmp_path / "x.pyc"), f"/{file.path}") or ""
    ).read_bytes()
    assert (root / "bin/script").stat().st_mode & 0o7777 == 0o755  # whoever runs there may run it
    assert (root / "etc/passwd").read_text() == "root:x:0:0\n"
    assert os.readlink(root / "bin/other") == "script"
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert (root / "lib").stat().st_mode & 0o7777 == 0o755


def test_folders_stand_before_what_lies_in_them_and_each_path_once() -> None:
    first, second = Written("a/b/c", "1"), Written("a/b/c", "2")
    assert arranged([first, second, Folder("a/b", 0o700)]) == (Folder("a"), Folder("a/b", 0o700), first)


def test_the_fingerprint_tells_contents_apart(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    os.utime(file, (1, 1))
    before = fingerprint_of([copied(file)])
    assert before == fingerprint_of([copied(file)])
    os.utime(file, (2, 2))
    assert fingerprint_of([copied(file)]) != before
    assert fingerprint_of([Written("a", "1")]) != fingerprint_of([Written("a", "2")])


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    entry = copied(file)
    file.write_bytes(b"123")
    with pytest.raises(OSError, match="shorter"):
        b"".join(pieces([entry]))


def test_text_that_is_no_python_is_left_uncompiled(tmp_path: Path) -> None:
    file = tmp_path / "template.py"
    file.write_text("def {{ name }}:\n")
    stream = b"".join(pieces([Compiled("x.pyc", copied(file))]))
    with tarfile.open(fileobj=BytesIO(stream)) as tar:
        assert tar.getnames() == []


def test_the_programs_that_are_needed_are_there_under_their_names() -> None:
    paths = {entry.path for entry in base_entries()}
    assert {f"bin/{name}" for name in NEEDED} <= paths
    assert {"etc/passwd", "tmp"} <= paths


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in NEEDED:
        if name != "xargs":
            (tmp_path / name).write_text("")
            (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"needs xargs, not found on the PATH"):
        base_entries()


def test_packages_come_with_what_they_require_and_without_extras() -> None:
    names = {package.metadata["Name"].lower() for package in with_requirements(["pytest"])}
    assert {"pytest", "pluggy", "iniconfig", "packaging"} <= names
    assert "numpy" not in names
    with pytest.raises(ConfigurationError, match="no-such-package is to be in the image"):
        with_requirements(["no-such-package"])


def test_a_root_of_these_files_runs_python_with_its_packages(tmp_path: Path) -> None:
    """As in a container, but with the libraries of this machine: an image is tested with a real engine elsewhere."""
    own = python_entries(["pytest"])
    unpacked(arranged(own), tmp_path)
    paths = {f"/{entry.path}" for entry in own}
    assert {interpreter(), os.path.realpath(sys.executable), "/usr/local/bin/python3"} <= paths
    library = Path(os.path.realpath(os.path.dirname(os.__file__)))
    program = "import sys, pytest, json; print(pytest.__file__); print(json.__file__)"
    done = subprocess.run(
        [tmp_path / os.path.realpath(sys.executable).lstrip("/"), "-I", "-c", program],
        env={"LD_LIBRARY_PATH": str(library.parent), "PYTHONHOME": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(line.startswith(str(tmp_path)) for line in done.stdout.splitlines()), done.stdout


def test_libraries_of_a_program_lie_where_they_lie_here() -> None:
    entries = base_entries()
    shell = next(entry for entry in entries if isinstance(entry, Copied) and entry.path.startswith("bin/"))
    found = libraries_of([shell])
    assert all(isinstance(entry, Copied) and f"/{entry.path}" == str(entry.source) for entry in found)
    assert any("libc" in entry.path for entry in found)
    assert any("ld-" in entry.path for entry in found)  # the loader itself
