from collections.abc import Mapping, Sequence
from typing import Any

class PreTrainedTokenizerBase:
    eos_token_id: int | None
    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> str: ...
    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        documents: Any = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        padding: Any = False,
        truncation: bool = False,
        max_length: int | None = None,
        return_tensors: Any = None,
        return_dict: bool = True,
        return_assistant_tokens_mask: bool = False,
        tokenizer_kwargs: Any = None,
        **kwargs: Any,
    ) -> list[int]: ...
