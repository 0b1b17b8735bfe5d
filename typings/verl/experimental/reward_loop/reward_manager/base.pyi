from abc import ABC, abstractmethod
from typing import Any

from verl.protocol import DataProto

class RewardManagerBase(ABC):
    config: Any
    tokenizer: Any
    compute_score: Any
    def __init__(self, config: Any, tokenizer: Any, compute_score: Any) -> None: ...
    @abstractmethod
    async def run_single(self, data: DataProto) -> dict[str, Any]: ...
