"""What a model can write in a call to break verl's loop is told to it instead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from arl_tangram.integrations.verl.readable import ReadableCalls


class Parser:
    stop_token_ids = (7,)

    def __init__(self, call: Any) -> None:
        self.call = call

    async def extract_tool_calls(self, ids: list[int], tools: Any = None) -> tuple[str, list[Any]]:
        return f"{ids} {tools}", [self.call]


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"a": [1]}', '{"a": [1]}'),
        ("no JSON", "no JSON"),  # verl says so, and why
        ("[" * 100_000, "{"),
        ("9" * 5000, "{"),
    ],
    ids=["right", "wrong", "nested", "digits"],
)
async def test_what_verl_cannot_read_is_no_json(arguments: str, read: str) -> None:
    parser = ReadableCalls(Parser(SimpleNamespace(name="sh\ud800", arguments=arguments)))
    assert parser.stop_token_ids == (7,)
    text, (call,) = await parser.extract_tool_calls([1], tools="t")
    assert (text, call.name, call.arguments) == ("[1] t", "sh?", read)
