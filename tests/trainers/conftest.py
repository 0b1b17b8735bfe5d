"""Tests beside the real VeRL and TRL, which the session `trainers` installs; elsewhere there is nothing to collect."""

from __future__ import annotations

import importlib
import warnings
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("verl") and find_spec("trl") else ["test_*.py"]
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
