"""Tests beside the real VeRL and TRL, which the session `trainers` installs; elsewhere there is nothing to collect."""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings

import pytest


def _is_installed(distribution: str) -> bool:
    """Look at the metadata: a folder of that name on the path would be found by `find_spec`, too."""
    return next(importlib.metadata.Distribution.discover(name=distribution), None) is not None


collect_ignore_glob = [] if _is_installed("verl") and _is_installed("trl") else ["test_*.py"]
if not collect_ignore_glob:
    with warnings.catch_warnings():  # what VeRL and Ray warn of when they are imported, which no mark of a test reaches
        warnings.simplefilter("ignore")
        importlib.import_module("verl.experimental.agent_loop")

# What other people's code warns of is theirs; what nobody awaited, closed or saw stays a failure.
_THEIRS = ["ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"]
_OURS = ["error::DeprecationWarning:arl_tangram", "error::pytest.PytestUnraisableExceptionWarning"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            for line in [*_THEIRS, *_OURS]:
                item.add_marker(pytest.mark.filterwarnings(line))
