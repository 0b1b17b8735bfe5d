"""The agent loop: one sandbox for each rollout, its answer, its reward, and what becomes of one that was ended."""

from __future__ import annotations

import asyncio
import runpy
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from verl.tools.base_tool import BaseTool
from verl.tools.function_tool import FUNCTION_TOOL_REGISTRY
from verl.tools.schemas import OpenAIFunctionToolSchema

import arl_tangram as tangram
from arl_tangram.integrations.rollouts import current_rollout
from arl_tangram.integrations.verl import TangramTool, TangramToolAgentLoop, compute_score, function_tool
from arl_tangram.integrations.verl.agent_loop import _Ending
from arl_tangram.testing import FakePool, assert_idle
from documents import ROOT
from trainers import tool_actions
from trainers.loops import calls, make_loop, sample, tool_texts
from trainers.scripted import tool_call
from trainers.tiny_model import write_tiny_model

ACTIONS = "trainers.tool_actions"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def tool(name: str, **config: Any) -> TangramTool:
    return TangramTool({"type": "native", "action": f"{ACTIONS}:{name}", **config})


def rollout_of(
    model: Path, answer: Any, *tools: Any, settings: Mapping[str, Any] | None = None, **multi_turn: Any
) -> TangramToolAgentLoop:
    made: TangramToolAgentLoop = make_loop(TangramToolAgentLoop, model, answer, tools, settings=settings, **multi_turn)
    return made


NOTES = calls([("note", {"line": "first"})], [("note", {"line": "second"})], then="The answer is 42.")


# The sandbox of a rollout.


async def test_calls_of_one_rollout_share_a_sandbox_and_another_rollout_has_its_own(model: Path) -> None:
    note = tool("note")  # one for the worker, as in verl
    loops = [rollout_of(model, NOTES, note) for _ in range(2)]
    async with tangram.Tangram(tangram.LocalPool(cores=1)) as tg:
        outputs = await asyncio.gather(*(loop.run({}, **sample(uid=f"p{n}")) for n, loop in enumerate(loops)))
        assert [tool_texts(loop, output) for loop, output in zip(loops, outputs, strict=True)] == [
            ["first", "first\nsecond"]
        ] * 2
        assert_idle(tg)
    assert outputs[0].num_turns == 6
    assert outputs[0].extra_fields["tangram_tools"] == {"note": {"calls": 2, "failures": 0}}
    assert outputs[0].extra_fields["tangram_masked"] is False


async def test_calls_of_one_turn_are_in_the_sandbox_one_after_the_other(model: Path) -> None:
    answer = calls([("note", {"line": "a"}), ("note", {"line": "b"}), ("note", {"line": "c"})])
    loop = rollout_of(model, answer, tool("note"))
    async with tangram.Tangram(tangram.LocalPool(cores=1)):
        output = await loop.run({}, **sample())
    assert tool_texts(loop, output) == ["a", "a\nb", "a\nb\nc"]


async def test_function_tools_are_in_the_rollouts_sandbox_too(model: Path) -> None:
    function_tool(tool_actions.note)
    loop = rollout_of(model, NOTES, FUNCTION_TOOL_REGISTRY.pop("note"))
    async with tangram.Tangram(tangram.LocalPool(cores=1)):
        output = await loop.run({}, **sample())
    assert tool_texts(loop, output) == ["first", "first\nsecond"]
    assert output.extra_fields["tangram_tools"] == {"note": {"calls": 2, "failures": 0}}


async def test_setup_and_reward_run_in_the_rollouts_sandbox(model: Path) -> None:
    settings = {"setup": f"{ACTIONS}:prepare", "reward": f"{ACTIONS}:count_notes"}
    loop = rollout_of(model, NOTES, tool("note"), settings=settings)
    async with tangram.Tangram(tangram.LocalPool(cores=1)):
        output = await loop.run({}, **sample(question="Why?", reward_model={"ground_truth": "42"}))
    assert tool_texts(loop, output) == ["Why?\nfirst", "Why?\nfirst\nsecond"]
    assert output.reward_score == 1.0
    assert output.extra_fields["reward_extra_info"] == {"score": 1.0, "tangram_error": "", "lines": 3.0}
    row = output.as_dict()  # what the v1 trainer keeps, and trains on
    assert row["rm_scores"].tolist() == [0.0] * (len(output.response_ids) - 1) + [1.0]
    assert row["extra_fields"]["reward_extra_info"]["score"] == 1.0


