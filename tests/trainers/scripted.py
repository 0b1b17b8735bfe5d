"""What stands for the engine that generates in verl: it answers what it is told to."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer
from verl.workers.rollout.replica import TokenOutput

END = "<|im_end|>"


def tool_call(name: str, /, **arguments: Any) -> str:
    """Return one tool call in the format "hermes"; several of them behind each other are one turn."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class ScriptedLLM:
    """Answers in the place of `LLMServerClient`, in its process and event loop.

    Args:
        tokenizer_path: the folder of the tokenizer, loaded at the first answer, so that this object pickles.
        answer: `answer(prompt, turn)` is the text of turn `turn` (0 is the first) of the rollout whose text so far,
            with the prompt of its sample and what tools said, is `prompt`. The end of the turn is added if need be.
    """

    def __init__(self, tokenizer_path: str | Path, answer: Callable[[str, int], str]) -> None:
        self.answer = answer
        self.prompts: list[str] = []  # of every turn, in the order in which they were asked for
        self._path = str(tokenizer_path)
        self._turns: Counter[str] = Counter()
        self._tokenizer: Any = None

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **others: Any
    ) -> TokenOutput:
        """Return the tokens of the answer."""
        if self._tokenizer is None:
            self._tokenizer = await asyncio.to_thread(AutoTokenizer.from_pretrained, self._path)
        await asyncio.sleep(0)  # other rollouts have their turn, as they have with an engine
        prompt = self._tokenizer.decode(prompt_ids)
        self.prompts.append(prompt)
        turn = self._turns[request_id]
        self._turns[request_id] += 1
        text = self.answer(prompt, turn).removesuffix(END) + END
        tokens = self._tokenizer.encode(text, add_special_tokens=False)
        return TokenOutput(
            token_ids=tokens,
            log_probs=[-0.1] * len(tokens) if sampling_params.get("logprobs") else None,
            stop_reason="completed",
            num_preempted=0,
            extra_fields={"global_steps": 0, "min_global_steps": 0, "max_global_steps": 0},
        )
