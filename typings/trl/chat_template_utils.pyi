from collections.abc import Sequence
from typing import Any, TypeVar

from transformers import PreTrainedTokenizerBase

T = TypeVar("T")

def add_response_schema(processing_class: T) -> T: ...
def parse_response(
    tokenizer: PreTrainedTokenizerBase,
    ids: list[int],
    prefix: list[int] | None = None,
    tools: Sequence[Any] | None = None,
) -> dict[str, Any]: ...
