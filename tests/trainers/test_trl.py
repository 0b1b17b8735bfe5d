"""TRL's GRPOTrainer with our rewards and rollouts: two steps on a CPU in each of the ways that `trl_program` has."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from documents import ROOT
from trainers.programs import Ended, ended

PROGRAM = Path(__file__).with_name("trl_program.py")
CORES, BATCH, STEPS = 2, 8, 2


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    return ended([sys.executable, str(PROGRAM)], tmp_path_factory.mktemp("trl"), environment, limit_s=280)


@pytest.fixture(scope="module")
def ways(program: Ended) -> dict[str, dict[str, Any]]:
    assert program.code == 0, program.output[-6000:]
    found = [json.loads(line.removeprefix("FOUND ")) for line in program.output.splitlines() if line[:6] == "FOUND "]
    return {way["name"]: way for way in found}


pytestmark = pytest.mark.timeout(300)


def test_nothing_is_left_of_the_program(program: Ended, ways: dict[str, dict[str, Any]]) -> None:
    assert program.left == []
    assert {name: way["left"] for name, way in ways.items()} == dict.fromkeys(ways, 0)


def _total(way: dict[str, Any], ending: str) -> float:
    """Return the sum of a number over all steps."""
    return sum(value for log in way["logs"] for name, value in log.items() if name.endswith(ending))


def test_a_batch_reward_is_trained_on_and_its_calls_are_logged(ways: dict[str, dict[str, Any]]) -> None:
    plain = ways["plain"]
    assert plain["steps"] == STEPS
    assert plain["changed"] > 0
    assert plain["calls"] == _total(plain, ".length/calls") == BATCH * STEPS
    assert all(log["reward_std"] > 0 and log["grad_norm"] > 0 for log in plain["logs"])
    assert _total(plain, "tangram/masked_samples") == 0


def test_rollouts_generate_with_the_trainers_own_model(ways: dict[str, dict[str, Any]]) -> None:
    by_model = ways["by_model"]
    assert by_model["changed"] > 0
    assert by_model["calls"] == BATCH * STEPS  # a random model calls no tools
    lengths = [log["completions/max_length"] for log in by_model["logs"]]
    assert all(0 < length <= 24 for length in lengths)


def test_tools_of_different_rollouts_run_at_once_but_never_on_more_cores_than_there_are(
    ways: dict[str, dict[str, Any]],
) -> None:
    assert ways["scripted"]["peak"] == CORES
    assert ways["scripted"]["boxes"] == BATCH * STEPS  # each rollout has its own, and keeps it over its turns


def test_weights_change_by_what_tools_brought(ways: dict[str, dict[str, Any]]) -> None:
    first, second = ways["scripted"]["logs"]
    assert first["reward"] == pytest.approx(0.5)
    assert ways["scripted"]["changed"] > 0
    assert first["grad_norm"] > 0
    assert second["grad_norm"] > 0


def test_a_lost_sandbox_masks_its_rollout_and_the_others_train(ways: dict[str, dict[str, Any]]) -> None:
    first, second = ways["scripted"]["logs"]
    assert (first["tangram/masked_samples"], second["tangram/masked_samples"]) == (0, 1)
    # The lost one would have been right: 3 of 7 are, and it counts as neither right nor wrong.
    assert second["reward"] == pytest.approx(3 / 7)
    calls = [value for name, value in second.items() if name.endswith(".right/calls")]
    assert calls == [BATCH - 1]


def test_a_batch_of_which_nothing_is_left_changes_nothing(ways: dict[str, dict[str, Any]]) -> None:
    lost = ways["all_lost"]
    assert lost["changed"] == 0
    assert all(math.isfinite(log["loss"]) for log in lost["logs"])
    assert _total(lost, "tangram/masked_samples") == BATCH * STEPS
