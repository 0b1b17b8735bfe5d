"""The parts of the installed numpy that the demo works on, and what it says when they are missing."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from arl_tangram.demo.suite import MODULES, find_source_tree, suite_of
from arl_tangram.errors import ConfigurationError, MissingExtraError


def numpy_at(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        if name == "numpy":
            return importlib.util.spec_from_file_location("numpy", folder / "__init__.py")
        return real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def copy_of_numpy(folder: Path) -> None:
    for path in (find_source_tree().numpy / "polynomial").rglob("*.py"):
        target = folder / path.relative_to(path.parents[1] if path.parent.name != "tests" else path.parents[2])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("module", MODULES)
def test_the_suite_consists_of_files_that_numpy_ships(module: str, quick: bool) -> None:
    files = suite_of(module, quick=quick)
    assert len(set(files)) == len(files) == (2 if quick else 4)
    tree = find_source_tree()
    assert all((tree.numpy / path).is_file() for path in files)
    assert tree.numpy / "polynomial" in tree.folders


def test_a_missing_pytest_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "hypothesis" else real(name))
    with pytest.raises(MissingExtraError, match=r"hypothesis: pip install 'arl-tangram\[demo\]'"):
        find_source_tree()


def test_a_numpy_without_its_tests_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy_of_numpy(tmp_path)
    (tmp_path / "polynomial" / "tests" / "test_symbol.py").unlink()
    numpy_at(monkeypatch, tmp_path)
    with pytest.raises(ConfigurationError, match=r"test_symbol\.py: was numpy installed without its tests"):
        find_source_tree()


def test_a_numpy_whose_code_has_changed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy_of_numpy(tmp_path)
    changed = tmp_path / "polynomial" / "hermite.py"
    changed.write_text(changed.read_text().replace("return pu._sub(c1, c2)", "return pu.subtract(c1, c2)"))
    numpy_at(monkeypatch, tmp_path)
    with pytest.raises(ConfigurationError, match=r"hermite\.py does not hold the line 'return pu\._sub"):
        find_source_tree()
