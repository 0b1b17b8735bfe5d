"""Rollouts with tools: which tokens are trained on, what the model is told, and what a failure leaves of them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import arl_tangram as tangram
from arl_tangram.integrations.rollouts import Tool
from arl_tangram.integrations.trl.batch import _cancelled, columns_of, play_all
from arl_tangram.integrations.trl.episode import Episode, Plan
from arl_tangram.integrations.trl.turns import Said
from arl_tangram.testing import FakePool
from unit.trl.word_chat import WordChat


@tangram.action(cpu=1, timeout=5)
async def keep(word: str) -> str:
    """Keep a word in the sandbox, and tell which one was kept before.

    Args:
        word: to keep.
    """
    box = tangram.current_sandbox()
    if word == "lost":
        raise tangram.SandboxLostError("the sandbox is gone")
    if word == "bad":
        raise ValueError("no such word")
    try:
        before = (await box.read_file("word")).decode()
    except FileNotFoundError:
        before = "nothing"
    await box.write_file("word", word.encode())
    return before


@tangram.action(cpu=1, timeout=5)
async def prepare(prompt: list[dict[str, str]]) -> None:
    await tangram.current_sandbox().write_file("word", prompt[0]["content"].split()[-1].encode())


Script = Callable[[str], str]


def _played(
    prompts: Sequence[str], script: Script, chat: WordChat | None = None, *, logprobs: bool = False, **plan: object
) -> list[Episode]:
    """Play rollouts with a model that says what a script answers to all that was said before."""
    speaks = chat or WordChat()

    def generate(asked: list[list[int]]) -> list[Said]:
        said = [[*speaks.ids(script(speaks.text(ids))), speaks.end_id] for ids in asked]
        return [Said(ids, [-0.5] * len(ids) if logprobs else None) for ids in said]

    tools = {"keep": Tool.declare(keep)}
    whole = Plan(**({"tools": tools, "setup": None, "max_turns": 4, "max_tokens": 99, "max_context": 999} | plan))  # type: ignore[arg-type]
    conversations = [[{"role": "user", "content": prompt}] for prompt in prompts]
    with tangram.Tangram(FakePool(cores=4)) as runtime:
        episodes = play_all(conversations, whole, speaks, generate, "tangram")
        assert runtime.statistics().trajectories == 0
    return episodes


def _calls_once(call: str) -> Script:
    return lambda context: f"so {context.split('=')[-1]}" if "=" in context else f"well {call}"


def test_what_the_model_said_is_trained_on_and_what_tools_answered_is_not() -> None:
    chat = WordChat()
    (episode,) = _played(["question one"], _calls_once("keep(a)"), chat)
    assert chat.text(episode.prompt_ids) == "question one"
    assert chat.text(episode.completion_ids) == "well keep(a) keep=nothing so nothing"
    assert episode.mask == [1, 1, 1, 0, 1, 1, 1]  # the ends of turns were said, too
    assert (episode.answer, episode.calls, episode.failures, episode.masked) == ("so nothing", 1, 0, False)


def test_a_sandbox_is_kept_over_turns_and_each_rollout_has_its_own() -> None:
    def script(context: str) -> str:
        number = context.split()[1]
        return f"keep({number}{context.count('=')})" if context.count("=") < 2 else context.rsplit("=", maxsplit=1)[-1]

    episodes = _played(["q a", "q b", "q c"], script)
    assert [episode.answer for episode in episodes] == ["a0", "b0", "c0"]


def test_calls_of_one_turn_are_made_and_told_in_order() -> None:
    chat = WordChat()
    (episode,) = _played(["q"], _calls_once("keep(a) other(b) keep(bad)"), chat)
    told = chat.text(episode.completion_ids)
    assert "keep=nothing other=Error: there is no tool 'other', but keep keep=Error: keep failed: ValueError" in told
    assert (episode.calls, episode.failures) == (3, 2)


def test_a_lost_sandbox_masks_its_rollout_and_no_other() -> None:
    def script(context: str) -> str:
        return f"keep({context.split()[1]})" if "=" not in context else "done"

    episodes = _played(["q a", "q lost", "q c"], script)
    assert [episode.masked for episode in episodes] == [False, True, False]
    assert episodes[1].mask == [0] * len(episodes[1].completion_ids)
    assert [sum(episode.mask) > 0 for episode in episodes] == [True, False, True]
    columns = columns_of(episodes)
    assert columns["tangram_masked"] == [False, True, False]
    assert columns["logprobs"] is None


def test_setup_is_called_first_and_its_loss_leaves_one_token_that_is_not_trained_on() -> None:
    episodes = _played(["q first"], _calls_once("keep(a)"), setup=prepare)
    assert episodes[0].answer == "so first"

    @tangram.action(cpu=1, timeout=5)
    async def fails() -> None:
        raise tangram.SandboxLostError("at once")

    (lost,) = _played(["q"], _calls_once("keep(a)"), setup=fails)
    assert (lost.completion_ids, lost.mask, lost.masked) == ([WordChat().end_id], [0], True)


def test_a_setup_that_runs_out_of_time_masks_its_rollout_and_no_other() -> None:
    @tangram.action(cpu=1, timeout=0.1)
    async def slow(prompt: list[dict[str, str]]) -> None:
        if "slow" in prompt[0]["content"]:
            await asyncio.Event().wait()

    episodes = _played(["q a", "q slow", "q c"], _calls_once("keep(a)"), setup=slow)
    assert [episode.masked for episode in episodes] == [False, True, False]


def test_a_bug_in_setup_ends_the_training() -> None:
    @tangram.action(cpu=1, timeout=5)
    async def broken() -> None:
        raise NameError("a bug")

    with pytest.raises(NameError):
        _played(["q a"], _calls_once("keep(a)"), setup=broken)


def test_the_last_turn_makes_no_calls() -> None:
    (episode,) = _played(["q"], lambda _: "keep(a)", max_turns=3)
    assert (episode.calls, episode.answer, episode.mask.count(0)) == (2, "keep(a)", 2)


def test_no_answer_is_told_for_which_there_is_no_room() -> None:
    chat = WordChat()
    (episode,) = _played(["q"], _calls_once("keep(a)"), chat, max_tokens=4)
    assert chat.text(episode.completion_ids) == "well keep(a)"
    assert set(episode.mask) == {1}
    (cut,) = _played(["q"], lambda _: "one two three four", max_tokens=3)
    assert len(cut.completion_ids) == 3
    (short,) = _played(["q"], lambda _: "one two three four", max_context=3)
    assert len(short.completion_ids) == 2


def test_probabilities_are_kept_beside_zeros_for_what_the_model_did_not_say() -> None:
    (episode,) = _played(["q"], _calls_once("keep(a)"), logprobs=True)
    assert episode.logprobs == [-0.5 * said for said in episode.mask]
    assert columns_of([episode])["logprobs"] == [episode.logprobs]


def test_an_error_of_the_program_ends_all_rollouts_and_is_raised() -> None:
    @tangram.action(cpu=64, timeout=5)
    async def too_large(word: str) -> str:
        """Take more than there is.

        Args:
            word: anything.
        """
        return word

    tools = {"keep": Tool.declare(keep), "large": Tool.declare(too_large, name="large")}
    with pytest.raises(tangram.InfeasibleError):
        _played(["q a", "q b"], _calls_once("large(a)"), tools=tools)


def test_an_error_of_the_model_ends_what_tools_do() -> None:
    cancelled = threading.Event()
    begun = threading.Event()

    @tangram.action(cpu=1, timeout=60)
    async def hang(word: str) -> str:
        """Hang.

        Args:
            word: anything.
        """
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return word

    def script(context: str) -> str:
        if context.split()[1] == "a":
            return "hang(a)"
        if "=" in context:
            assert begun.wait(30)
            raise ZeroDivisionError("the model")
        return "keep(b)"

    tools = {"keep": Tool.declare(keep), "hang": Tool.declare(hang, name="hang")}
    with pytest.raises(ZeroDivisionError):
        _played(["q a", "q b"], script, tools=tools)
    assert cancelled.is_set()


def test_an_error_is_not_hidden_by_a_loop_that_has_closed_meanwhile() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    cancel: concurrent.futures.Future[Callable[[], object]] = concurrent.futures.Future()
    cancel.set_result(lambda: loop.call_soon_threadsafe(print))
    _cancelled(cancel, concurrent.futures.Future())


def test_a_deadline_ends_a_hung_tool_and_the_model_is_told() -> None:
    @tangram.action(cpu=1, timeout=60)
    async def hang(word: str) -> str:
        """Hang.

        Args:
            word: anything.
        """
        await asyncio.Event().wait()
        return word

    chat = WordChat()
    (episode,) = _played(
        ["q"], _calls_once("hang(a)"), chat, tools={"hang": Tool.declare(hang, name="hang")}, deadline_s=0.2
    )
    assert "ran for too long" in chat.text(episode.completion_ids)
    assert not episode.masked  # or an agent could escape a low reward


def test_this_module_needs_no_trl() -> None:
    here = Path(columns_of.__code__.co_filename).parent
    for name in ("batch", "episode", "reward", "turns"):
        text = (here / f"{name}.py").read_text()
        assert "import trl" not in text
        assert "from trl" not in text
        assert "transformers" not in text
