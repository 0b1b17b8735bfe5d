"""Conversations as tokens, by the chat template of a trainer's tokenizer, and tool calls as TRL reads them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase
from trl.chat_template_utils import add_response_schema, parse_response

from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.rollouts.wording import in_utf_8
from arl_tangram.integrations.trl.episode import Message, ToolCall, Turn


class TemplateChat:
    """Writes conversations by a chat template.

    Args:
        tokenizer: whose template it is; it is left as it is.
        tools: what the model is told of each tool, in OpenAI's form.
        template: takes the place of the tokenizer's.
        options: given to the template.

    Raises:
        ConfigurationError: TRL does not know how tool calls look in this template.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tools: Sequence[Mapping[str, Any]],
        *,
        template: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        # A copy: with a schema, the trainer's own would be taken for one of a trainer that calls tools itself.
        self._tokenizer = copy.deepcopy(tokenizer)
        if (
            getattr(tokenizer, "response_template", None) is None
            and getattr(tokenizer, "response_schema", None) is None
        ):
            try:
                self._tokenizer = add_response_schema(self._tokenizer)
            except ValueError as error:
                raise ConfigurationError(
                    "tool_rollouts() cannot read tool calls: TRL does not know this chat template, and the tokenizer "
                    f"has no response_schema: {error}"
                ) from error
        self._tools = [dict(tool) for tool in tools]
        self._template = template
        self._options = dict(options or {})
        if not isinstance(tokenizer.eos_token_id, int):
            raise ConfigurationError("tool_rollouts() needs a tokenizer with an eos_token, which ends a turn")
        self.end_id = tokenizer.eos_token_id

    def begin(self, prompt: Sequence[Message]) -> list[int]:
        """Return a prompt with its tools, up to where the model is to speak.

        Raises:
            ConfigurationError: it is a text, and no conversation.
        """
        if not isinstance(prompt, list):
            raise ConfigurationError(
                "tool_rollouts() needs conversations as prompts, [{'role': 'user', 'content': …}], and the dataset has "
                + type(prompt).__name__
            )
        return self._ids(prompt, tools=self._tools, add_generation_prompt=True)

    def read(self, context: list[int], ids: list[int]) -> Turn:
        """Return what the model said after a context; calls that cannot be read are text."""
        if not ids:
            return Turn("", ())
        try:
            message = parse_response(self._tokenizer, ids, prefix=context, tools=self._tools)
        except RecursionError:  # JSON that is nested too deeply: TRL makes text of other errors only
            return Turn(self._tokenizer.decode(ids, skip_special_tokens=True), ())
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        return Turn(
            str(message.get("content") or ""),
            [ToolCall(in_utf_8(str(call["name"])), call.get("arguments")) for call in calls],
        )

    def tell(self, answers: Sequence[tuple[str, str]]) -> list[int]:
        """Return what follows a turn of the model: what each tool answered, up to where the model is to speak again.

        Raises:
            ConfigurationError: the template writes a turn in another way once answers follow it.
        """
        call: dict[str, Any] = {"type": "function", "function": {"name": answers[0][0], "arguments": {}}}
        before: list[Message] = [
            {"role": "user", "content": "-"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]
        told: list[Message] = [{"role": "tool", "name": name, "content": text} for name, text in answers]
        prefix = self._ids(before, add_generation_prompt=False)
        if self.end_id in prefix:  # a template may go on after the end of a turn, as with a new line
            prefix = prefix[: len(prefix) - prefix[::-1].index(self.end_id)]
        whole = self._ids([*before, *told], add_generation_prompt=True)
        if whole[: len(prefix)] != prefix:
            raise ConfigurationError("tool_rollouts() cannot use this chat template: it rewrites turns that are over")
        return whole[len(prefix) :]

    def _ids(self, messages: Sequence[Message], **options: Any) -> list[int]:
        given = self._options | options
        ids = self._tokenizer.apply_chat_template(
            list(messages), chat_template=self._template, tokenize=True, return_dict=False, **given
        )
        return list(ids)
