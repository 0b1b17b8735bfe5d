"""What is shipped: the metadata, the type marker, the licence, the extras and the change log."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import arl_tangram

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Libraries that would pull gigabytes, or that belong to extras of their own.
HEAVY = {"torch", "ray", "verl", "trl", "vllm", "sglang", "transformers"}


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~; ]", requirement)[0].lower() for requirement in requirements}


def test_the_installed_package_is_this_checkout() -> None:
    assert Path(arl_tangram.__file__).parent == ROOT / "arl_tangram"
    assert importlib.metadata.version("arl-tangram") == arl_tangram.__version__


def test_type_information_is_shipped() -> None:
    assert importlib.resources.files("arl_tangram").joinpath("py.typed").is_file()


def test_the_licence_is_named_and_there() -> None:
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_only_these_extras_are_heavy() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert not HEAVY & _names(PROJECT["project"]["dependencies"])
    found = {name: HEAVY & _names(needs) for name, needs in extras.items()}
    assert found == {
        "demo": set(),
        "gpu": {"torch"},
        "ray": {"ray"},
        "bench": {"ray"},
        "plot": set(),
        "verl": {"verl", "ray"},
        "trl": {"trl"},
    }


def test_the_change_log_tells_of_this_version() -> None:
    assert f"## [{arl_tangram.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_importing_the_package_imports_no_optional_library() -> None:
    optional = HEAVY | {"pytest", "hypothesis", "matplotlib"}
    ours = ", ".join(f"arl_tangram.integrations.{name}" for name in ("ray", "trl", "verl"))
    program = f"import sys, arl_tangram, {ours}; print(sorted({optional!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there_and_listed_once() -> None:
    names = arl_tangram.__all__
    assert sorted(set(names)) == sorted(names)
    assert [name for name in names if not hasattr(arl_tangram, name)] == []
