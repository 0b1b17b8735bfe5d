"""Conversations as tokens without a tokenizer: each word is a token, and a call is `name(argument)`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from arl_tangram.integrations.trl.episode import Message, ToolCall, Turn

END = 0


class WordChat:
    """Knows the words that it was told or has met."""

    def __init__(self) -> None:
        self.words = ["<end>"]
        self.end_id = END

    def ids(self, text: str) -> list[int]:
        for word in text.split():
            if word not in self.words:
                self.words.append(word)
        return [self.words.index(word) for word in text.split()]

    def text(self, ids: Sequence[int]) -> str:
        return " ".join(self.words[one] for one in ids if one != END)

    def begin(self, prompt: Sequence[Message]) -> list[int]:
        return self.ids(" ".join(str(message["content"]) for message in prompt))

    def read(self, context: list[int], ids: list[int]) -> Turn:
        text = self.text(ids)
        calls = [ToolCall(name, {"word": word}) for name, word in re.findall(r"(\w+)\((\w*)\)", text)]
        return Turn(text, calls)

    def tell(self, answers: Sequence[tuple[str, str]]) -> list[int]:
        return self.ids(" ".join(f"{name}={text}" for name, text in answers))
