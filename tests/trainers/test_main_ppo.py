"""verl's own training program, two steps of GRPO on a CPU, with nothing of ours but the lines of the how-to."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra import compose, initialize_config_module

from arl_tangram.integrations.verl.checks import check_job
from arl_tangram.integrations.verl.settings import read_settings
from documents import ROOT, blocks
from ray_runs import peak
from trainers.programs import Ended, ended
from trainers.tiny_model import write_tiny_model

EXAMPLE = ROOT / "examples/verl_grpo/grpo"
HOW_TO = ROOT / "docs/how-to/use-verl.md"
LIMIT_S = 700
STEPS = 2
PROMPTS, ROLLOUTS = 4, 2
CORES = 2
DEADLINE_S = 20  # the other rollouts of that step need a few, on the other core
TOOL_S = 60  # the time limit of the tool that hangs
TOO_LONG = "I was told: Error: code_interpreter ran for too long and was stopped"

# What makes the example run here: a tiny model, a script in the place of the engine, one "GPU", little of everything.
HERE = [
    "actor_rollout_ref.rollout.name=scripted",
    f"actor_rollout_ref.rollout.n={ROLLOUTS}",
    "actor_rollout_ref.rollout.agent.num_workers=2",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.rollout.free_cache_engine=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=eager",
    "actor_rollout_ref.model.use_remove_padding=False",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.use_kl_loss=False",
    f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.actor.fsdp_config.model_dtype=float32",
    "actor_rollout_ref.actor.fsdp_config.dtype=float32",
    "actor_rollout_ref.actor.optim.lr=1e-3",
    "data.max_prompt_length=2048",
    "data.max_response_length=1024",
    "data.dataloader_num_workers=0",
    "data.filter_overlong_prompts_workers=1",
    "reward.num_workers=2",
    "trainer.n_gpus_per_node=1",
    "trainer.logger=[console]",
    "trainer.val_before_train=True",
    "trainer.validation_data_dir=validation",
    "trainer.rollout_data_dir=rollouts",
    "trainer.save_freq=-1",
    f"trainer.total_training_steps={STEPS}",
    "trainer.default_local_dir=checkpoints",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "ray_kwargs.ray_init.num_cpus=6",
    "+ray_kwargs.ray_init.num_gpus=1",
    "+ray_kwargs.ray_init.address=local",  # never a cluster that happens to run on this machine
    "+ray_kwargs.ray_init.include_dashboard=False",
]
# What the block `tangram` can say beside the pools.
MORE = [f"+tangram.deadline_s={DEADLINE_S}", "+tangram.setup=grpo_agent:prepare"]


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training has left.

    Attributes:
        ended: how its program ended.
        bodies: when each body ran.
        validated, rolled_out: the rows of the validation, and of both steps.
    """

    ended: Ended
    bodies: list[dict[str, Any]]
    validated: list[dict[str, Any]]
    rolled_out: list[dict[str, Any]]

    def processes(self, kind: str) -> int:
        return len({body["pid"] for body in self.bodies if body["kind"] == kind})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("ppo")
    job = shutil.copytree(EXAMPLE, folder / "job")
    # A command can end its sandbox without isolation.
    _change(job / "my_agent.py", "LocalPool(cores=2", f'LocalPool(isolation="none", cores={CORES}')
    _change(job / "my_agent.py", "def grade", "@grpo_agent.watched\ndef grade")
    _change(job / "my_agent.py", "import arl_tangram", "import grpo_agent\n\nimport arl_tangram")
    # By this name the class brings no loop with it: the workers have it only because the manager has them import it.
    _change(job / "tools.yaml", "verl.TangramTool", "verl.tool.TangramTool")
    write_tiny_model(folder / "model")
    short = Path(f"/tmp/ppo{os.getpid()}")  # the sockets of Ray have long names
    short.mkdir()
    try:
        done = ended(
            ["sh", str(job / "run.sh"), *HERE, *MORE],
            folder,
            {
                "MODEL": str(folder / "model"),
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(ROOT)]),
                "SCRIPT": "grpo_script:says",
                "SPANS": str(folder / "spans"),
                "TMPDIR": str(short),
                "RAY_TMPDIR": str(short),
                "VERL_USE_EXTERNAL_MODULES": "cpu_plugin",
                "VERL_PLATFORM": "cpu",
                "VERL_ENGINE_DEVICE": "cuda",
            },
            limit_s=LIMIT_S,
        )
        assert done.code == 0, done.output[-8000:]
        assert not list(short.glob("arl_tangram*/*"))  # the folders of sandboxes
        return Trained(
            done,
            _lines(folder / "spans"),
            _lines(job / "validation/0.jsonl"),
            _rows(job / "rollouts", range(1, STEPS + 1)),
        )
    finally:
        shutil.rmtree(short, ignore_errors=True)


def _change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _rows(folder: Path, steps: range) -> list[dict[str, Any]]:
    rows = [row for step in steps for row in _lines(folder / f"{step}.jsonl")]
    return [row for row in rows if not row["uid"].startswith("pad")]  # with which verl fills up a batch