async def test_a_reward_worker_is_told_of_which_image_the_sandbox_was(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, Any]] = []
    trajectory = tangram.Tangram.trajectory

    def noted(self: tangram.Tangram, *, image: str | None = None, memory_gib: float = 0, **others: Any) -> Any:
        asked.append((image, memory_gib))
        return trajectory(self, **others)

    monkeypatch.setattr(tangram.Tangram, "trajectory", noted)
    loop = rollout_of(model, calls([("add", {"a": 1})]), tool("add"), settings={"image": "swe:1", "memory_gib": 2})
    for own, expected in (({}, ("swe:1", 2.0)), ({"tangram": {"image": "other"}}, ("other", 2.0))):
        async with tangram.Tangram(FakePool()):
            output = await loop.run({}, **sample(extra_info=own))
            extra = {**own, **output.extra_fields}  # as verl's reward managers make it
            scored = await compute_score("toy", "", "", extra, action=f"{ACTIONS}:scored_in_sandbox")
        assert scored["score"] == 1.0
        assert asked == [expected, expected]
        asked.clear()


async def test_the_reward_sees_the_last_answer_apart_from_tool_output(model: Path) -> None:
    # The tool says 42, the model does not: "42 in the response" would be right for the wrong reason.
    answer = calls([("note", {"line": "42"})], then="I do not know.")
    loop = rollout_of(model, answer, tool("note"), settings={"reward": f"{ACTIONS}:count_notes"})
    async with tangram.Tangram(tangram.LocalPool(cores=1)):
        output = await loop.run({}, **sample(reward_model={"ground_truth": "42"}))
    assert output.extra_fields["tangram_answer"] == "I do not know."
    assert output.reward_score == 0.0
    assert "42" in loop.tokenizer.decode(output.response_ids)


async def test_a_rollout_that_ends_in_a_call_has_that_as_its_answer(model: Path) -> None:
    said = tool_call("note", line="again")
    loop = rollout_of(model, lambda *_: said, tool("note"), max_assistant_turns=2)
    async with tangram.Tangram(tangram.LocalPool(cores=1)):
        output = await loop.run({}, **sample())
    assert output.extra_fields["tangram_answer"] == said


async def test_what_verl_makes_of_a_rollout_is_what_its_own_loop_makes(model: Path) -> None:
    from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop

    made = []
    for kind in (ToolAgentLoop, TangramToolAgentLoop):
        loop = make_loop(kind, model, calls([("add", {"a": 1})], then="2"), [tool("add")])
        async with tangram.Tangram(FakePool()):
            made.append(await loop.run({"logprobs": True}, **sample()))
    for field in ("prompt_ids", "response_ids", "response_mask", "response_logprobs", "num_turns", "reward_score"):
        assert getattr(made[0], field) == getattr(made[1], field)
    assert made[0].extra_fields.items() <= made[1].extra_fields.items()


# What comes from the dataset.


async def test_what_a_tool_takes_from_the_dataset_must_be_there(model: Path) -> None:
    loop = rollout_of(model, calls([("told", {"question": "Q"})]), tool("told", given=["secret", "size"]))
    async with tangram.Tangram(FakePool()):
        given = {"told": {"create_kwargs": {"secret": "s", "size": 1}}}
        assert tool_texts(loop, await loop.run({}, **sample(tools_kwargs=given))) == ["Q s 1"]
        with pytest.raises(tangram.ConfigurationError, match=r"'told' takes secret from the dataset.*holds other"):
            await loop.run({}, **sample(tools_kwargs={"told": {"create_kwargs": {"other": 1}}}))
        with pytest.raises(tangram.ConfigurationError, match=r"'told' takes secret .* holds nothing"):
            await loop.run({}, **sample())
        # verl's own column that selects the tools of a sample
        selected = await loop.run({}, **sample(extra_info={"tool_selection": ["other"]}))
        assert selected.extra_fields["tangram_tools"] == {}


