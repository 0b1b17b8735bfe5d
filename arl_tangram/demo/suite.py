"""The real source tree and the real test suite of the demo: parts of the installed numpy.

The agents work on a copy of `numpy/polynomial`, and the tests that numpy ships with it are the last
reward. They exist in every numpy from 1.26 on, need pytest only, and last about half a second each.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from arl_tangram.errors import ConfigurationError, MissingExtraError

MODULES = {
    "chebyshev": "cheb",
    "hermite": "herm",
    "hermite_e": "herme",
    "laguerre": "lag",
    "legendre": "leg",
    "polynomial": "poly",
}
"""The modules that agents work on, with the prefix of the names of their functions."""

ADD = "    return pu._add(c1, c2)\n"
SUBTRACT = "    return pu._sub(c1, c2)\n"

_SHARED_TESTS = ("classes", "printing", "symbol")
_COPIED = ("polynomial", "ma")


@dataclass(frozen=True, slots=True)
class SourceTree:
    """The folders of the installed numpy that are copied into each sandbox."""

    numpy: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders to copy."""
        return tuple(self.numpy / name for name in _COPIED)


def tests_of(module: str) -> str:
    """Return the path in the sandbox of the test file of one module."""
    return f"polynomial/tests/test_{module}.py"


def suite_of(module: str, *, quick: bool = False) -> tuple[str, ...]:
    """Return the test files that reward a patch of `module`, the longest first."""
    if quick:
        return tests_of(module), tests_of("symbol")
    first, *others = _SHARED_TESTS
    return tests_of(first), tests_of(module), *(tests_of(name) for name in others)


def find_source_tree() -> SourceTree:
    """Return the installed numpy's source tree after checking that all of the demo's parts are there.

    Raises:
        MissingExtraError: pytest or hypothesis (which numpy's tests ask for) is not installed.
        ConfigurationError: this numpy lacks a test file or a line that the agents edit.
    """
    missing = [name for name in ("pytest", "hypothesis") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"the demo runs numpy's own tests and needs {' and '.join(missing)}: pip install 'arl-tangram[demo]'"
        )
    tree = installed_tree()
    _check(tree)
    return tree


def installed_tree() -> SourceTree:
    """Return the installed numpy's source tree, whatever is in it.

    Raises:
        ConfigurationError: there is none.
    """
    spec = importlib.util.find_spec("numpy")
    if spec is None or spec.origin is None:
        raise ConfigurationError("the demo works on the source tree of numpy, which is not installed")
    return SourceTree(Path(spec.origin).parent)


def _check(tree: SourceTree) -> None:
    files = {tests_of(name) for name in (*MODULES, *_SHARED_TESTS)}
    absent = sorted(path for path in files if not (tree.numpy / path).is_file())
    if absent:
        raise ConfigurationError(f"{tree.numpy} has no {', '.join(absent)}: was numpy installed without its tests?")
    for module in MODULES:
        path = tree.numpy / "polynomial" / f"{module}.py"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for line in (ADD, SUBTRACT):
            if text.count(line) != 1:
                raise ConfigurationError(f"{path} does not hold the line {line.strip()!r} once; the demo edits it")
