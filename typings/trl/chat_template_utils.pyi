from collections.abc import Sequence
from typing import Any, TypeVar

from transformers import PreTrainedTokenizerBase

_T = TypeVar("_T")

def add_response_schema(processing_class: _T) -> _T: ...
def parse_response(
    tokenizer: PreTrainedTokenizerBase,
    ids: list[int],
    prefix: list[int] | None = None,
    tools: Sequence[Any] | None = None,
) -> dict[str, Any]: ...
