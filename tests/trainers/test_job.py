"""What the trainer's process does beside the real verl, without Ray: it checks the job, sends prompts, and samples."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_module
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.experimental.agent_loop import agent_loop as verl_loop
from verl.experimental.agent_loop.agent_loop import AgentLoopManager
from verl.utils import tensordict_utils as tu
from verl.workers.config import model as verl_model

import arl_tangram as tangram
from arl_tangram.errors import ConfigurationError, InfrastructureError, OwnerLostError
from documents import ROOT
from trainers.loops import tools_file
from trainers.tiny_model import write_tiny_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # verl warns of each engine that is not installed
    from verl.trainer.ppo.v1 import replay_buffer

    from arl_tangram.integrations.verl import (
        TangramAgentLoopManager,
        TangramBatchAgentLoopManager,
        TangramReplayBuffer,
        TangramReplayBufferAsync,
        batch_manager,
        manager,
        replay,
    )
    from arl_tangram.integrations.verl.__main__ import main as check
    from arl_tangram.integrations.verl.failures import Failures
    from arl_tangram.integrations.verl.manager import opened, with_loop
    from arl_tangram.integrations.verl.owning import Owned

NOTE = "trainers.tool_actions:note"
LOOP = "tangram_tool_agent"


def pools() -> tangram.Tangram:
    return tangram.Tangram(tangram.LocalPool(cores=1))


def config(*lines: str) -> Any:
    """Return the configuration of a job, as verl composes it."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        job = [f"+tangram.pools={__name__}:pools", "actor_rollout_ref.rollout.name=vllm"]
        return compose("ppo_trainer", [*job, *lines])


LINES = [
    f"+tangram.pools={__name__}:pools",
    "actor_rollout_ref.rollout.multi_turn.max_parallel_calls=4",
    "actor_rollout_ref.rollout.multi_turn.max_tool_response_length=4096",
    f"actor_rollout_ref.rollout.agent.default_agent_loop={LOOP}",
    "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=arl_tangram.integrations.verl.TangramAgentLoopManager",
]


def tools_line(path: Path) -> str:
    return f"actor_rollout_ref.rollout.multi_turn.tool_config_path={path}"


# What is wrong with a job is found before anything is opened.


def test_tools_of_one_name_are_refused_before_anything_is_opened(tmp_path: Path) -> None:
    tools = tools_file(tmp_path, {"action": NOTE}, {"action": "trainers.tool_actions:run", "name": "note"})
    with pytest.raises(ConfigurationError, match="more than one is called 'note'"):
        opened(config(tools_line(tools)))


def test_a_tool_that_cannot_be_imported_is_told_with_the_process(tmp_path: Path) -> None:
    tools = tools_file(tmp_path, {"action": "my_missing_agent:note"})
    with pytest.raises(ConfigurationError, match=r"'my_missing_agent:note' cannot be imported in process \d+ on "):
        opened(config(tools_line(tools)))


def test_a_tool_with_limits_of_its_own_is_refused(tmp_path: Path) -> None:
    tools = tools_file(tmp_path, {"action": NOTE, "num_workers": 8})
    with pytest.raises(ConfigurationError, match="each worker would have limits of its own"):
        opened(config(tools_line(tools)))


def test_what_verl_composes_of_dapo_and_our_sampler_is_refused() -> None:
    sampler = "trainer.v1.sampler.custom_sampler"
    with pytest.raises(ConfigurationError, match=r"\+trainer\.v1\.sampler\.sampler_kwargs\.train_batch_size=7"):
        opened(
            config(
                f"{sampler}.path=pkg://arl_tangram.integrations.verl",
                f"{sampler}.name=TangramReplayBuffer",
                "algorithm.filter_groups.enable=True",
                "data.train_batch_size=7",
            )
        )


@pytest.mark.parametrize(
    "text",
    [
        "tools: [{class_name: verl.tools.sandbox_fusion_tools.SandboxFusionTool, config: {type: native}}]",
        "tools: [{class_name: arl_tangram.integrations.verl.TangramTool, config: {action: 'a:b'}}]",
        "tools: [{class_name: arl_tangram.integrations.verl.TangramTools, config: {type: native}}]",
        "tool: []",
    ],
)
def test_a_file_of_tools_that_verl_cannot_load_is_named(text: str, tmp_path: Path) -> None:
    tools = tmp_path / "tools.yaml"
    tools.write_text(text)
    with pytest.raises(
        ConfigurationError, match=rf"the tools of {tools}: .*class_name: that can be imported, and config:"
    ):
        opened(config(tools_line(tools)))


# The same before the job is started.