def metrics(trained: Trained) -> list[dict[str, float]]:
    """Return what verl has logged of the validation before the training, and of each step."""
    found: list[dict[str, float]] = []
    for line in re.findall(r"step:\d+ - .*", trained.ended.output):
        pairs = re.findall(r"(\S+?):(?:np\.\w+\()?(-?[\d.]+(?:e-?\d+)?)", line)
        found.append({name: float(value) for name, value in pairs})
    return found


@pytest.mark.timeout(LIMIT_S + 60)
def test_the_pool_holds_for_the_bodies_of_all_workers(trained: Trained) -> None:
    spans = [tuple(body["span"]) for body in trained.bodies]
    assert {body["kind"] for body in trained.bodies} == {"setup", "tool", "grade"}
    assert trained.processes("setup") == trained.processes("grade") == 2
    assert 1 < peak(spans) <= CORES


def test_the_lost_rollout_has_no_row_and_the_others_are_trained_on(trained: Trained) -> None:
    _, *steps = metrics(trained)
    assert [step["step"] for step in steps] == [1, 2]
    assert sorted(step["tangram/masked_samples"] for step in steps) == [0, 1]
    assert [step["tangram/cancelled_groups"] for step in steps] == [0, 0]
    assert all(0 < step["critic/score/mean"] < 1 for step in steps)
    assert all(step["actor/grad_norm"] > 0 for step in steps)
    assert len(trained.rolled_out) == STEPS * PROMPTS * ROLLOUTS - 1


def test_a_rollout_keeps_its_files_and_a_lost_one_does_not_count_in_the_validation(trained: Trained) -> None:
    assert [row["score"] for row in trained.validated] == [1.0] * (STEPS * PROMPTS - 1)
    assert {row["tangram_error"] for row in trained.validated} == {""}
    assert metrics(trained)[0]["val-core/products/reward/mean@1"] == 1


def test_a_hung_tool_ends_with_the_deadline_of_its_rollout_and_the_model_is_told(trained: Trained) -> None:
    (hung,) = [row for row in trained.rolled_out if TOO_LONG in row["output"]]
    assert hung["score"] == 0
    assert metrics(trained)[hung["step"]]["timing_s/gen"] < TOOL_S  # it would be longer without the deadline


def test_the_log_has_what_each_action_cost_and_how_much_of_the_pool_was_held(trained: Trained) -> None:
    calls = "tangram/arl_tangram.integrations.rollouts.sandbox_tools.python/calls"
    _, *steps = metrics(trained)
    rollouts = STEPS * PROMPTS * (1 + ROLLOUTS)  # with those of the validation, of which one is lost, as later on
    assert sum(step[calls] for step in steps) == 2 * (rollouts - 3) + 1
    assert sum(step["tangram/grpo_agent.prepare/calls"] for step in steps) == rollouts
    assert all(step["tangram/my_agent.grade/execution_s"] > 0 for step in steps)
    assert all(0 < step["tangram/cpu/held_share"] <= 1 for step in steps)


def test_the_weights_are_brought_to_the_engine_before_each_step_and_have_changed(trained: Trained) -> None:
    syncs = re.findall(r"\[weights\] (\d+) (-?[\d.e-]+)", trained.ended.output)
    assert [number for number, _ in syncs] == ["1", "2", "3"]
    assert len({total for _, total in syncs}) == 3


def test_nothing_of_it_is_left(trained: Trained) -> None:
    assert not trained.ended.left


def lines_of_the_how_to() -> list[str]:
    (lines,) = [block.source.split() for block in blocks(HOW_TO) if block.source.startswith("+tangram.pools")]
    return lines


def test_the_lines_of_the_how_to_are_those_that_were_run() -> None:
    lines = lines_of_the_how_to()
    script = re.findall(r"^    ([\w.+]+=\S+) \\$", (EXAMPLE / "run.sh").read_text(), re.MULTILINE)
    assert len(lines) <= 10
    assert script[: len(lines)] == lines
    # Behind them is what any training has, with or without tools.
    others = {line.partition("=")[0].split(".")[0] for line in script[len(lines) :]}
    assert others == {"actor_rollout_ref", "algorithm", "data"}
    assert not [line for line in script[len(lines) :] if "tool" in line or "tangram" in line]
    pages = [block.source for block in blocks(HOW_TO) if block.language == "yaml"]
    assert pages == [(EXAMPLE / "tools.yaml").read_text()]


def test_the_lines_of_the_how_to_are_all(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = lines_of_the_how_to()
    with initialize_config_module("verl.trainer.config", version_base=None):
        job = compose("ppo_trainer", ["actor_rollout_ref.rollout.name=vllm", *lines])
    assert (job.data.tool_config_path, job.data.return_raw_chat) == ("tools.yaml", True)
    monkeypatch.syspath_prepend(EXAMPLE)
    tools = [SimpleNamespace(name=name) for name in ("code_interpreter", "shell")]
    assert check_job(job, read_settings(job), tools) == []