async def test_an_image_of_a_sample_needs_a_pool_with_images(model: Path) -> None:
    loop = rollout_of(model, NOTES, tool("note"))
    async with tangram.Tangram(tangram.LocalPool(cores=1)):
        with pytest.raises(tangram.ConfigurationError, match=r"python:3\.12"):
            await loop.run({}, **sample(extra_info={"tangram": {"image": "python:3.12"}}))


async def test_what_no_pool_can_meet_ends_the_rollout_and_is_not_told_to_the_model(model: Path) -> None:
    loop = rollout_of(model, NOTES, tool("note"))
    async with tangram.Tangram(tangram.Quota("search", concurrency=1)):  # no pool of cores
        with pytest.raises(tangram.InfeasibleError):
            await loop.run({}, **sample())


async def test_a_tool_on_another_runtime_is_refused(model: Path) -> None:
    with pytest.raises(tangram.ConfigurationError, match=r"'note' names the runtime 'other'.*'tangram'"):
        rollout_of(model, NOTES, tool("note", runtime="other"))
    rollout_of(model, NOTES, tool("note", runtime="other"), settings={"name": "other"})


# What the infrastructure ends.


def breaking(model: Path) -> TangramToolAgentLoop:
    answer = calls([("add", {"a": 1}), ("fails", {"how": "SandboxLostError"})], [("add", {"a": 2})])
    return rollout_of(model, answer, tool("add"), tool("fails"))


async def test_what_the_infrastructure_ends_has_no_row_in_verls_v1_trainer(model: Path) -> None:
    loop = breaking(model)
    async with tangram.Tangram(FakePool()) as tg:
        with pytest.raises(tangram.SandboxLostError, match="0123abcd"):
            await loop.run({}, **sample(uid="p", session_id=3))
        assert_idle(tg)
    assert len(loop.server_manager.prompts) == 1  # nothing more was asked of the model


@pytest.mark.parametrize("logprobs", [True, False])
async def test_what_the_infrastructure_ends_is_a_masked_row_in_verls_base_worker(model: Path, logprobs: bool) -> None:
    whole = rollout_of(model, calls([("add", {"a": 1})]), tool("add"), tool("fails"))
    loop = breaking(model)
    async with tangram.Tangram(FakePool()):
        good = await whole.run({"logprobs": logprobs}, **sample(uid="p"))
        output = await loop.run({"logprobs": logprobs}, **sample(uid="p"))
    assert output.response_mask == [0]
    assert output.prompt_ids == good.prompt_ids
    assert (output.response_logprobs is None) == (good.response_logprobs is None) == (not logprobs)
    assert output.reward_score == 0.0
    assert output.extra_fields["tangram_masked"] is True
    assert output.extra_fields["tangram_tools"]["fails"] == {"calls": 1, "failures": 1}
    assert good.extra_fields["tangram_masked"] is False


async def test_a_setup_or_reward_that_the_infrastructure_ends_masks_the_rollout(model: Path) -> None:
    for key in ("setup", "reward"):
        loop = rollout_of(model, calls(), settings={key: f"{ACTIONS}:lost"})
        async with tangram.Tangram(FakePool()):
            assert (await loop.run({}, **sample())).extra_fields["tangram_masked"] is True
            with pytest.raises(tangram.SandboxLostError):
                await loop.run({}, **sample(session_id=0))


@pytest.mark.parametrize("key", ["setup", "reward"])
async def test_a_setup_or_reward_without_a_timeout_is_refused(model: Path, key: str) -> None:
    loop = rollout_of(model, calls(), settings={key: f"{ACTIONS}:endless"})
    async with tangram.Tangram(FakePool()):
        with pytest.raises(tangram.ConfigurationError, match=rf"tangram.{key}: .*endless has no timeout"):
            await loop.run({}, **sample())


