"""The Python that runs this and some of the packages that are installed for it, as an image gets them.

Interpreter and standard library keep the paths that they have here. The packages lie beside the standard library: every
interpreter finds them there, whether it is started by the name that it has in a virtual environment or another.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePath

from arl_tangram.errors import ConfigurationError
from arl_tangram.machine_image.entries import Compiled, Copied, Entry, Link, copied, inside

_LEFT_OUT = {
    "__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test", "tests",
    "tkinter", "turtledemo",
}  # fmt: skip
"""Folders of the standard library and of packages that nothing imports which runs in a sandbox."""

_LEFT_OUT_STARTS = ("config-", "_tkinter.", "_test", "_xxtest", "_ctypes_test.")
_LEFT_OUT_ENDS = {".a", ".c", ".exe", ".h", ".pyc", ".pyi", ".pyx"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r";.*\bextra\b")


def interpreter() -> str:
    """Return the path of this interpreter, here and in an image that holds it."""
    return os.path.abspath(sys.executable)  # a path with `..` may lead through folders that an image lacks


def python_entries(packages: Iterable[str]) -> list[Entry]:
    """Return the interpreter, its standard library, and packages with what they need.

    Raises:
        ConfigurationError: a package is not installed, or the standard library is not a folder.
    """
    library = Path(os.path.realpath(os.path.dirname(os.__file__)))
    if not library.is_dir():
        raise ConfigurationError(f"the standard library of {sys.executable} is no folder: {library}")
    found: list[Entry] = [*_interpreter(), *_tree(library, library)]
    for folder in sys.path:
        if os.path.basename(folder) == "lib-dynload":
            found += _tree(Path(folder), Path(os.path.realpath(folder)))
    for package in with_requirements(packages):
        for path, source in _files_of(package):
            found += _with_compiled(copied(source, library / path))
    return found


def with_requirements(names: Iterable[str]) -> list[Distribution]:
    """Return the installed distributions of these names and, over any number of steps, of what they require.

    What a marker excludes here is not installed, or does no harm. Extras are left out.

    Raises:
        ConfigurationError: one of the names is not installed.
    """
    found: dict[str, Distribution] = {}
    wanted = [(name, True) for name in names]
    while wanted:
        name, is_needed = wanted.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            found[key] = distribution(name)
        except PackageNotFoundError:
            if is_needed:
                raise ConfigurationError(f"{name} is to be in the image and is not installed") from None
            continue
        wanted += [(match[0], False) for line in found[key].requires or () if (match := _required(line)) is not None]
    return [found[key] for key in sorted(found)]


def _required(line: str) -> re.Match[str] | None:
    return None if _EXTRA.search(line) else _NAME.match(line)


def _interpreter() -> list[Entry]:
    own = Path(os.path.realpath(sys.executable))
    names = {interpreter(), "/usr/local/bin/python3", "/usr/local/bin/python"} - {os.fspath(own)}
    return [copied(own), *(Link(inside(name), os.fspath(own)) for name in sorted(names))]


def _tree(folder: Path, target: Path) -> Iterator[Entry]:
    """Yield what is worth having of a folder of Python files, as it lies under another path."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_left_out(PurePath(name)))
        for name in sorted(files):
            source = Path(parent, name)
            if not _is_left_out(PurePath(name)) and source.is_file():
                yield from _with_compiled(copied(source, target / source.relative_to(folder)))


def _files_of(package: Distribution) -> Iterator[tuple[PurePath, Path]]:
    """Yield path below the folder of all packages, and path here, of the files of a distribution."""
    listed = [path for path in package.files or () if not path.is_absolute() and ".." not in path.parts]
    if not any(path.suffix == ".py" for path in listed):  # a distribution that lists nothing, as a system's may
        yield from _files_by_name(package)
        return
    for path in listed:
        source = Path(str(package.locate_file(path)))
        if not any(_is_left_out(PurePath(part)) for part in path.parts) and source.is_file():
            yield PurePath(path), source


def _files_by_name(package: Distribution) -> Iterator[tuple[PurePath, Path]]:
    names = (package.read_text("top_level.txt") or package.metadata["Name"].replace("-", "_")).split()
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        if not spec.submodule_search_locations:
            yield PurePath(origin.name), origin
            continue
        for entry in _tree(origin.parent, Path("/", name)):
            if isinstance(entry, Copied):
                yield PurePath(entry.path), entry.source


def _with_compiled(file: Copied) -> Iterator[Entry]:
    """Yield a file and, for Python text, its compiled form: each container would have to compile it again."""
    yield file
    if not file.path.endswith(".py"):
        return
    path = importlib.util.cache_from_source(file.path)
    try:
        yield copied(Path(importlib.util.cache_from_source(os.fspath(file.source))), path)
    except OSError:
        yield Compiled(path, file)


def _is_left_out(name: PurePath) -> bool:
    return name.name in _LEFT_OUT or name.name.startswith(_LEFT_OUT_STARTS) or name.suffix in _LEFT_OUT_ENDS
