"""verl's workers as actors of Ray, on one pool of containers: limits hold across them, and what is lost is masked."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from docker_engine import EngineApi
from docker_images import Images
from documents import ROOT
from ray_runs import peak
from trainers.programs import Ended, ended
from trainers.tiny_model import write_tiny_model

LIMIT_S = 400
ROLLOUTS, GROUP, FATAL, HANGING, CORES, GRADERS = 16, 4, 5, 9, 2, 1  # as in worker_agent and worker_program
TOOL = """
  - class_name: arl_tangram.integrations.verl.TangramTool
    config: {{type: native, action: "worker_agent:{name}"}}"""


@dataclass(frozen=True, slots=True)
class Played:
    """What a step of rollouts has told."""

    ended: Ended
    told: dict[str, Any]
    bodies: list[dict[str, Any]]
    containers: list[dict[str, Any]]

    def spans(self, kind: str) -> list[tuple[float, float]]:
        return [tuple(body["span"]) for body in self.bodies if body["kind"] == kind]

    def processes(self, kind: str) -> int:
        return len({body["pid"] for body in self.bodies if body["kind"] == kind})


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, docker_url: str, images: Images) -> Played:
    folder = tmp_path_factory.mktemp("workers")
    tools = folder / "tools.yaml"
    tools.write_text("tools:" + "".join(TOOL.format(name=name) for name in ("note", "vanish", "hang")) + "\n")
    image = images.busybox
    short = Path(f"/tmp/wk{os.getpid()}")  # the sockets of Ray have long names
    short.mkdir()
    try:
        done = ended(
            [sys.executable, str(Path(__file__).with_name("worker_program.py")), str(folder / "model"), str(tools)],
            write_tiny_model(folder / "model").parent,
            {
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(ROOT / "tests"), str(ROOT)]),
                "TMPDIR": str(short),
                "RAY_TMPDIR": str(short),
                "IMAGE": image,
                "URL": docker_url,
                "SPANS": str(folder / "spans"),
            },
            limit_s=LIMIT_S,
        )
    finally:
        shutil.rmtree(short, ignore_errors=True)
    found = re.search(r"\[told\] (.*)", done.output)
    assert found is not None, done.output[-8000:]
    assert done.code == 0, done.output[-8000:]
    bodies = [json.loads(line) for line in (folder / "spans").read_text().splitlines()]
    containers = [each for each in EngineApi(docker_url).containers() if each["Image"] == image]
    return Played(done, json.loads(found[1]), bodies, containers)


@pytest.mark.timeout(LIMIT_S + 60)
def test_cores_and_quotas_hold_across_workers(played: Played) -> None:
    assert played.processes("tool") == 2 + 1  # the last one has the rollouts that are scored in their sandboxes
    assert played.processes("grade") == 2
    assert peak(played.spans("tool")) == CORES
    assert peak(played.spans("grade")) == GRADERS


def test_a_rollout_keeps_its_files_and_has_a_sandbox_of_its_own(played: Played) -> None:
    answers = played.told["answers"]
    assert [answers[n] for n in range(ROLLOUTS) if n not in {FATAL, HANGING}] == ["2"] * (ROLLOUTS - 2)
    assert played.told["tools"][0] == {"note": {"calls": 2, "failures": 0}}


def test_a_rollout_whose_container_is_killed_is_masked_and_the_mean_of_its_group_is_not_changed(played: Played) -> None:
    masked, scores, trained = (played.told[key] for key in ("masked", "scores", "trained"))
    assert [n for n in range(ROLLOUTS) if masked[n]] == [FATAL]
    assert trained[FATAL] == 0
    assert all(count > 0 for n, count in enumerate(trained) if n != FATAL)
    # "2" is the right answer of every other one; two of the three others of its group, numbers 4, 6 and 7, are wrong.
    assert scores[FATAL] == pytest.approx(1 / 3)
    assert [scores[n] for n in range(ROLLOUTS) if n not in {FATAL, HANGING}] == [
        float(n % 2) for n in range(ROLLOUTS) if n not in {FATAL, HANGING}
    ]


def test_a_hung_tool_ends_at_its_time_limit_and_the_model_hears_of_it(played: Played) -> None:
    assert "hang" in played.told["answers"][HANGING]
    assert played.told["tools"][HANGING] == {"hang": {"calls": 1, "failures": 1}}
    assert played.told["scores"][HANGING] == 0


def test_rollouts_are_set_up_and_scored_in_their_own_sandboxes_if_the_job_says_so(played: Played) -> None:
    # A line from the setup and two from the model; the reward workers, which would say "grade", are not asked.
    assert played.told["alone"] == {
        "scores": [3, 3],
        "answers": ["3", "3"],
        "first": ["begun", "begun"],
        "is_known": [True, True],
        "called": [f"tangram/worker_agent.{name}/calls" for name in ("begin", "count", "note")],
    }


def test_the_trainer_is_told_what_the_step_used(played: Played) -> None:
    timing = played.told["timing"]
    assert timing["tangram/masked_samples"] == 1
    assert timing["tangram/worker_agent.note/calls"] == 2 * (ROLLOUTS - 2)
    assert timing["tangram/worker_agent.grade/calls"] == ROLLOUTS - 1
    assert timing["tangram/worker_agent.grade/queueing_s"] > 0


def test_nothing_of_it_is_left(played: Played) -> None:
    assert played.told["left"] == [0, 0, 0]
    assert not [name for name in played.told["actors"] if "tangram" in name]
    assert not played.ended.left
    assert not played.containers