def test_a_job_can_be_checked_before_its_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools = tools_file(tmp_path, {"action": NOTE, "timeout_s": 9, "name": "remember"})
    words = [*LINES, tools_line(tools)]
    assert check(words) == 0
    told, _ = capsys.readouterr()
    assert f"\ntool remember: {NOTE}, runs for 9 s at most, and waits for 600 s\n" in told
    assert told.endswith(f"\nright, as far as can be seen before its start: tangram.pools={__name__}:pools\n")
    assert "warning" not in told
    assert check([*words, "actor_rollout_ref.rollout.multi_turn.max_parallel_calls=1"]) == 0
    assert "\nwarning: actor_rollout_ref.rollout.multi_turn.max_parallel_calls=1: " in capsys.readouterr().out


def test_the_ten_lines_of_the_how_to_are_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/how-to/use-verl.md").read_text()
    words = page.partition("```text\n")[2].partition("```")[0].split()
    assert len(words) == 10
    folder = ROOT / "examples/verl_grpo/grpo"
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    assert check(words) == 0
    told = capsys.readouterr().out
    assert "\ntool code_interpreter: " in told
    assert "\ntool shell: " in told
    assert "warning" not in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "ConfigurationError: the trainer's configuration has no block `tangram`"),
        ([f"+tangram.pools={__name__}:pools"], "nothing would open the runtime: say +actor_rollout_ref.rollout.agent."),
        (["tangram.pools=my_agent:pools"], "ConfigCompositionException: "),
        (["--config-path", "/no/such/folder"], "MissingConfigException: "),
        ([*LINES, "+tangram.image=???"], "ConfigurationError: the configuration cannot be read: MissingMandatoryValue"),
        ([*LINES, "+tangram.image=${no.such}"], "InterpolationKeyError: Interpolation key 'no.such' not found"),
    ],
)
def test_what_is_wrong_with_it_is_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(words) == 1
    assert told in capsys.readouterr().err


