from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

class GRPOTrainer:
    model: Any
    processing_class: PreTrainedTokenizerBase
    chat_template: str | None
    chat_template_kwargs: dict[str, Any]
    max_completion_length: int
    def _generate_single_turn(
        self,
        prompt_ids: list[list[int]],
        images: Any,
        multimodal_fields: dict[str, Any],
        num_generations: int,
        has_tool_images: bool = False,
    ) -> tuple[Sequence[Sequence[int]], Sequence[Sequence[float]] | None]: ...