async def test_a_setup_that_runs_for_too_long_is_not_the_models_doing(model: Path) -> None:
    loop = rollout_of(model, calls(), settings={"setup": f"{ACTIONS}:slow"})
    async with tangram.Tangram(FakePool()):
        with pytest.raises(tangram.SandboxStartError, match="RunTimeout"):
            await loop.run({}, **sample(session_id=0))
    assert not loop.server_manager.prompts


async def test_a_reward_that_raises_is_the_models_doing(model: Path) -> None:
    loop = rollout_of(model, calls(then="no number"), settings={"reward": f"{ACTIONS}:as_number"})
    async with tangram.Tangram(FakePool()):
        output = await loop.run({}, **sample(session_id=0))  # else an answer that cannot be read would hide itself
    assert output.reward_score == 0.0
    assert output.extra_fields["reward_extra_info"] == {"score": 0.0, "tangram_error": "ValueError"}


class Own(BaseTool):
    """A tool of the user's own, which calls an action in the rollout; verl tells the model of what it raises."""

    def __init__(self) -> None:
        function = {"name": "own", "description": "x", "parameters": {"type": "object", "properties": {}}}
        super().__init__({}, OpenAIFunctionToolSchema.model_validate({"type": "function", "function": function}))

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        rollout = current_rollout()
        assert rollout is not None
        await rollout.call(tool_actions.lost)


@pytest.mark.parametrize("turns", [1, 2])
async def test_what_the_infrastructure_ends_in_a_tool_of_the_users_own_has_no_row(model: Path, turns: int) -> None:
    answer = calls([("own", {})], [("add", {"a": 1})])
    loop = rollout_of(model, answer, Own(), tool("add"), max_assistant_turns=turns + 1)
    async with tangram.Tangram(FakePool()):
        with pytest.raises(tangram.SandboxLostError):
            await loop.run({}, **sample(session_id=0))
        assert len(loop.server_manager.prompts) == 1
        assert (await loop.run({}, **sample())).extra_fields["tangram_masked"] is True


async def test_a_reward_that_runs_for_too_long_is_the_models_doing(model: Path) -> None:
    loop = rollout_of(model, calls(), settings={"reward": f"{ACTIONS}:slow"})
    async with tangram.Tangram(FakePool()):
        output = await loop.run({}, **sample(session_id=0))  # else an endless loop in the answer would hide it
    assert output.reward_score == 0.0
    assert output.extra_fields["reward_extra_info"] == {"score": 0.0, "tangram_error": "RunTimeout"}


async def test_what_the_model_brings_about_is_told_to_it_and_not_masked(model: Path) -> None:
    answer = calls([("fails", {"how": "OutOfMemoryError"})], [("fails", {"how": "ValueError"})], [("fails", {})])
    loop = rollout_of(model, answer, tool("fails"))
    async with tangram.Tangram(FakePool()):
        output = await loop.run({}, **sample(session_id=0))
    texts = tool_texts(loop, output)
    assert texts[:2] == ["Error: fails ran out of memory", "Error: fails failed: ValueError: no such thing"]
    assert texts[2].startswith("Error: wrong arguments for fails")
    assert output.extra_fields["tangram_tools"] == {"fails": {"calls": 3, "failures": 3}}
    assert output.extra_fields["tangram_masked"] is False


@pytest.mark.parametrize(
    ("form", "said", "told"),
    [
        ("hermes", '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>', "Unknown function '?'"),
        ("gpt-oss", '{"how": ' + "[" * 1500 + "]" * 1500 + "}", "Invalid JSON in arguments for 'fails'"),
    ],
    ids=["surrogate", "nested"],
)
async def test_a_call_that_would_break_verls_loop_is_told_to_the_model(
    model: Path, form: str, said: str, told: str
) -> None:
    if form == "gpt-oss":
        head = "<|start|>assistant<|channel|>commentary to=functions.fails <|constrain|>json<|message|>"
        said = f"{head}{said}<|call|>"
    loop = rollout_of(model, lambda _prompt, turn: "Done." if turn else said, tool("fails"), format=form)
    async with tangram.Tangram(FakePool()):
        output = await loop.run({}, **sample(session_id=0))  # an error would be a rollout without a row
    assert told in loop.tokenizer.decode(output.response_ids)
    assert output.extra_fields["tangram_masked"] is False


