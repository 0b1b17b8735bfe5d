"""The integrations of trainers say which versions they work with, and refuse others by name."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest

import arl_tangram.integrations.trl
import arl_tangram.integrations.verl
from arl_tangram import MissingExtraError


def _installed(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    def tell(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", tell)


@pytest.mark.parametrize("version", ["0.8.0", "0.9.0", "0.9.2", "0.10", "1.0"])
def test_a_verl_outside_the_range_is_refused_with_both_versions(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, version)
    with pytest.raises(MissingExtraError) as caught:
        _ = arl_tangram.integrations.verl.TangramTool
    assert str(caught.value) == (
        f"arl_tangram.integrations.verl works with verl >=0.9.1,<0.9.2, and verl {version} is installed: "
        "pip install 'arl-tangram[verl]'"
    )
    assert "verl" not in sys.modules


@pytest.mark.parametrize("version", ["1.15.2", "1.17.0", "0.9.1", "2"])
def test_a_trl_outside_the_range_is_refused_with_both_versions(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, version)
    with pytest.raises(MissingExtraError, match=f"works with trl >=1.16,<1.17, and trl {version} is installed"):
        _ = arl_tangram.integrations.trl.batch_reward


def test_none_at_all_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, None)
    with pytest.raises(MissingExtraError, match="and verl is not installed: pip install 'arl-tangram\\[verl\\]'"):
        _ = arl_tangram.integrations.verl.compute_score


@pytest.mark.parametrize("version", ["0.9.1", "0.9.1.post1", "0.9.1+cpu", "0.9.1.0"])
def test_builds_of_a_supported_release_are_let_in(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, version)
    arl_tangram.integrations.verl.supported.check()


@pytest.mark.parametrize("version", ["1.16", "1.16.0", "1.16.7"])
def test_every_patch_of_a_supported_minor_is_let_in(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, version)
    arl_tangram.integrations.trl.supported.check()


def test_a_name_that_is_not_there_is_an_attribute_error_with_any_version(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, None)
    for package in (arl_tangram.integrations.verl, arl_tangram.integrations.trl):
        assert not hasattr(package, "no_such_name")