# The workers.


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def test_workers_have_our_loop_whatever_their_tools_are(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[Any] = []
    monkeypatch.setattr(verl_model, "import_external_libs", imported.append)
    job = config(f"actor_rollout_ref.model.path={model}", "actor_rollout_ref.model.external_lib=my_models")

    verl_loop.AgentLoopWorker(with_loop(job), None)

    assert imported == [["my_models", "arl_tangram.integrations.verl.agent_loop"]]
    assert isinstance(imported[0], list)  # what verl asks, before it imports each
    assert job.actor_rollout_ref.model.external_lib == "my_models"
    assert with_loop(config()).actor_rollout_ref.model.external_lib == imported[0][1:]
    assert verl_loop._agent_loop_registry[LOOP]["_target_"] == f"{imported[0][1]}.TangramToolAgentLoop"


# The prompts.


class Runtime:
    """Stands for the shared runtime."""

    is_over, is_open = False, True

    def figures(self) -> Any:
        raise OwnerLostError("it does not answer")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the prompts that verl's own manager is given to send."""
    given: list[str] = []
    monkeypatch.setattr(
        manager.AgentLoopManagerTQ, "generate_sequences", lambda _, prompts: given.extend(map(str, prompts["uid"]))
    )
    return given


def prompts(uids: list[str], step: int, *, validate: bool = False) -> TensorDict:
    """Return a batch as verl's trainers send it."""
    batch = tu.get_tensordict({"uid": np.array(uids, dtype=object), "index": np.arange(len(uids))})
    tu.assign_non_tensor_data(batch, "global_steps", step)
    if validate:
        tu.assign_non_tensor_data(batch, "validate", True)
    return batch


def made(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[TangramAgentLoopManager, list[list[str]]]:
    """Return a manager whose groups are too old after their step, and what it begins to cancel."""
    cancelled: list[list[str]] = []
    monkeypatch.setattr(Owned, "_cancel", lambda _, groups: cancelled.append(groups))
    one = TangramAgentLoopManager.__new__(TangramAgentLoopManager)
    one._owned = Owned(runtime, 2, 1)
    return one, cancelled


def test_stale_groups_are_cancelled_and_those_of_validation_are_not_counted(
    sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, cancelled = made(Runtime(), monkeypatch)
    one.generate_sequences(prompts(["a", "b"], 1))
    one.generate_sequences(prompts(["v"], 2, validate=True))
    assert cancelled == []
    one._owned.ended(["b"])
    one.generate_sequences(prompts(["c"], 2))
    await_threads()
    assert cancelled == [["a"]]
    assert sent == ["a", "b", "v", "c"]


def await_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "arl_tangram cancel":
            thread.join()


@pytest.mark.parametrize("gone", [{"is_over": True}, {"is_open": False}])
def test_no_prompt_is_sent_once_the_runtime_is_gone_for_good(
    gone: dict[str, bool], sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Runtime()
    one, _ = made(runtime, monkeypatch)
    vars(runtime).update(gone)
    for validate in (False, True):
        with pytest.raises(OwnerLostError, match="gone for good"):
            one.generate_sequences(prompts(["a"], 1, validate=validate))
    assert not sent


async def test_what_cannot_be_made_after_the_runtime_was_opened_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(batch_manager, "opened", lambda config: Owned(Runtime(), 2))  # type: ignore[arg-type]
    monkeypatch.setattr(batch_manager, "disown", lambda: closed.append("closed"))
    monkeypatch.setattr(batch_manager, "find_ray", lambda: SimpleNamespace(remote=lambda kind: kind))

    def refuses(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    async def refuses_later(_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(AgentLoopManager, "_init_agent_loop_workers", refuses_later)
    with pytest.raises(ZeroDivisionError):
        await TangramBatchAgentLoopManager.create(config(), None)
    assert closed == ["closed"]
    monkeypatch.setattr(AgentLoopManager, "__init__", refuses)
    with pytest.raises(ZeroDivisionError):
        await TangramBatchAgentLoopManager.create(config(), None)
    assert closed == ["closed"] * 2


# The batches.


class Queue:
    """Stands for verl's transfer queue: of the groups that it is asked for, the next `bad` ones fail, all at once."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, Any]] = {}
        self.asked = 0
        self.bad = 0

    def refill(self, count: int) -> None:
        for _ in range(count):
            self.asked += 1
            uid = f"group{self.asked}"
            status = "failure" if self.bad else "finished"
            self.bad = max(self.bad - 1, 0)
            self.tags[uid] = {"is_prompt": True, "status": status, "global_steps": 1}
            if status == "finished":
                self.tags[f"{uid}_0_0"] = {"status": "success", "global_steps": 1}

    def kv_list(self) -> dict[str, Any]:
        return {"train": dict(self.tags)}

    def kv_clear(self, *, partition_id: str, keys: list[str]) -> None:
        for key in keys:
            self.tags.pop(key, None)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 100
        return self.now_s


KINDS = {"sync": (TangramReplayBuffer, {"sync_refill_failed_groups": True}), "async": (TangramReplayBufferAsync, {})}


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue()
    for name in ("kv_list", "kv_clear"):
        monkeypatch.setattr(replay_buffer.tq, name, getattr(queue, name))
    return queue


def buffer(kind: str, queue: Queue) -> Any:
    sampler, kwargs = KINDS[kind]
    made: Any = sampler(
        trainer_mode="sync" if kind == "sync" else "separate_async",
        trainer_config={},
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs=kwargs,
        refill_fn=queue.refill,
    )
    made._failures = Failures(Clock())
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_whose_groups_all_fail_comes_to_an_end(kind: str, queue: Queue) -> None:
    queue.bad = 1000
    queue.refill(4)
    with pytest.raises(InfrastructureError, match=r"4\d groups of rollouts have failed within .*without a batch of 4"):
        buffer(kind, queue).sample(1, "train", 4)
    assert 36 <= queue.asked <= 48


@pytest.mark.parametrize("kind", KINDS)
def test_groups_that_fail_for_a_while_are_replaced(kind: str, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[set[str]] = []
    monkeypatch.setattr(Owned, "ended", lambda _, groups: ended.append(groups))
    owned = Owned(Runtime(), 1)  # type: ignore[arg-type]
    monkeypatch.setattr(replay, "present", lambda: owned)
    sampler = buffer(kind, queue)
    for step in range(1, 4):
        queue.bad = 36
        queue.refill(4)
        batch, metrics = sampler.sample(1, "train", 4)
        assert queue.asked == step * 40
        ours = {name: value for name, value in metrics.items() if name.startswith("tangram/")}
        assert ours == {"tangram/masked_samples": 0, "tangram/cancelled_groups": 0}
        assert ended[-1] == {f"group{step * 40 - number}" for number in range(4)}
        assert len(batch.keys) == 4


def test_a_validation_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    owned = Owned(Runtime(), 4)  # type: ignore[arg-type]
    monkeypatch.setattr(replay, "present", lambda: owned)
    monkeypatch.setattr(Owned, "ended", None)
    lost_one = KVBatchMeta(partition_id="val", keys=["v_0_0"], tags=[{}])
    assert replay._with_figures(lost_one, {"theirs": 1}, 1) == {"theirs": 1}
