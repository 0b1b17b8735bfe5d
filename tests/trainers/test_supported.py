"""What this session installs is let in by the integrations, and all of their names are there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest

import arl_tangram.integrations.trl as for_trl
import arl_tangram.integrations.verl as for_verl
from documents import ROOT

NAMES = [(package, name) for package in (for_trl, for_verl) for name in package.__all__]


def test_the_installed_versions_are_let_in() -> None:
    for_trl.supported.check()
    for_verl.supported.check()


@pytest.mark.parametrize(("package", "name"), NAMES, ids=[name for _, name in NAMES])
def test_every_name_of_an_integration_is_there_with_its_documentation(package: object, name: str) -> None:
    found = getattr(package, name)
    assert found.__module__.startswith("arl_tangram.integrations.")
    assert inspect.getdoc(found)


def test_the_reference_lists_these_names_and_tells_their_parameters() -> None:
    page = (ROOT / "docs/reference.md").read_text()
    rows = re.findall(r"^\| `integrations\.(verl|trl)\.(\w+)` \| (?:`\w+(\(.*?\))`)?", page, re.MULTILINE)
    packages = {"verl": for_verl, "trl": for_trl}
    assert {(packages[package], name) for package, name, _ in rows} == set(NAMES)
    for package, name, parameters in rows:
        if parameters:
            shown = [(one.name, one.kind, one.default) for one in _parameters(parameters)]
            real = inspect.signature(getattr(packages[package], name)).parameters.values()
            assert shown == [(one.name, one.kind, one.default) for one in real], name


def _parameters(text: str) -> list[inspect.Parameter]:
    names: dict[str, Callable[..., object]] = {}
    exec(f"def shown{text}: ...", names)  # noqa: S102 - our own page
    return list(inspect.signature(names["shown"]).parameters.values())


def test_no_folder_of_the_project_hides_a_package_of_verl() -> None:
    """VeRL decides by `find_spec` what is there, and this project's root is on the path where examples run."""
    hidden = {"megatron", "peft", "recipe", "sglang", "torchtitan", "trl", "vllm", "veomni", "verl"}
    for folder in (ROOT, ROOT / "tests", ROOT / "examples"):
        assert not hidden & {path.stem for path in folder.iterdir() if path.suffix in {"", ".py"}}
