"""What `tool_rollouts` and its chat refuse, in words, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import arl_tangram as tangram
from arl_tangram.integrations.rollouts import Tool
from arl_tangram.integrations.rollouts.sandbox_tools import python, shell
from trainers.tiny_model import write_tiny_model


@tangram.action(cpu=1, timeout=5)
async def prepare(image: str) -> None: ...


@tangram.action(cpu=1)
async def patient(prompt: Any) -> None: ...


@pytest.mark.parametrize(
    ("tools", "options", "words"),
    [
        ([], {}, "takes one tool or more"),
        ([shell, Tool.declare(python, name="shell")], {}, "two tools have one name, among shell, shell"),
        (["no_such:tool"], {}, "the module of 'no_such:tool'"),
        ([Tool.declare(python, given=["code"])], {}, "python takes code from the dataset, which TRL does not give"),
        ([shell], {"max_turns": 0}, "max_turns from 1, not 0"),
        ([shell], {"setup": prepare}, "prepare asks for image; there are the fields prompt"),
        ([shell], {"setup": patient}, "patient has no timeout"),
        ([patient], {}, "has no timeout"),
        (shell, {}, "takes a list of tools, not <function shell"),
        ("no_such:tool", {}, "takes a list of tools, not 'no_such:tool'"),
        ([shell], {"deadline_s": 0}, "deadline_s takes finite seconds above 0, not 0"),
        ([shell], {"memory_gib": -1}, "memory_gib must be .* from 0, not -1"),
    ],
)
def test_a_wrong_declaration_is_refused_at_once(tools: list[Any], options: dict[str, Any], words: str) -> None:
    from arl_tangram.integrations.trl import tool_rollouts

    with pytest.raises(tangram.ConfigurationError, match=words):
        tool_rollouts(tools, **options)


def test_a_reward_with_memory_that_there_cannot_be_is_refused_at_once() -> None:
    from arl_tangram.integrations.trl import batch_reward

    with pytest.raises(tangram.ConfigurationError, match=r"batch_reward\(\): memory_gib must be .* from 0, not -1"):
        batch_reward(shell, memory_gib=-1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    import trl

    known = Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja"
    folder = tmp_path_factory.mktemp("models")
    return {
        "known": write_tiny_model(folder / "known", chat_template=known.read_text()),
        "unknown": write_tiny_model(folder / "unknown"),
    }


def _chat(model: Path) -> Any:
    from transformers import AutoTokenizer

    from arl_tangram.integrations.trl.chat import TemplateChat

    tokenizer = AutoTokenizer.from_pretrained(model)
    chat = TemplateChat(tokenizer, [Tool.declare(shell).schema])
    assert getattr(tokenizer, "response_schema", None) is None  # the trainer's own is left as it was
    return chat, tokenizer


def test_a_template_that_trl_does_not_know_is_refused(models: dict[str, Path]) -> None:
    with pytest.raises(tangram.ConfigurationError, match="TRL does not know this chat template"):
        _chat(models["unknown"])


def test_conversations_are_written_as_the_template_has_them_and_calls_are_read(models: dict[str, Path]) -> None:
    chat, tokenizer = _chat(models["known"])
    with pytest.raises(tangram.ConfigurationError, match="needs conversations as prompts"):
        chat.begin("a text")
    prompt = [{"role": "user", "content": "go"}]
    call = '<tool_call>\n{"name": "shell", "arguments": {"command": "ls"}}\n</tool_call>'
    said = tokenizer.encode(f"I look.\n{call}<|im_end|>", add_special_tokens=False)
    turn = chat.read(chat.begin(prompt), said)
    assert [tuple(one) for one in turn.calls] == [("shell", {"command": "ls"})]
    assert "tool_call" not in turn.text
    messages = [
        *prompt,
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"type": "function", "function": {"name": "shell", "arguments": {"command": "ls"}}}],
        },
        {"role": "tool", "name": "shell", "content": "a"},
        {"role": "tool", "name": "shell", "content": "b"},
    ]
    whole = tokenizer.apply_chat_template(messages, tools=[Tool.declare(shell).schema], add_generation_prompt=True)
    ids = whole["input_ids"] if hasattr(whole, "keys") else whole
    assert chat.begin(prompt) + said + chat.tell([("shell", "a"), ("shell", "b")]) == list(ids)
    assert chat.read(chat.begin(prompt), tokenizer.encode("<tool_call>\n{broken")).calls == []


@pytest.mark.parametrize("call", ["[" * 5000, '{"name": "shell", "arguments": {"command": ' + "[" * 5000])
def test_a_call_that_is_nested_too_deeply_is_text(models: dict[str, Path], call: str) -> None:
    chat, tokenizer = _chat(models["known"])
    said = tokenizer.encode(f"<tool_call>\n{call}\n</tool_call><|im_end|>", add_special_tokens=False)
    turn = chat.read(chat.begin([{"role": "user", "content": "go"}]), said)
    assert turn.calls == ()
    assert call in turn.text


def test_a_name_that_utf_8_cannot_write_is_told_to_the_model(models: dict[str, Path]) -> None:
    chat, tokenizer = _chat(models["known"])
    call = '<tool_call>\n{"name": "\\ud800", "arguments": {}}\n</tool_call><|im_end|>'
    turn = chat.read(chat.begin([{"role": "user", "content": "go"}]), tokenizer.encode(call, add_special_tokens=False))
    assert [one.name for one in turn.calls] == ["?"]
    assert chat.tell([(one.name, "there is no such tool") for one in turn.calls])