async def test_a_hung_tool_ends_with_the_deadline_and_the_rollout_goes_on(model: Path) -> None:
    answer = calls(
        [("run", {"command": "echo x > notes; sleep 600"})], [("run", {"command": "echo late"})], then="Too late."
    )
    settings = {"deadline_s": 2.0, "reward": f"{ACTIONS}:count_notes"}
    loop = rollout_of(model, answer, tool("run", timeout_s=600), settings=settings)
    begun_s = time.monotonic()
    async with tangram.Tangram(tangram.LocalPool(cores=1)):
        output = await loop.run({}, **sample(session_id=0, reward_model={"ground_truth": "late"}))
    assert 2.0 <= time.monotonic() - begun_s < 60
    assert tool_texts(loop, output) == [
        "Error: run ran for too long and was stopped",
        "Error: run was not called: the time for this task is over",
    ]
    assert output.extra_fields["tangram_answer"] == "Too late."
    assert output.reward_score == 1.0  # its reward has its own time


async def test_waiting_beyond_the_deadline_masks_the_rollout(model: Path) -> None:
    loop = rollout_of(model, calls([("add", {"a": 1})]), tool("add"), settings={"deadline_s": 2.0})
    async with tangram.Tangram(FakePool(cores=1)):
        held, end = asyncio.Event(), asyncio.Event()
        body = asyncio.create_task(tool_actions.hold(held, end))
        await held.wait()
        try:
            with pytest.raises(tangram.QueueTimeout):
                await loop.run({}, **sample(session_id=0))
        finally:
            end.set()
            await body


async def test_cancelling_a_rollout_ends_its_tools_and_its_sandbox(model: Path) -> None:
    tool_actions.begin.clear()
    loop = rollout_of(model, calls([("wait", {})]), tool("wait"))
    async with tangram.Tangram(FakePool()) as tg:
        playing = asyncio.create_task(loop.run({}, **sample()))
        while not tool_actions.begin.is_set():  # noqa: ASYNC110 - the body tells of it on this loop
            await asyncio.sleep(0)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        assert_idle(tg)


async def test_who_cancels_a_rollout_sees_that_though_the_infrastructure_ends_it_too() -> None:
    ending = _Ending()
    played = asyncio.create_task(ending.of(asyncio.create_task(asyncio.Event().wait())))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    ending.end(tangram.SandboxLostError("gone"))
    played.cancel()
    with pytest.raises(asyncio.CancelledError):  # else a worker that shuts down would get a row
        await played


async def test_a_cancelled_group_masks_its_rollouts_at_their_next_call(model: Path) -> None:
    tool_actions.begin.clear()
    loop = rollout_of(model, calls([("wait", {})]), tool("wait"))
    async with tangram.Tangram(FakePool()) as tg:
        playing = asyncio.create_task(loop.run({}, **sample(uid="stale", session_id=0)))
        while not tool_actions.begin.is_set():  # noqa: ASYNC110 - the body tells of it on this loop
            await asyncio.sleep(0)
        assert await tg.cancel_group("stale") == 1
        with pytest.raises(tangram.GroupCancelledError):
            await playing


# One loop for all rollouts of a worker.


async def test_a_blocking_tool_does_not_stall_other_rollouts(model: Path) -> None:
    tool_actions.gate.clear()
    slow = rollout_of(model, calls([("block", {})]), tool("block"))
    quick = rollout_of(model, calls([("add", {"a": 1})]), tool("add"))
    async with tangram.Tangram(FakePool()):
        blocked = asyncio.create_task(slow.run({}, **sample()))
        output = await quick.run({}, **sample())  # would never end if the first held the loop
        assert tool_texts(quick, output) == ['{"sum": 2}']
        assert not blocked.done()
        tool_actions.gate.set()
        assert tool_texts(slow, await blocked) == ["open"]


# The example.


def test_the_example_plays_a_rollout(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = ROOT / "examples/verl_grpo/tool_agent.py"
    monkeypatch.setattr(sys, "argv", [str(example), str(model)])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out == example.with_suffix(".out").read_text()
